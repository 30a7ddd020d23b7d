"""One task in a process of its own: the result goes to a folder, where the runner finds it."""

import json
import math
import warnings
from pathlib import Path

import numpy as np

from cvgp.paper.experiments import find_experiment
from cvgp.paper.store import Key, Metrics

__all__ = ["ARRAYS", "RESULT", "run_task"]

RESULT, ARRAYS = "result.json", "arrays.npz"


def run_task(key: Key, threads: int, folder: str) -> None:
    """Run a task and write what it gave, or how it failed."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    metrics: Metrics = {}
    error, has_arrays = "", False
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(threads):
        warnings.simplefilter("always")
        # They are about the interfaces of libraries, not about results.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            outcome = find_experiment(str(key["experiment"])).run(key)
            metrics = _finite(outcome.metrics)
            if outcome.arrays:
                np.savez(Path(folder) / ARRAYS, allow_pickle=False, **outcome.arrays)
                has_arrays = True
        except Exception as failure:  # whatever a method throws, the others still have to be run
            error = f"{type(failure).__name__}: {failure}"
    messages = sorted({f"{w.category.__name__}: {w.message}" for w in caught})
    result = {"metrics": metrics, "error": error, "warnings": messages, "arrays": has_arrays}
    (Path(folder) / RESULT).write_text(json.dumps(result, allow_nan=False), encoding="utf-8")


def _finite(metrics: Metrics) -> Metrics:
    wrong = [name for name, value in metrics.items() if value is not None and not math.isfinite(value)]
    if wrong:
        raise FloatingPointError(f"not finite: {', '.join(wrong)}")
    return {name: None if value is None else float(value) for name, value in metrics.items()}
