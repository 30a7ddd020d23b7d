"""Commands with streams that are closed, full, left by their reader, or of another encoding.

Imports take most of a short command's time. They are paid for once, and each command is a fork of what has paid.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

__all__ = ["TRACEBACK", "Ended", "Shell", "shell"]

TRACEBACK = 99
"""The code of a command that ended with a traceback."""

SERVER = """
import io, json, os, sys, traceback
import cvgp.cli, cvgp.estimators.persistence, cvgp.cli.info, cvgp.cli.predict, cvgp.tables.write, cvgp.plots.drawing
from cvgp.__main__ import main

def arrange(number, name, kind, encoding):
    if kind == "closed":
        os.close(number)
        setattr(sys, name, None)
        return
    if kind == "left":  # by its reader
        reader, own = os.pipe()
        os.close(reader)
    else:
        own = os.open(kind, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(own, number)
    os.close(own)
    stream = io.TextIOWrapper(io.BufferedWriter(io.FileIO(number, "w", closefd=False)), encoding=encoding)
    setattr(sys, name, stream)

answers = os.fdopen(os.dup(1), "w")
print("ready", file=answers, flush=True)
for line in sys.stdin:
    arguments, out, err, encoding = json.loads(line)
    child = os.fork()
    if child == 0:
        sys.argv = ["cvgp", *map(os.fsdecode, (a.encode("utf-8", "surrogateescape") for a in arguments))]
        arrange(1, "stdout", out, encoding)
        arrange(2, "stderr", err, encoding)
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            os._exit(99)
        # What Python does at its end. The threads of Arrow do not survive a fork, and would be waited for there.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            os._exit(120)
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, file=answers, flush=True)
"""


class Ended(NamedTuple):
    """What came of a command; nothing was printed to a stream that is no file."""

    code: int
    out: bytes
    err: bytes


class Shell:
    """Runs commands."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder

    def run(self, *arguments: object, out: str = "", err: str = "", encoding: str = "utf-8") -> Ended:
        """Run a command; each stream is a file, or "closed", "left" by its reader, or the path of a device."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        files = [self._folder / "out", self._folder / "err"]
        for file in files:
            file.write_bytes(b"")
        kinds = [given or str(file) for given, file in zip((out, err), files, strict=True)]
        self._server.stdin.write(json.dumps([[str(word) for word in arguments], *kinds, encoding]) + "\n")
        self._server.stdin.flush()
        return Ended(int(self._server.stdout.readline()), *(file.read_bytes() for file in files))


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    """A place to run commands from."""
    command = [sys.executable, "-c", SERVER]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield Shell(server, folder)
