"""Real processes to kill: commands as a user would give them, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

# Imports take most of a short command's time. They are paid for once, and each command is a fork of what has paid.
SERVER = """
import importlib, json, os, signal, sys, time
import cvgp.cli
for name in ("torch", "gpytorch", "pandas", "pyarrow.parquet", "sklearn.cluster", "scipy.optimize", "cvgp.cli",
             "cvgp.estimators.scoring", "cvgp.cli.info", "cvgp.cli.predictor", "cvgp.cli.fit",
             "cvgp.estimators.regressor", "cvgp.estimators.saving", "cvgp.data.tables.training_table",
             "cvgp.data.tables.writer", "cvgp.plots.columns"):
    importlib.import_module(name)
print("ready", flush=True)
for line in sys.stdin:
    arguments, kill_after = json.loads(line)
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        cvgp.cli.app(arguments, prog_name="cvgp")
    status = None
    while status is None and (kill_after is None or time.monotonic() - begin < kill_after):
        done, found = os.waitpid(child, os.WNOHANG)
        status = found if done else None
        time.sleep(0.001)
    if status is None:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    print(json.dumps([code, time.monotonic() - begin]), flush=True)
"""


class Commands:
    """Runs commands, and kills some of them."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def finish(self, *arguments: object) -> float:
        """A command that must end well; gives the seconds that it took."""
        code, seconds = self._run(arguments, None)
        assert code == 0
        return seconds

    def kill(self, after: float, *arguments: object) -> float | None:
        """Kill a command after some seconds; gives the seconds that it took if it ended well before that."""
        code, seconds = self._run(arguments, after)
        assert code in (0, -9)
        return seconds if code == 0 else None

    def _run(self, arguments: Any, kill_after: float | None) -> tuple[int, float]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([[str(a) for a in arguments], kill_after]) + "\n")
        self._server.stdin.flush()
        code, seconds = json.loads(self._server.stdout.readline())
        return code, seconds


@contextmanager
def commands() -> Iterator[Commands]:
    """A place to run commands from."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield Commands(server)


def table(rows: int, path: Path) -> Path:
    """A table with text, so that encodings are at stake too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows), "c": rng.choice(["x", "y"], rows)})
    frame["y"] = np.sin(frame["a"]) + (frame["c"] == "x") + 0.1 * rng.normal(size=rows)
    frame.to_csv(path, index=False)
    return path


def leftovers(folder: Path) -> list[str]:
    """Files that a killed process may not leave: all but the temporary ones."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".cvgp-"))
