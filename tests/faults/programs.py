"""Real processes to kill: the command line, as a user would start it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

COMMAND = (sys.executable, "-m", "cvgp")


def start(*arguments: object) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [*COMMAND, *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(*arguments: object) -> str:
    """A command that must end well; gives what it printed."""
    process = start(*arguments)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def kill_after(process: subprocess.Popen[str], seconds: float) -> bool:
    """SIGKILL after some seconds; False if the process had ended before."""
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def table(rows: int, path: Path) -> Path:
    """A table with text, so that encodings are at stake too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows), "c": rng.choice(["x", "y"], rows)})
    frame["y"] = np.sin(frame["a"]) + (frame["c"] == "x") + 0.1 * rng.normal(size=rows)
    frame.to_csv(path, index=False)
    return path


def leftovers(folder: Path) -> list[str]:
    """Files that are neither temporary nor expected to be hidden."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".cvgp-"))
