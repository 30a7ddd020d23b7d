"""One task in a process of its own: the result goes to a folder, where the runner finds it."""

import json
from pathlib import Path

import numpy as np

from cvgp.paper.attempt import attempt, thread_limit
from cvgp.paper.experiments import find_experiment
from cvgp.paper.store import Key

RESULT, ARRAYS = "result.json", "arrays.npz"


def run_task(key: Key, threads: int, folder: str) -> None:
    """Run a task and write its record and arrays."""
    with thread_limit(threads):
        record, arrays = attempt(key, lambda: find_experiment(str(key["experiment"])).run(key))
    if arrays:
        np.savez(Path(folder) / ARRAYS, allow_pickle=False, **arrays)
    (Path(folder) / RESULT).write_text(json.dumps(vars(record), allow_nan=False), encoding="utf-8")
