"""NGBoost: a Gaussian's mean and logarithm of scale by natural gradient boosting.

A tenth of the training rows is kept to say how many trees are best. NGBoost's own rate of 0.01 would need more steps
than the budget has, so it is 0.05.
"""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import numpy as np
from ngboost import NGBRegressor
from ngboost.distns import Normal

from experiments.peers.protocol import Array, Job, run

PATIENCE = 100
ENDLESS = 10**6
LEARNING_RATE = 0.05


class _TimeIsUp(Exception):  # noqa: N818 - a signal, not an error
    pass


def normal(job: Job) -> Mapping[str, float | str]:
    """NGBoost's default trees, as many as the held-out tenth asks for."""
    job.restart()
    order = np.random.default_rng(0).permutation(len(job.x))
    held, used = order[: len(order) // 10], order[len(order) // 10 :]
    model = NGBRegressor(Dist=Normal, n_estimators=ENDLESS, learning_rate=LEARNING_RATE, random_state=0, verbose=False)

    def loss(distribution: Any, y: Array) -> float:
        if job.is_over:
            raise _TimeIsUp
        return float(-distribution.logpdf(y).mean())

    with suppress(_TimeIsUp):  # all trees so far are kept, and so is the number of the best
        model.fit(
            job.x[used],
            job.y[used],
            X_val=job.x[held],
            Y_val=job.y[held],
            val_loss_monitor=loss,
            early_stopping_rounds=PATIENCE,
        )
    trees = model.best_val_loss_itr + 1

    def predict(x: Array) -> tuple[Array, Array]:
        found = model.pred_dist(x, max_iter=trees)
        return found.loc, found.scale

    job.record(predict)
    return {"iterations": trees, "precision": "float64"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"normal": normal}, {"ngboost": version("ngboost")})
