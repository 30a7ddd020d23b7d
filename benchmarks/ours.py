"""cvgp as a method to measure: the estimator, and the same fit through the layers below it.

The layers have what the estimator has no parameter for: another transform of the weights, another clock, and the start
of a fit by itself. A test keeps both fits equal.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from gpytorch.means import ZeroMean
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.utils import check_random_state

from cvgp import CVGP, CVGPRegressor
from cvgp.data.input_warp import NO_WARP
from cvgp.data.rows import Rows
from cvgp.estimators.described_rows import describe
from cvgp.estimators.inputs import array_sources
from cvgp.estimators.model_units import Sources, model_units
from cvgp.estimators.units import ScaledGP
from cvgp.metrics import mean_log_density
from cvgp.paper.baselines import Prediction
from cvgp.paper.scores import Fitted, score
from cvgp.paper.splits import Split
from cvgp.paper.store import Outcome
from cvgp.parallel.group import ALONE
from cvgp.training.fit import fit_model
from cvgp.training.initialise import InitName
from cvgp.training.monitor import Watch
from cvgp.training.plan import Settings
from cvgp.training.start import begin_model, starting_kernel

__all__ = [
    "SAME_AS_PEERS",
    "Beginning",
    "BetaTransform",
    "Method",
    "begin",
    "estimator",
    "measure",
    "plain_start",
    "start_of_peers",
    "through_layers",
]

Array = NDArray[np.float64]
BetaTransform = Literal["log", "softplus"]
Clock = Callable[[], float]

SAME_AS_PEERS: dict[str, Any] = {"neighbors": 0, "noise": "constant", "inputs": "identity"}
"""The coreset alone, with one noise level and inputs as they are: the model that sparse peers have."""


class Method(Fitted, Protocol):
    """A method after its fit."""

    @property
    def num_steps(self) -> int:
        """Steps or evaluations taken."""

    @property
    def noise(self) -> float:
        """Learned noise variance."""


class FittedGP(NamedTuple):
    """A model of cvgp in the units of the data."""

    gp: ScaledGP
    num_steps: int

    @property
    def noise(self) -> float:
        """Learned noise variance."""
        return float(self.gp.noise_variance[0])

    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """Mean and variance."""
        mean, f_var = self.gp.mean_and_variance(x)
        return Prediction(mean[:, 0], f_var[:, 0], self.noise)


class Beginning(NamedTuple):
    """A model that is yet to be trained, and the data in its units."""

    model: CVGP
    sources: Sources
    settings: Settings


def begin(
    x: Array,
    y: Array,
    watch: Watch,
    *,
    kernel: str,
    size: int,
    seed: int,
    init: InitName = "kmeans",
    beta: BetaTransform = "log",
    **settings: Any,
) -> Beginning:
    """The start of the estimator's fit with `random_state=seed`: the same steps with the same random numbers."""
    rng = np.random.default_rng(check_random_state(seed).randint(2**31))
    chosen = Settings(seed=int(rng.integers(2**31)), **settings)
    rows = Rows(x, y[:, None], None, None)
    units = partial(model_units, standardize=True, kernel=kernel, mean="zero", ard=True)
    described = partial(describe, target="identity", look_for_outliers=False, seed=chosen.seed, watch=watch)
    options: dict[str, Any] = {"units": units, "choose_warp": lambda rows: NO_WARP, "device": "auto", "group": ALONE}
    sources = array_sources(rows, chosen, rng, describe=described, **options)
    spread = sources.spread
    prior = starting_kernel(kernel, x.shape[1], ard=True, spread=spread)
    model = begin_model(
        sources.train, prior, ZeroMean(), rng, watch, size=size, init=init, beta_transform=beta, spread=spread
    )
    return Beginning(model, sources, chosen)


def start_of_peers(model: CVGP) -> dict[str, Array]:
    """What a model begins with, as GPBoost takes it."""
    return {
        "inducing": model.X_c.detach().numpy(),
        "lengthscales": model.kernel.base_kernel.lengthscale.detach().numpy().reshape(-1),
        "outputscale": model.kernel.outputscale.detach().numpy(),
        "noise": model.noise.detach().numpy(),
    }


def plain_start(x: Array, size: int, seed: int) -> dict[str, Array]:
    """Where users of GPs commonly begin with standardised data: k-means centres and broad lengthscales."""
    D = x.shape[1]
    centres = MiniBatchKMeans(min(size, len(x) // 2), n_init=3, random_state=seed).fit(x).cluster_centers_
    return {
        "inducing": centres,
        "lengthscales": np.full(D, D**0.5),
        "outputscale": np.array(1.0),
        "noise": np.array(0.1),
    }


def estimator(size: int, seed: int, **parameters: Any) -> Callable[[Array, Array], FittedGP]:
    """`CVGPRegressor` with a fixed coreset size, and otherwise the model that its peers have."""

    def fit(x: Array, y: Array) -> FittedGP:
        model = CVGPRegressor(size, random_state=seed, **SAME_AS_PEERS, **parameters).fit(x, y)
        return FittedGP(model.gp_, model.n_iter_)

    return fit


def through_layers(
    size: int, seed: int, *, max_time: float | None = None, clock: Clock = time.perf_counter, **choices: Any
) -> Callable[[Array, Array], FittedGP]:
    """What the estimator does, with a clock of its own and whatever else `begin` takes."""

    def fit(x: Array, y: Array) -> FittedGP:
        watch = Watch(max_time, clock=clock)
        first = begin(x, y, watch, size=size, seed=seed, max_time=max_time, **choices)
        report = fit_model(first.model, first.sources.train, first.settings, watch)
        return FittedGP(ScaledGP(report.model, first.sources.scaling), report.result.num_iter)

    return fit


def measure(fit: Callable[[Array, Array], Method], split: Split, clock: Clock = time.perf_counter) -> Outcome:
    """Fit on the training rows, with everything that takes counted, and score the others."""
    start = clock()
    fitted = fit(split.x, split.y)
    seconds = clock() - start
    y = split.y_test
    constant = mean_log_density(y, np.zeros_like(y), np.ones_like(y))
    own = {"constant_log_likelihood": constant, "seconds": seconds, "iterations": float(fitted.num_steps)}
    return Outcome(score(fitted, split.x_test, y) | own | {"noise": fitted.noise})
