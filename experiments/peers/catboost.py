"""CatBoost with its loss for mean and variance: a Gaussian density by boosted trees.

The training rows are cut into five parts. A model is trained on four of them, and the fifth says when to stop. The
first part also chooses the depth of the trees. The prediction is the Gaussian with the mean and the variance of the
mixture of the five. Classes have the log loss in place of that loss, and the mean of the five probabilities.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import catboost
import numpy as np

from experiments.peers.protocol import Array, Job, run

FOLDS = 5
PATIENCE = 100
ENDLESS = 10**6
"""Trees: only the held-out rows or the time end a search."""
LEARNING_RATE = 0.05
DEPTHS = (6, 8)
"""CatBoost's default, and one that has four times as many leaves."""
SHARE_OF_CHOICE = 0.4
"""Of the budget: by when the depth is chosen."""


class _Clock:
    """Ends the training in time."""

    def __init__(self, job: Job, until: float) -> None:
        self._job, self._until = job, until

    def after_iteration(self, info: Any) -> bool:
        """Whether to go on."""
        return self._job.seconds < self._until


def uncertain(job: Job) -> Mapping[str, float | str]:
    """Mean and standard deviation."""
    job.restart()
    models, depth = _five(job, catboost.CatBoostRegressor, "RMSEWithUncertainty")

    def predict(x: Array) -> tuple[Array, Array]:
        found = np.stack([model.predict(x, prediction_type="RMSEWithUncertainty") for model in models])
        mean, variance = found[:, :, 0], found[:, :, 1]  # [folds, n]
        return mean.mean(axis=0), np.sqrt(variance.mean(axis=0) + mean.var(axis=0))

    job.record(predict)
    return _numbers(models, depth)


def classes(job: Job) -> Mapping[str, float | str]:
    """Probabilities of classes."""
    job.restart()
    loss = "Logloss" if int(job.data["num_classes"]) == 2 else "MultiClass"
    models, depth = _five(job, catboost.CatBoostClassifier, loss)
    job.record_arrays(lambda x: {"probabilities": np.mean([model.predict_proba(x) for model in models], axis=0)})
    return _numbers(models, depth)


def _five(job: Job, kind: Any, loss: str) -> tuple[list[Any], int]:
    """One model for each part that is left out, and the depth that the first part has chosen."""
    parts = np.array_split(np.random.default_rng(0).permutation(len(job.x)), FOLDS)
    tried = {}
    for number, depth in enumerate(DEPTHS):
        left = SHARE_OF_CHOICE * job.budget - job.seconds
        tried[depth] = _train(job, kind, loss, depth, parts[0], job.seconds + left / (len(DEPTHS) - number))
    depth = min(tried, key=lambda depth: float(tried[depth].get_best_score()["validation"][loss]))
    models = [tried[depth]]
    for number, held in enumerate(parts[1:], 1):
        left = job.budget - job.seconds
        models.append(_train(job, kind, loss, depth, held, job.seconds + left / (FOLDS - number)))
    return models, depth


def _numbers(models: list[Any], depth: int) -> Mapping[str, float | str]:
    trees = float(np.mean([model.tree_count_ for model in models]))
    return {"iterations": trees, "depth": depth, "precision": "float64"}


def _train(job: Job, kind: Any, loss: str, depth: int, held: Any, until: float) -> Any:
    used = np.ones(len(job.x), dtype=bool)
    used[held] = False
    model = kind(
        loss_function=loss,
        depth=depth,
        iterations=ENDLESS,
        learning_rate=LEARNING_RATE,
        od_type="Iter",
        od_wait=PATIENCE,
        random_seed=0,
        thread_count=job.settings["threads"],
        allow_writing_files=False,
        verbose=False,
    )
    held_rows = (job.x[held], job.y[held])
    return model.fit(job.x[used], job.y[used], eval_set=held_rows, callbacks=[_Clock(job, until)])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"uncertain": uncertain, "classes": classes}, {"catboost": catboost.__version__})
