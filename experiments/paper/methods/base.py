"""What the compared systems share: the recipe, the start, the interface, and the training loops."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from numpy.typing import NDArray
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.errors import DivergenceError, FactorizationError, InvalidInputError
from cvgp.fitting.size import initial_coreset
from cvgp.optim import AdamState, NoImprovement, Progress, Status, constant, minimize_adam, minimize_lbfgs, one_cycle
from experiments.scores import Prediction

Array = NDArray[np.float64]
OnStep = Callable[[int], None]
"""Called with the number of steps (or evaluations) so far, 0 before the first."""
Score = Callable[[], float]

CHUNK_ROWS = 2048
PLAIN_NOISE = math.log(2.0)
"""GPyTorch's softplus at zero."""
TOLERANCE = 1e-6
"""Nats per row over ten iterations, below which L-BFGS has converged."""


@dataclass(frozen=True)
class Recipe:
    """Steps, schedule and precision.

    Parameters
    ----------
    steps, epochs
        Length of a stochastic run; one of the two. A full-batch run by Adam takes one step per epoch.
    batch_size, learning_rate, schedule
        Of Adam; ``one_cycle`` warms up and comes down to a thousandth of the rate, ``constant`` is the paper's.
    dtype
        Of the minibatches, and of everything in the GPyTorch systems. The M x M algebra of a coreset is float64.
    patience
        Epochs without a better validation RMSE after which to stop and return to the best; None trains to the end.
    full_batch, evaluations
        How ExactGP and SparseGP, which see all data at once, are trained: L-BFGS with a limit on evaluations, or Adam.
    """

    steps: int | None = 1500
    epochs: int | None = None
    batch_size: int = 512
    learning_rate: float = 0.03
    schedule: Literal["one_cycle", "constant"] = "one_cycle"
    dtype: Literal["float32", "float64"] = "float32"
    patience: int | None = None
    full_batch: Literal["lbfgs", "adam"] = "lbfgs"
    evaluations: int = 200

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.epochs is None):
            raise InvalidInputError(f"Give either steps or epochs; got {self.steps} and {self.epochs}.")

    @property
    def torch_dtype(self) -> torch.dtype:
        """The precision as torch names it."""
        return torch.float32 if self.dtype == "float32" else torch.float64

    def steps_per_epoch(self, num_rows: int) -> int:
        """Minibatches in one pass; a remainder that fills none sits the epoch out."""
        return max(num_rows // self.batch_size, 1)

    def num_steps(self, num_rows: int) -> int:
        """Length of a stochastic run."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None, "checked at the start"
        return self.epochs * self.steps_per_epoch(num_rows)

    def num_full_steps(self) -> int:
        """Length of a full-batch run by Adam, where each step is an epoch."""
        length = self.steps if self.epochs is None else self.epochs
        assert length is not None, "checked at the start"
        return length


class Start(NamedTuple):
    """A kernel, a noise variance and a coreset, of which inducing-point methods use the inputs."""

    kernel: Kernel
    noise: float
    coreset: Coreset

    def fresh_kernel(self) -> Kernel:
        """A copy of the kernel that may be trained."""
        return deepcopy(self.kernel)

    def fresh_likelihood(self) -> GaussianLikelihood:
        """GPyTorch's own likelihood, with its softplus and its floor of 1e-4."""
        likelihood = GaussianLikelihood().double()
        likelihood.noise = torch.tensor(self.noise, dtype=torch.float64)  # GPyTorch would round a float to float32
        return likelihood


def plain_start(x: Array, y: Array, size: int, *, kernel: Kernel | None = None, seed: int = 0) -> Start:
    """The start of every system: k-means, and kernel and noise as GPyTorch has them, ln 2 each.

    The paper gives no other initial values, and trains through softplus, as GPyTorch does by default.
    """
    coreset = initial_coreset("kmeans", x, y, size, np.random.default_rng(seed))
    return Start(plain_kernel() if kernel is None else kernel, PLAIN_NOISE, coreset)


def plain_kernel() -> Kernel:
    """The paper's RBF kernel with one lengthscale."""
    return ScaleKernel(RBFKernel()).double()


def random_start(start: Start, x: Array, y: Array, seed: int) -> Start:
    """The same kernel and noise with white noise in place of the centers and their outputs (the paper's RandomCVGP)."""
    rng = np.random.default_rng([seed, 1])
    return start._replace(coreset=initial_coreset("random", x, y, len(start.coreset), rng))


class Inducing(NamedTuple):
    """What a posterior is made of: inputs, and the outputs and weights where there are any."""

    X: Array  # [M, D]
    y: Array  # [M]: pseudo-outputs of a coreset; E[f] at the inputs of other systems
    weight: Array | None  # [M], of a coreset


class Baseline(ABC):
    """A Gaussian process regression on standardized data with a zero prior mean.

    Parameters
    ----------
    size
        Number of inducing or pseudo-points, M.
    kernel
        A GPyTorch kernel; None is the paper's, an RBF kernel with one lengthscale.
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
        kernel: Kernel | None = None,
        recipe: Recipe | None = None,
        seed: int = 0,
        learn_prior: bool = True,
    ) -> None:
        self.size = size
        self.kernel = kernel
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
        """Learn from inputs [N, D] and targets [N], both standardized.

        `validation` inputs and targets are needed where the recipe stops early by them. `start` replaces the plain one.
        """
        _check(x, y)
        if self.recipe.patience is not None and validation is None:
            raise InvalidInputError("The recipe stops early by a validation score; pass validation=(x, y).")
        if start is None:
            start = plain_start(x, y, self.size, kernel=self.kernel, seed=self.seed)
        self._source = MemorySource(torch.as_tensor(x), torch.as_tensor(y))
        self._validation = None if self.recipe.patience is None else validation
        self._on_step: OnStep = on_step or (lambda step: None)
        with torch.enable_grad():
            self._learn(self._source, start)
        return self

    def _learn(self, source: MemorySource, start: Start) -> None:
        """Train in the recipe's precision, or in float64 where that fails."""
        try:
            self._learn_in(self.recipe.torch_dtype, source, start)
        except (DivergenceError, FactorizationError):
            if self.recipe.torch_dtype is torch.float64:
                raise
            self._learn_in(torch.float64, source, start)

    @abstractmethod
    def _learn_in(self, dtype: torch.dtype, source: MemorySource, start: Start) -> None:
        """Build the model from its start and train it in a precision."""

    @abstractmethod
    def _build(self, start: Start, source: MemorySource, dtype: torch.dtype) -> None:
        """Make the model at its start."""

    @abstractmethod
    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """The posterior predictive at inputs [n, D], with the joint covariance if `joint`."""

    @abstractmethod
    def predict_mean(self, x: Array) -> Array:
        """The posterior mean at inputs [n, D] in the precision of the fit; early stopping asks for it every epoch."""

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
        return float(np.sqrt(np.mean((self.predict_mean(x) - y) ** 2)))


def _check(x: Array, y: Array) -> None:
    if x.ndim != 2 or y.shape != (len(x),) or len(x) == 0:
        raise InvalidInputError(f"Expected x of [N, D] and y of [N], N >= 1; got {x.shape} and {y.shape}.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidInputError("x and y must be finite; remove rows that hold NaN or infinite values.")


class MinibatchBaseline(Baseline):
    """A system whose objective is estimated from a batch."""

    def _learn_in(self, dtype: torch.dtype, source: MemorySource, start: Start) -> None:
        self.dtype = dtype
        self._build(start, source, dtype)
        rows = source.to(dtype)
        batch_size = self.recipe.batch_size

        def loss_and_backward(step: int) -> float:
            loss = self._loss(rows.minibatch(step, batch_size, self.seed), source.num_rows)
            loss.backward()
            return loss.item()

        self.num_steps = train_minibatches(
            self.parameters(),
            loss_and_backward,
            self.recipe,
            max_steps=self.recipe.num_steps(source.num_rows),
            check_every=self.recipe.steps_per_epoch(source.num_rows),
            validation_rmse=None if self._validation is None else self.validation_rmse,
            on_step=self._on_step,
        )
        self._check_precision()

    @abstractmethod
    def _loss(self, batch: Rows[Tensor], num_rows: int) -> Tensor:
        """The negative objective per row, estimated from a batch of `num_rows` rows."""

    def _check_precision(self) -> None:
        """Raise a DivergenceError where what was learned in float32 cannot be trusted."""


def train_minibatches(
    parameters: Sequence[Tensor],
    loss_and_backward: Callable[[int], float],
    recipe: Recipe,
    *,
    max_steps: int,
    check_every: int,
    validation_rmse: Score | None,
    on_step: OnStep,
) -> int:
    """Adam as the recipe says; returns the steps taken. With a validation score, the best parameters are kept."""
    schedule = one_cycle if recipe.schedule == "one_cycle" else constant
    keeper = None if validation_rmse is None else _Best(parameters, validation_rmse, recipe.patience or max_steps)

    def monitor(progress: Progress) -> Status | None:
        on_step(progress.iteration)
        if keeper is not None and progress.iteration % check_every == 0 and keeper.check():
            return Status.EARLY_STOPPED
        return None

    on_step(0)
    state = AdamState(parameters, recipe.learning_rate)
    result = minimize_adam(state, loss_and_backward, max_steps=max_steps, schedule=schedule, monitor=monitor)
    if keeper is not None:
        keeper.check()
        keeper.restore()
    return result.num_iter


def train_full(
    parameters: Sequence[Tensor],
    value_and_backward: Callable[[float], float],
    recipe: Recipe,
    *,
    num_rows: int,
    validation_rmse: Score | None,
    on_step: OnStep,
) -> int:
    """Maximize an objective, a function of the scale of its value and gradient; return the number of evaluations."""

    def loss_and_backward(step: int = 0) -> float:
        return value_and_backward(-1.0 / num_rows)

    if recipe.full_batch == "lbfgs":

        def monitor(progress: Progress) -> None:
            on_step(progress.iteration)

        on_step(0)
        return minimize_lbfgs(
            parameters, loss_and_backward, max_evaluations=recipe.evaluations, tol=TOLERANCE, monitor=monitor
        ).num_iter
    return train_minibatches(
        parameters,
        loss_and_backward,
        recipe,
        max_steps=recipe.num_full_steps(),
        check_every=1,
        validation_rmse=validation_rmse,
        on_step=on_step,
    )


class _Best:
    """The parameters with the lowest validation RMSE so far."""

    def __init__(self, parameters: Sequence[Tensor], score: Score, patience: int) -> None:
        self.parameters = parameters
        self.score = score
        self.patience = NoImprovement(patience)
        self.best = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def check(self) -> bool:
        """Score once more; whether patience has run out."""
        if self.patience.update(self.score()):
            self.best = [p.detach().clone() for p in self.parameters]
        return self.patience.exhausted

    @torch.no_grad()
    def restore(self) -> None:
        for p, value in zip(self.parameters, self.best, strict=True):
            p.copy_(value)
