"""`python -m cvgp` is the command `cvgp`."""

import sys

from cvgp.errors import MissingDependencyError
from cvgp.extras import optional_packages


def main() -> None:
    """Run the command line, or say which packages it needs."""
    try:
        with optional_packages():
            from cvgp.cli.app import app
    except MissingDependencyError as error:
        sys.exit(f"Error: {error}")
    app(prog_name="cvgp")


if __name__ == "__main__":
    main()
