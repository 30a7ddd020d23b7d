"""LightGBM with a predictive density, within a budget of seconds.

The training rows are cut into five parts. A model is trained on four of them, and the fifth says when to stop. The
first part also chooses among a few sizes of trees. The prediction is the mean of the five models.

Trees give no density. Each row has a residual of the model that did not see it, so there are honest residuals of all
rows. The density is a Gaussian whose variance is their mean square, or a second model of their logarithm of squares:
four fifths of the rows teach that model, and the other fifth decides which of the two is kept.

Classes and counts have objectives of their own: log loss and the Poisson likelihood, with the logarithm of an exposure
as the first score. The prediction is the mean of the probabilities, or rates, of the five models.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import lightgbm
import numpy as np

from experiments.peers.protocol import Array, Job, run

FOLDS = 5
PATIENCE = 50
ENDLESS = 10**6
"""Trees: only the held-out rows or the time end a search."""
LAST = 99
"""Of the callbacks of an iteration: even where time is up before the first tree, its loss is recorded."""
LEARNING_RATE = 0.05
SIZES: Sequence[Mapping[str, int]] = (
    {"num_leaves": 31, "min_data_in_leaf": 20},  # LightGBM's defaults
    {"num_leaves": 31, "min_data_in_leaf": 5},
    {"num_leaves": 127, "min_data_in_leaf": 20},
)
SHARE_OF_CHOICE, SHARE_OF_MEAN = 0.4, 0.85
"""Of the budget: by when the size of the trees is chosen, and by when a density has its mean."""
SMALLEST_SQUARE = 1e-12
"""Of the variance of y: a residual of zero has a logarithm then."""
LOG_CHI_SQUARE = -1.2703628454614782
"""The mean of the logarithm of a squared standard normal: -(Euler's constant + log 2)."""


class Trees(NamedTuple):
    """A trained model, and how it did on the rows that ended its training."""

    booster: lightgbm.Booster
    loss: float

    def predict(self, x: Array) -> Array:
        """By the best number of trees."""
        return np.asarray(self.booster.predict(x, num_iteration=self.booster.best_iteration), dtype=np.float64)


def density(job: Job) -> Mapping[str, float | str]:
    """Mean and standard deviation."""
    job.restart()
    parts = _parts(len(job.x))
    first, size = _first_part(job, parts[0])
    models = [first]
    for number, held in enumerate(parts[1:], 1):
        left = SHARE_OF_MEAN * job.budget - job.seconds
        models.append(_train(job, job.y, held, job.seconds + left / (FOLDS - number), size))
    residuals = np.empty(len(job.x))
    for model, held in zip(models, parts, strict=True):
        residuals[held] = job.y[held] - model.predict(job.x[held])
    constant = float(np.mean(residuals**2))
    spread, level = _spread_model(job, residuals, parts[0])

    def predict(x: Array) -> tuple[Array, Array]:
        mean = np.mean([model.predict(x) for model in models], axis=0)
        log_variance = np.full(len(x), np.log(constant)) if spread is None else spread.predict(x) + level
        return mean, np.exp(0.5 * log_variance)

    job.record(predict)
    trees = float(np.mean([model.booster.best_iteration for model in models]))
    return {"iterations": trees, "precision": "float64", "spread": "constant" if spread is None else "a second model"}


def kinds(job: Job) -> Mapping[str, float | str]:
    """Probabilities of classes, or the logarithm of a Poisson rate."""
    job.restart()
    parts = _parts(len(job.x))
    is_count, num_classes = job.settings["kind"] == "counts", int(job.data["num_classes"])
    objective: dict[str, Any] = {"objective": "poisson" if is_count else "binary"}
    if not is_count and num_classes > 2:
        objective = {"objective": "multiclass", "num_class": num_classes}
    offset = job.data["log_exposure"] if is_count else None
    first, size = _first_part(job, parts[0], objective, offset)
    models = [first]
    for number, held in enumerate(parts[1:], 1):
        until = job.seconds + (job.budget - job.seconds) / (FOLDS - number)
        models.append(_train(job, job.y, held, until, {**size, **objective}, offset))

    def predict(x: Array) -> dict[str, Array]:
        found = np.mean([model.predict(x) for model in models], axis=0)
        if is_count:
            return {"f_mean": np.log(found) + job.data["log_exposure_test"], "f_var": np.zeros(len(x))}
        return {"probabilities": found if found.ndim == 2 else np.column_stack([1.0 - found, found])}

    job.record_arrays(predict)
    return {"iterations": float(np.mean([model.booster.best_iteration for model in models])), "precision": "float64"}


def _parts(count: int) -> list[Any]:
    return np.array_split(np.random.default_rng(0).permutation(count), FOLDS)


def _first_part(
    job: Job, held: Any, objective: Mapping[str, Any] | None = None, offset: Array | None = None
) -> tuple[Trees, Mapping[str, int]]:
    """The best of the sizes on the first part's rows, with the same time for each."""
    best: tuple[Trees, Mapping[str, int]] | None = None
    for number, size in enumerate(SIZES):
        left = SHARE_OF_CHOICE * job.budget - job.seconds
        until = job.seconds + left / (len(SIZES) - number)
        model = _train(job, job.y, held, until, {**size, **(objective or {})}, offset)
        if best is None or model.loss < best[0].loss:
            best = model, size
    assert best is not None
    return best


def _spread_model(job: Job, residuals: Array, held: Any) -> tuple[Trees | None, float]:
    """A model of the log squared residuals with the constant that makes it a log variance, or None if it is no better.

    The constant is that of the greatest density of the held-out rows, and so is the variance that it competes with.
    """
    squares = np.maximum(residuals**2, SMALLEST_SQUARE * np.var(job.y))
    model = _train(job, np.log(squares) - LOG_CHI_SQUARE, held, job.budget, SIZES[0])
    log_variance = model.predict(job.x[held])
    level = float(np.log(np.mean(residuals[held] ** 2 / np.exp(log_variance))))
    theirs = np.mean(log_variance) + level  # twice the negative log density of each, without what they share
    constant = np.log(np.mean(residuals[held] ** 2))
    return (model, level) if theirs < constant else (None, 0.0)


def _train(
    job: Job, y: Array, held: Any, until: float, options: Mapping[str, Any], offset: Array | None = None
) -> Trees:
    used = np.ones(len(y), dtype=bool)
    used[held] = False
    parameters = {"objective": "regression", "learning_rate": LEARNING_RATE, "seed": 0, "deterministic": True}
    parameters |= {"num_threads": job.settings["threads"], "verbosity": -1, **options}

    def stop_in_time(environment: Any) -> None:
        if job.seconds >= until:
            raise lightgbm.callback.EarlyStopException(environment.iteration, environment.evaluation_result_list)

    stop_in_time.order = LAST  # type: ignore[attr-defined]
    losses: dict[str, Any] = {}

    def data(rows: Any) -> lightgbm.Dataset:
        first_score = None if offset is None else offset[rows]
        categorical = job.settings.get("categorical", "auto")  # columns of codes, where there are any
        return lightgbm.Dataset(job.x[rows], y[rows], init_score=first_score, categorical_feature=categorical)

    booster = lightgbm.train(
        parameters,
        data(used),
        num_boost_round=ENDLESS,
        valid_sets=[data(held)],
        callbacks=[
            lightgbm.record_evaluation(losses),
            lightgbm.early_stopping(PATIENCE, verbose=False),
            stop_in_time,
        ],
    )
    (values,) = losses["valid_0"].values()
    booster.best_iteration = int(np.argmin(values)) + 1  # also where time has ended the search
    return Trees(booster, min(values))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"density": density, "kinds": kinds}, {"lightgbm": lightgbm.__version__})
