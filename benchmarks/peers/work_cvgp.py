"""cvgp in a process of its own, as the peers are: fits, steps, passes over all rows, predictions."""

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

import cvgp
from benchmarks.peers.protocol import Job, answer_times, resident_memory, run, say
from cvgp import CVGPRegressor

Array = NDArray[np.float64]
ENDLESS = 10**6
"""Steps that no measurement reaches."""


def fit(job: Job) -> Mapping[str, float | str]:
    """A whole fit, with everything counted but what a first fit imports, as for the peers."""
    _import_all(job)
    before = resident_memory()
    job.restart()
    model = CVGPRegressor(random_state=0, **job.settings["parameters"]).fit(job.x, job.y)
    job.record(lambda x: model.predict(x, return_std=True))
    return {"iterations": model.n_iter_, "points": len(model.coreset_), "memory_before": before}


def accuracy(job: Job) -> Mapping[str, float | str]:
    """A whole fit, with the predictive density and the quantiles that the estimator's own methods give.

    A prediction need not be Gaussian, so a mean and a standard deviation do not say all of it. The time of a prediction
    is that of mean and standard deviation. What a first fit imports is not counted, nor is it for the peers.
    """
    _import_all(job)
    job.restart()
    model = CVGPRegressor(random_state=0, **job.settings["parameters"]).fit(job.x, job.y)
    levels = np.asarray(job.settings["levels"])

    def predict(x: Array) -> dict[str, Any]:
        return {
            "mean": model.predict(x),
            "log_density": model.log_predictive_density(x, job.data["y_test"]),
            "levels": levels,
            "quantiles": model.predict_quantiles(x, levels).T,
        }

    job.record_arrays(predict)
    begin = job.now()
    model.predict(job.data["x_test"], return_std=True)
    took = job.now() - begin
    stored = job.folder / "model.cvgp"
    model.save(stored)
    return {
        "iterations": model.n_iter_,
        "points": len(model.coreset_),
        "neighbors": model.n_neighbors_,
        "noise": model.noise_,
        "bytes": stored.stat().st_size,
        "predict_seconds": took,
    }


def fits(job: Job) -> Mapping[str, float | str]:
    """Whole fits, one after another."""
    answer_times(lambda: CVGPRegressor(random_state=0, **job.settings["parameters"]).fit(job.x, job.y))
    return {}


def step(job: Job) -> Mapping[str, float | str]:
    """Training steps of a fit, as its callbacks see them; then the bound of what it learned, in both precisions."""
    model = _timed_fit(job, "adam")
    bounds = {}
    for precision in (torch.float32, torch.float64):
        x, y = (torch.as_tensor(a, dtype=precision) for a in (job.x, job.y))
        with torch.no_grad():
            bounds[precision] = model.model_.elbo(x, y).item()
    exact = bounds[torch.float64]
    return {"float32_error": abs(bounds[torch.float32] - exact) / abs(exact)}


def full_pass(job: Job) -> Mapping[str, float | str]:
    """Evaluations of the bound and its gradient on all rows, by the callbacks of L-BFGS."""
    _timed_fit(job, "lbfgs")
    return {}


def predict(job: Job) -> Mapping[str, float | str]:
    """Predictions of a trained model, all rows in one call: it divides them by itself."""
    model = CVGPRegressor(random_state=0, **job.settings["parameters"]).fit(job.x, job.y)
    rows, with_sd = job.data["x_test"], job.settings["with_sd"]
    answer_times(lambda: model.predict(rows, return_std=with_sd))
    return {}


def gemm(job: Job) -> Mapping[str, float | str]:
    """Products of square matrices: the speed that the processor has to offer."""
    size, dtype = job.settings["size"], getattr(torch, job.settings["precision"])
    a, b = torch.randn(2, size, size, dtype=dtype, generator=torch.Generator().manual_seed(0))
    out = torch.empty_like(a)
    answer_times(lambda: torch.mm(a, b, out=out))
    return {}


def _import_all(job: Job) -> None:
    CVGPRegressor(5, solver="adam", max_iter=2, random_state=0).fit(job.x[:50], job.y[:50])


def _timed_fit(job: Job, solver: Literal["adam", "lbfgs"]) -> CVGPRegressor:
    callback = _times_between_calls(solver)
    return CVGPRegressor(
        random_state=0, solver=solver, tol=0.0, max_iter=ENDLESS, callbacks=[callback], **job.settings["parameters"]
    ).fit(job.x, job.y)


def _times_between_calls(phase: str) -> Callable[[Any], bool]:
    """A callback that answers each number n with the seconds of the next n iterations; the input's end ends the fit."""
    times: list[float] = []
    wanted, last = 0, 0.0

    def callback(event: Any) -> bool:
        nonlocal wanted, last
        now = time.perf_counter()
        if event.phase != phase:
            return False
        if wanted:
            times.append(now - last)
        if len(times) == wanted:
            if wanted:
                say({"times": times})
            times.clear()
            line = sys.stdin.readline()
            if not line:
                return True
            wanted = int(line)
        last = time.perf_counter()
        return False

    return callback


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    versions = {"cvgp": cvgp.__version__, "torch": torch.__version__}
    methods = {"fit": fit, "accuracy": accuracy, "fits": fits, "step": step, "pass": full_pass}
    run({**methods, "predict": predict, "gemm": gemm}, versions)
