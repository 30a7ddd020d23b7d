"""`python -m cvgp` is the command `cvgp`."""

from cvgp.cli import main

if __name__ == "__main__":
    main()
