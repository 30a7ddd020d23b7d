"""`python -m cvgp` is the command `cvgp`."""

import atexit
import io
import os
import sys

from cvgp.errors import MissingDependencyError, optional_packages


def main() -> None:
    """Run the command line, or say which packages it needs."""
    _prepare_streams()
    try:
        with optional_packages():
            from cvgp.cli import app
        app(prog_name="cvgp")
    except MissingDependencyError as error:
        _end(f"Error: {error}")
    except SystemExit as end:
        if end.code:
            _end(end.code)
        raise
    finally:
        _flush_streams()


def _end(code: str | int) -> None:
    """End the process at once: before Python 3.14, threads of Arrow that read ahead could crash it at its end."""
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    atexit._run_exitfuncs()
    _flush_streams()
    os._exit(code)


def _prepare_streams() -> None:
    """Replace each closed stream, in the order of their numbers, by an empty one, and let none refuse a character."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _flush_streams() -> None:
    """Discard output that nobody reads or a full disk refuses; Python would complain of it once more at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
