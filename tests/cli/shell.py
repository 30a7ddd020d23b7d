"""Commands that are killed, or whose streams are closed, full, left by their reader, or of another encoding.

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

SERVER = """
import io, json, os, signal, sys, time
import pyarrow.parquet, scipy.optimize, sklearn.cluster
import cvgp.cli.fit, cvgp.cli.scores, cvgp.estimators.persistence
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
    arguments, out, err, encoding, kill_after = json.loads(line)
    begin, child = time.monotonic(), os.fork()
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
    status = None
    while status is None and (kill_after is None or time.monotonic() - begin < kill_after):
        done, found = os.waitpid(child, os.WNOHANG)
        status = found if done else None
        time.sleep(0.001)
    if status is None:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    print(json.dumps([os.waitstatus_to_exitcode(status), time.monotonic() - begin]), file=answers, flush=True)
"""


class Ended(NamedTuple):
    """What came of a command; its code is 99 after a traceback, and -9 after a kill."""

    code: int
    seconds: float
    out: bytes
    err: bytes


class Shell:
    """Runs commands."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server, self._folder = server, folder

    def run(
        self, *arguments: object, out: str = "", err: str = "", encoding: str = "utf-8", kill_after: float | None = None
    ) -> Ended:
        """Run a command; each stream is a file, or "closed", "left" by its reader, or the path of a device."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        files = [self._folder / "out", self._folder / "err"]
        for file in files:
            file.write_bytes(b"")
        kinds = [given or str(file) for given, file in zip((out, err), files, strict=True)]
        words = [str(word) for word in arguments]
        self._server.stdin.write(json.dumps([words, *kinds, encoding, kill_after]) + "\n")
        self._server.stdin.flush()
        code, seconds = json.loads(self._server.stdout.readline())
        return Ended(code, seconds, *(file.read_bytes() for file in files))


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    """A place to run commands from; what they print is stored in an empty folder."""
    command = [sys.executable, "-c", SERVER]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield Shell(server, folder)
