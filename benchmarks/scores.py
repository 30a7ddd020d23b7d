"""What is measured of a fit."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Split
from cvgp.metrics import coverage, mean_log_density, rmse

__all__ = ["Fit", "Fitted", "Metrics", "Outcome", "measure", "score"]

Array = NDArray[np.float64]
Metrics = dict[str, float]

LEVEL = 0.9


class Outcome(NamedTuple):
    """What a measurement gives beyond its numbers."""

    metrics: Metrics
    trace: list[Metrics]
    """The same numbers on the way, for what was looked at more than once."""
    origin: dict[str, str]
    """Provenance that only the one who measured knows: versions of a peer, its precision."""


class Fitted(Protocol):
    """A method after its fit."""

    num_iter: int
    noise: float
    """Learned noise variance."""

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean [n] and standard deviation [n] of y."""
        ...


Fit = Callable[[Array, Array], Fitted]
"""Takes training inputs [N, D] and targets [N], standardised."""


def measure(fit: Fit, split: Split, clock: Callable[[], float] = time.perf_counter) -> Metrics:
    """Fit on the training rows, with everything that takes counted, and score the others."""
    begin = clock()
    fitted = fit(split.x, split.y)
    seconds = clock() - begin
    scores = score(split.y_test, *fitted.predict(split.x_test))
    return scores | {"seconds": seconds, "iterations": float(fitted.num_iter), "noise": fitted.noise}


def score(y: Array, mean: Array, sd: Array) -> Metrics:
    """How good predictions of standardised targets are."""
    return {
        "rmse": rmse(y, mean),
        "log_likelihood": mean_log_density(y, mean, sd),
        "coverage": coverage(y, mean, sd, LEVEL),
        "constant_log_likelihood": mean_log_density(y, np.zeros_like(y), np.ones_like(y)),
    }
