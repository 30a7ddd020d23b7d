"""cvgp in a process of its own, as the peers are: fits, steps, passes over all rows, predictions, Parquet files."""

import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor, TrainingOptions
from experiments.peers.protocol import Job, answer_times, resident_memory, run, say

Array = NDArray[np.float64]
ENDLESS = 10**6
"""Steps that no measurement reaches."""
WARM_UP = 50
"""Steps from files that are not counted."""


def fit(job: Job) -> Mapping[str, float | str]:
    """A whole fit, with everything counted but what a first fit imports, as for the peers."""
    _import_all(job)
    before = resident_memory()
    job.restart()
    model = CVGPRegressor(random_state=0).set_params(**job.settings["parameters"]).fit(job.x, job.y)
    job.record(lambda x: model.predict(x, return_std=True))
    return {"iterations": model.n_iter_, "points": len(model.coreset_), "memory_before": before}


def accuracy(job: Job) -> Mapping[str, float | str]:
    """A whole fit, with the predictive density and the quantiles that the estimator's own methods give.

    A prediction need not be Gaussian, so a mean and a standard deviation do not say all of it. The time of a prediction
    is that of mean and standard deviation. What a first fit imports is not counted, nor is it for the peers.
    """
    _import_all(job)
    job.restart()
    model = CVGPRegressor(random_state=0).set_params(**job.settings["parameters"])
    model.fit(job.x, job.y, groups=job.data.get("groups"))
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


def step(job: Job) -> Mapping[str, float | str]:
    """Training steps of a fit, as its callbacks see them; then the bound of what it learned, in both precisions."""
    training = TrainingOptions(solver="adam", tol=0.0, max_iter=ENDLESS, callbacks=[_times_between_calls("adam")])
    model = CVGPRegressor(random_state=0, training=training).set_params(**job.settings["parameters"])
    model.fit(job.x, job.y)
    bounds = {}
    for precision in (torch.float32, torch.float64):
        x, y = (torch.as_tensor(a, dtype=precision) for a in (job.x, job.y))
        with torch.no_grad():
            bounds[precision] = model.model_.elbo(x, y).item()
    exact = bounds[torch.float64]
    return {"float32_error": abs(bounds[torch.float32] - exact) / abs(exact)}


def predict(job: Job) -> Mapping[str, float | str]:
    """Predictions of a trained model, all rows in one call: it divides them by itself."""
    model = CVGPRegressor(random_state=0).set_params(**job.settings["parameters"]).fit(job.x, job.y)
    rows, with_sd = job.data["x_test"], job.settings["with_sd"]
    answer_times(lambda: model.predict(rows, return_std=with_sd))
    return {}


def _import_all(job: Job) -> None:
    CVGPRegressor(5, random_state=0, training=TrainingOptions(solver="adam", max_iter=2)).fit(job.x[:50], job.y[:50])


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


def in_memory(job: Job) -> Mapping[str, float | str]:
    """A fit to rows of Parquet files that are loaded, as a user would who has the memory."""
    import pyarrow.dataset as ds

    before = resident_memory()
    frame = ds.dataset(job.settings["folder"]).to_table().to_pandas()
    x, y = frame.drop(columns="y").to_numpy(), frame["y"].to_numpy()
    del frame
    return _fit_rows(job, x, y)[1] | {"memory_before": before}


def from_files(job: Job) -> Mapping[str, float | str]:
    """A fit to rows that stay in their files, and predictions of all of them."""
    import pyarrow.dataset as ds

    from cvgp.cli import app
    from cvgp.tables import stream

    stream.IN_MEMORY_BYTES = 0  # also where they would fit
    before = resident_memory()
    model, numbers = _fit_rows(job, job.settings["folder"], "y")
    stored, out = job.folder / "model.cvgp", job.folder / "out.parquet"
    model.save(stored)
    begin = time.perf_counter()
    app(["predict", str(stored), job.settings["folder"], "--out", str(out)], standalone_mode=False)
    rate = ds.dataset(job.settings["folder"]).count_rows() / (time.perf_counter() - begin)
    return numbers | {"predict_rows_per_second": rate, "memory_before": before}


def _fit_rows(job: Job, x: Any, y: Any) -> tuple[CVGPRegressor, dict[str, float]]:
    times: list[float] = []

    def note(event: Any) -> None:
        if event.phase == "adam":
            times.append(time.perf_counter())

    begin = time.perf_counter()
    training = TrainingOptions(solver="adam", max_iter=job.settings["steps"], callbacks=[note])
    model = CVGPRegressor(job.settings["size"], random_state=0, training=training).fit(x, y)
    seconds = time.perf_counter() - begin
    counted = times[min(WARM_UP, len(times) // 2) :]
    return model, {"steps_per_second": (len(counted) - 1) / (counted[-1] - counted[0]), "fit_seconds": seconds}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    methods = {"fit": fit, "accuracy": accuracy, "step": step, "predict": predict}
    files = {"memory": in_memory, "files": from_files}
    run(methods | files, {"cvgp": cvgp.__version__, "torch": torch.__version__})
