"""LightGBM: boosted trees, with a tenth of the rows kept to choose their number.

Trees give no density. It is taken as a Gaussian around the prediction whose constant variance is the mean squared
error on that tenth.
"""

import warnings
from collections.abc import Mapping

import lightgbm
import numpy as np

from benchmarks.peers.protocol import Array, Job, run

MOST_TREES = 5000
PATIENCE = 50


def trees(job: Job) -> Mapping[str, float | str]:
    """LightGBM's default trees at half its default learning rate, as many as the held-out tenth asks for."""
    job.restart()
    order = np.random.default_rng(0).permutation(len(job.x))
    held, used = order[: len(order) // 10], order[len(order) // 10 :]
    model = lightgbm.train(
        {"objective": "regression", "learning_rate": 0.05, "num_threads": job.settings["threads"], "verbosity": -1},
        lightgbm.Dataset(job.x[used], job.y[used]),
        num_boost_round=MOST_TREES,
        valid_sets=[lightgbm.Dataset(job.x[held], job.y[held])],
        callbacks=[
            lightgbm.early_stopping(PATIENCE, verbose=False),
            lambda environment: _stop_in_time(job, environment.iteration),
        ],
    )
    sd = float(np.sqrt(np.mean((np.asarray(model.predict(job.x[held])) - job.y[held]) ** 2)))

    def predict(x: Array) -> tuple[Array, Array]:
        mean = np.asarray(model.predict(x), dtype=np.float64)
        return mean, np.full_like(mean, sd)

    job.record(predict)
    return {"iterations": model.best_iteration, "precision": "float64"}


def _stop_in_time(job: Job, iteration: int) -> None:
    if job.is_over:
        raise lightgbm.callback.EarlyStopException(iteration, [])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"trees": trees}, {"lightgbm": lightgbm.__version__})
