"""Kernel and noise to start from, judged by rows that no candidate has seen.

A bound with a few pseudo-points in many dimensions explains almost no prior variance. Its cheapest way up is then to
explain nothing: all noise, no function. Every later stage inherits that. The exact likelihood of some rows has no such
escape. But what it learns need not suit a small coreset: of a function without noise it makes a process so smooth and
so large that few points cannot carry it. So both are tried: kernels that the exact likelihood learned, and kernels that
a short fit of a small coreset learned. The density of unseen rows decides (docs: mathematics, starts).
"""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.errors import FactorisationError
from cvgp.gp.kernels import NOISE_FLOOR, gaussian_likelihood
from cvgp.gp.model import CVGP
from cvgp.host import kept_warnings
from cvgp.objectives.exact import ExactObjective
from cvgp.objectives.full_batch import TitsiasObjective, solve_coreset, titsias_value
from cvgp.training.initialise import initial_coreset
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.monitor import Watch
from cvgp.training.small_data import distinct_rows, take_observations

__all__ = [
    "START_FACTORS",
    "Start",
    "_multiply_lengthscales",
    "constant_density",
    "mean_density",
    "raise_noise",
    "search_start",
]

START_FACTORS = (1.0, 0.25, 4.0)
"""Multiples of the typical lengthscale that are tried."""
START_NOISE = 0.1
"""Of the variance of y."""
LEAST_START_NOISE = 100.0
"""In units of the noise floor. At the floor no larger noise can be learned: its logarithm has no slope there."""
LEARNING_ROWS, EXACT_ROWS, JUDGING_ROWS = 1000, 500, 500
EVALUATIONS = 40
CORESET_POINTS, CORESET_EVALUATIONS = 64, 25
NOISE_LADDER = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)
"""Shares of the variance of y; all of it, which is to explain nothing, is not among them."""
NO_VARIANCE = 1e-20
SHARE_OF_TIME = 0.2
"""Of a time limit, what the search may take: a start whose turn would come later is not tried."""


class Start(NamedTuple):
    """Kernel, mean and noise to begin with."""

    kernel: Kernel
    mean: Mean
    noise: float
    density: float
    """Mean log density of rows that the start has not seen, in nats per row."""
    noise_floor: float = NOISE_FLOOR


@torch.enable_grad()  # also for a caller that has switched gradients off
def search_start(
    kernel: Kernel,
    mean: Mean,
    source: DataSource,
    rng: np.random.Generator,
    watch: Watch,
    *,
    size: int | None = CORESET_POINTS,
    noise_floor: float = NOISE_FLOOR,
) -> Start:
    """The kernel, mean and noise with the best density of unseen rows; the arguments stay as they are.

    Parameters
    ----------
    kernel, mean
        The prior. It is tried from several lengthscales, unless its own are frozen.
    source
        Where rows are sampled from: at most 1000 to learn from and 500 to judge by.
    rng
        Draws the rows.
    watch
        Records the searches.
    size
        How many pseudo-points the start is for; None if every row is to be one.
    noise_floor
        Smallest noise variance, in the units of the source.
    """
    learning, judging = _two_parts(source.sample(LEARNING_ROWS + JUDGING_ROWS, rng), rng)
    noise = max(START_NOISE * _variance(learning), LEAST_START_NOISE * noise_floor)
    first = Start(kernel, mean, noise, -math.inf, noise_floor)
    factors = START_FACTORS if _lengthscales(kernel) else (1.0,)
    by_rows = _best_of(
        (partial(_learn_exactly, _scaled(first, factor), learning, judging, watch, factor) for factor in factors), watch
    )
    if size is None or by_rows is None:
        return by_rows or _scaled(first, 1.0)

    def place(start: Start) -> CVGP:
        return _with_coreset(start, learning, min(size, CORESET_POINTS), rng)

    def judge(trial: CVGP) -> Start:
        return _judge(trial, learning, judging, noise_floor)

    def learn(start: Start, phase: str) -> Start:
        return judge(_learn_with_coreset(place(start), learning, watch, phase))

    attempts = [lambda: judge(place(by_rows)), lambda: learn(by_rows, "start coreset")]
    attempts += [partial(learn, _scaled(first, factor), f"start coreset x{factor:g}") for factor in factors]
    return _best_of(attempts, watch) or by_rows


def _best_of(attempts: Iterable[Callable[[], Start]], watch: Watch) -> Start | None:
    """The start with the best density; after the first, none is tried for which there is no time."""
    found: list[Start] = []
    for attempt in attempts:
        if found and (watch.stopped or watch.time_used() >= SHARE_OF_TIME):
            break
        # A start that cannot be evaluated loses to the others; what it had to say of its factorisations is not kept.
        with kept_warnings(), suppress(FactorisationError, FloatingPointError):
            found.append(attempt())
    return max(found, key=lambda start: start.density, default=None)


def _learn_exactly(start: Start, learning: Rows[Tensor], judging: Rows[Tensor], watch: Watch, factor: float) -> Start:
    """What the exact likelihood of some rows learns, and its density of others."""
    rows = learning.take(slice(EXACT_ROWS))
    trial = _model(Coreset(rows.x, rows.y, np.ones(len(rows.x))), start)
    objective = ExactObjective(trial, distinct_rows(rows))
    phase = f"start x{factor:g}"
    maximise_by_lbfgs(objective, len(rows.x), watch, max_evaluations=EVALUATIONS, tol=0.0, phase=phase)
    take_observations(trial, rows)
    return _start_of(trial, mean_density(trial, judging), start.noise_floor)


def _learn_with_coreset(trial: CVGP, learning: Rows[Tensor], watch: Watch, phase: str) -> CVGP:
    """The trial after a short fit."""
    objective = TitsiasObjective(trial, lambda: [learning], len(learning.x))
    maximise_by_lbfgs(objective, len(learning.x), watch, max_evaluations=CORESET_EVALUATIONS, tol=0.0, phase=phase)
    return trial


def _judge(trial: CVGP, learning: Rows[Tensor], judging: Rows[Tensor], noise_floor: float) -> Start:
    """The density of unseen rows under the best coreset at the trial's pseudo-inputs."""
    solve_coreset(trial, [learning])
    return _start_of(trial, mean_density(trial, judging), noise_floor)


def _with_coreset(start: Start, learning: Rows[Tensor], size: int, rng: np.random.Generator) -> CVGP:
    """A model of a few points among the rows, with a noise that suits them."""
    x, y = learning.x.cpu().numpy(), learning.y.cpu().numpy()
    weight = None if learning.sample_weight is None else learning.sample_weight.cpu().numpy()
    points = min(size, max(len(x) // 2, 1))
    trial = _model(initial_coreset("kmeans", x, y, points, rng, sample_weight=weight, kernel=start.kernel), start)
    trial.to(learning.x.device)
    raise_noise(trial, learning)
    return trial


@torch.no_grad()
def raise_noise(model: CVGP, rows: Rows[Tensor]) -> None:
    """Raise the model's noise to the rung of a ladder that suits its coreset best, by the bound on some rows.

    A coreset that has yet to move explains less than an exact GP does. Under a noise far below what is left
    unexplained, a solver's cheapest way up is to give up the function and predict a constant.
    """
    variance = _variance(rows)

    def bound_at(noise: float) -> float:
        model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
        return titsias_value(model, [rows])

    start = model.noise.item()
    best = max([start, *(share * variance for share in NOISE_LADDER if share * variance > start)], key=bound_at)
    model.likelihood.noise = torch.tensor(best, dtype=torch.float64)


def _model(coreset: Coreset, start: Start) -> CVGP:
    likelihood = gaussian_likelihood(start.noise, start.noise_floor)
    return CVGP(coreset, deepcopy(start.kernel), mean=deepcopy(start.mean), likelihood=likelihood)


def _start_of(model: CVGP, density: float, noise_floor: float) -> Start:
    noise = max(model.noise.item(), LEAST_START_NOISE * noise_floor)
    return Start(model.kernel, model.mean, noise, density, noise_floor)


def _scaled(start: Start, factor: float) -> Start:
    """The same with lengthscales longer or shorter by a factor, as a copy."""
    kernel = deepcopy(start.kernel)
    _multiply_lengthscales(kernel, factor)
    return start._replace(kernel=kernel, mean=deepcopy(start.mean))


def _two_parts(rows: Rows[Tensor], rng: np.random.Generator) -> tuple[Rows[Tensor], Rows[Tensor]]:
    """Rows to learn from and rows to judge by; a single row serves as both."""
    count = len(rows.x)
    order = torch.as_tensor(rng.permutation(count), device=rows.x.device)
    half = min(LEARNING_ROWS, (count + 1) // 2 if count < LEARNING_ROWS + JUDGING_ROWS else LEARNING_ROWS)
    return rows.take(order[:half]), rows.take(order[half:] if count > 1 else order)


@torch.no_grad()
def mean_density(model: CVGP, rows: Rows[Tensor]) -> float:
    """Mean over rows and outputs of log p(y | x), in nats; rows count by their weights."""
    prediction = model.process()(rows.x)
    noise = model.total_noise(rows.noise_variance)
    variance = prediction.variance + noise  # [n], shared by all outputs
    error = (rows.y - prediction.mean).reshape(len(rows.y), -1)
    return _weighted_mean(_log_normal(error, variance[:, None]), rows)


def constant_density(rows: Rows[Tensor]) -> float:
    """What :func:`mean_density` would be of the best constant with the best constant noise."""
    variance = _variance(rows)
    # Of outputs that are constant no model is asked to learn less noise than there may be.
    return -0.5 * math.log(2.0 * math.pi * math.e * (variance if variance > NO_VARIANCE else NOISE_FLOOR))


def _log_normal(error: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * ((2.0 * math.pi * variance).log() + error.square() / variance)


def _variance(rows: Rows[Tensor]) -> float:
    centre = _weighted_mean(rows.y, rows)
    return _weighted_mean((rows.y - centre).square(), rows)


def _weighted_mean(values: Tensor, rows: Rows[Tensor]) -> float:
    per_row = values.reshape(len(values), -1).mean(1)
    if rows.sample_weight is None:
        return per_row.mean().item()
    return ((rows.sample_weight * per_row).sum() / rows.sample_weight.sum()).item()


def _lengthscales(kernel: Kernel) -> list[Kernel]:
    """The kernels whose lengthscale is to be learned; one that is frozen is not to be tried at other values."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    return [part for part in parts if part.raw_lengthscale.requires_grad]


@torch.no_grad()
def _multiply_lengthscales(kernel: Kernel, factor: float) -> None:
    """Make all lengthscales that are learned longer or shorter by one factor."""
    for part in _lengthscales(kernel):
        part.lengthscale = part.lengthscale * factor
