"""The command `cvgp`: thin commands over the library, with messages instead of tracebacks.

Nothing here imports torch, pandas or matplotlib before a command needs them, so that `cvgp --help` answers at once.
"""

from cvgp.cli.app import app

__all__ = ["app"]
