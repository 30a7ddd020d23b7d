"""What every compared system can do."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.arrays import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.paper.baselines.recipe import Recipe
from cvgp.paper.baselines.shared_start import Start, common_start

Array = NDArray[np.float64]
OnStep = Callable[[int], None]
"""Told the number of steps (or evaluations) taken so far, 0 before the first; the system may be asked meanwhile."""

CHUNK_ROWS = 2048


class Prediction(NamedTuple):
    """The posterior predictive at some inputs."""

    mean: Array  # [n]
    f_var: Array  # [n]
    noise: float
    f_covariance: Array | None = None  # [n, n], where it was asked for

    @property
    def f_sd(self) -> Array:
        """Standard deviation of the function."""
        return np.sqrt(self.f_var)

    @property
    def y_sd(self) -> Array:
        """Standard deviation of a new observation."""
        return np.sqrt(self.f_var + self.noise)


class Inducing(NamedTuple):
    """What a posterior is made of: inputs, and the outputs and weights where there are any."""

    X: Array  # [M, D]
    y: Array  # [M]: pseudo-outputs of a coreset; E[f] at the inputs of other systems
    weight: Array | None  # [M], of a coreset


class Baseline(ABC):
    """A Gaussian process regression on standardised data with a zero prior mean.

    Parameters
    ----------
    size
        Number of inducing or pseudo-points, M.
    kernel, ard
        A kernel name or a GPyTorch kernel, and whether a named one has one lengthscale per dimension.
    recipe
        How it is trained.
    seed
        Of the start and the minibatches.
    learn_prior
        Whether kernel and noise are learned, or stay as they start.
    """

    name: ClassVar[str]
    stochastic: ClassVar[bool] = True
    """Whether it learns from minibatches."""
    is_bounded: ClassVar[bool] = True
    """Whether `bound` is a lower bound on log p(y)."""

    def __init__(
        self,
        size: int = 100,
        *,
        kernel: str | Kernel = "rbf",
        ard: bool = False,
        recipe: Recipe | None = None,
        seed: int = 0,
        learn_prior: bool = True,
    ) -> None:
        self.size = size
        self.kernel = kernel
        self.ard = ard
        self.recipe = Recipe() if recipe is None else recipe
        self.seed = seed
        self.learn_prior = learn_prior
        self.num_steps = 0
        self.dtype = self.recipe.torch_dtype
        """Precision of the fit, which is repeated in float64 where float32 breaks down."""
        self._source: MemorySource | None = None

    def fit(
        self,
        x: Array,
        y: Array,
        *,
        validation: tuple[Array, Array] | None = None,
        start: Start | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Learn from inputs [N, D] and targets [N], both standardised.

        `validation` inputs and targets are needed where the recipe stops early by them. `start` replaces the search
        for one, so that several systems can share it.
        """
        _check(x, y)
        if self.recipe.patience is not None and validation is None:
            raise InvalidInputError("The recipe stops early by a validation score; pass validation=(x, y).")
        if start is None:
            start = common_start(x, y, self.size, kernel=self.kernel, ard=self.ard, seed=self.seed)
        self._source = MemorySource(torch.as_tensor(x), torch.as_tensor(y))
        self._validation = None if self.recipe.patience is None else validation
        self._on_step: OnStep = on_step or (lambda step: None)
        with torch.enable_grad():
            self._learn(self._source, start)
        return self

    @abstractmethod
    def _learn(self, source: MemorySource, start: Start) -> None:
        """Build the model from its start and train it."""

    @abstractmethod
    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """The posterior predictive at inputs [n, D], with the joint covariance if `joint`."""

    @abstractmethod
    def bound(self) -> float:
        """The objective over all training data, in total nats."""

    @abstractmethod
    def inducing(self) -> Inducing:
        """What the posterior is made of."""

    @abstractmethod
    def kl(self) -> float:
        """KL of the posterior from the prior, at the inducing inputs, in nats."""

    @property
    @abstractmethod
    def noise(self) -> float:
        """Noise variance."""

    @property
    @abstractmethod
    def prior_kernel(self) -> Kernel:
        """The kernel as learned."""

    @abstractmethod
    def parameters(self) -> list[Tensor]:
        """What is learned."""

    @property
    def source(self) -> MemorySource:
        """The training data."""
        if self._source is None:
            raise InvalidInputError(f"{self.name} has not been fitted yet; call fit(x, y) first.")
        return self._source

    def validation_rmse(self) -> float:
        """The score that early stopping watches."""
        assert self._validation is not None, "checked by fit"
        x, y = self._validation
        return float(np.sqrt(np.mean((self.predict(x).mean - y) ** 2)))


def _check(x: Array, y: Array) -> None:
    if x.ndim != 2 or y.shape != (len(x),) or len(x) == 0:
        raise InvalidInputError(f"Expected x of [N, D] and y of [N], N >= 1; got {x.shape} and {y.shape}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidInputError("x and y must be finite; remove rows that hold NaN or infinite values.")
