"""cvgp as a method to measure: the estimator, and the same fit with another transform of the weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.beginning import BetaTransform, begin
from cvgp import CVGPRegressor
from cvgp.estimators.units import ScaledGP
from cvgp.training.fit import fit_model
from cvgp.training.initialise import InitName
from cvgp.training.monitor import Watch
from cvgp.training.settings import Settings

__all__ = ["FittedEstimator", "FittedGP", "estimator", "with_beta_transform"]

Array = NDArray[np.float64]


class FittedEstimator:
    """A fitted `CVGPRegressor`."""

    def __init__(self, model: CVGPRegressor) -> None:
        self.model = model
        self.num_iter: int = model.n_iter_
        self.noise = float(model.noise_variance_)

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of y."""
        mean, sd = self.model.predict(x, return_std=True)
        return mean, sd


class FittedGP:
    """A model that was trained through the layers below the estimator."""

    def __init__(self, gp: ScaledGP, num_iter: int) -> None:
        self.gp = gp
        self.num_iter = num_iter
        self.noise = float(gp.noise_variance[0])

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of y."""
        mean, f_var = self.gp.mean_and_variance(x)
        return mean[:, 0], np.sqrt(f_var + self.gp.noise_variance)[:, 0]


def estimator(size: int, seed: int, **parameters: Any) -> Callable[[Array, Array], FittedEstimator]:
    """`CVGPRegressor` with a fixed coreset size and the given parameters."""

    def fit(x: Array, y: Array) -> FittedEstimator:
        return FittedEstimator(CVGPRegressor(size, random_state=seed, **parameters).fit(x, y))

    return fit


def with_beta_transform(
    beta: BetaTransform, size: int, seed: int, *, kernel: str, init: InitName, settings: dict[str, Any]
) -> Callable[[Array, Array], FittedGP]:
    """What the estimator does, with a transform of the weights that it does not offer by itself."""

    def fit(x: Array, y: Array) -> FittedGP:
        watch = Watch(settings.get("max_time"))
        first = begin(x, y, kernel=kernel, ard=True, size=size, seed=seed, watch=watch, init=init, beta=beta)
        report = fit_model(first.model, first.source, Settings(seed=first.batch_seed, **settings), watch)
        return FittedGP(ScaledGP(first.model, first.scaling), report.result.num_iter)

    return fit
