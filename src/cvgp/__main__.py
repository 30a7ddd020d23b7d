"""`python -m cvgp` is the command `cvgp`."""

import io
import os
import sys

from cvgp.errors import MissingDependencyError
from cvgp.extras import optional_packages


def main() -> None:
    """Run the command line, or say which packages it needs."""
    _prepare_streams()
    try:
        try:
            with optional_packages():
                from cvgp.cli.app import app
        except MissingDependencyError as error:
            sys.exit(f"Error: {error}")
        app(prog_name="cvgp")
    finally:
        _flush_streams()


def _prepare_streams() -> None:
    """Put an empty stream in the place of each that the user has closed, and let none refuse a character.

    In this order each gets the number of the closed one, which no file may have: a library could write into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush_streams() -> None:
    """Let go of what nobody reads, or a full disk refuses: Python would complain of it once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
