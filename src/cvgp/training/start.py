"""Where a fit starts: the kernel, the noise, and the places of the pseudo-points.

Local optima are real: the same model ends far apart by the lengthscale it starts from. So a few lengthscales are tried
by a short fit of a small coreset on a thousand rows, and the best is kept by the bound.
"""

from copy import deepcopy
from typing import Literal, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean, ZeroMean

from cvgp.coreset import Coreset
from cvgp.data.arrays import MemorySource
from cvgp.data.source import DataSource
from cvgp.errors import FactorisationError, InvalidInputError, InvalidTypeError
from cvgp.gp.kernels import make_kernel
from cvgp.gp.likelihoods import gaussian_likelihood
from cvgp.gp.model import CVGP
from cvgp.gp.process import prior_mean
from cvgp.objectives.full_batch import TitsiasObjective, titsias_value
from cvgp.parallel.group import Group
from cvgp.training.initialise import InitName, initial_coreset, rows_to_see
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.monitor import Watch
from cvgp.training.plan import choose_size, may_be_exact

__all__ = ["DEFAULT_KERNEL", "Start", "begin_model", "raise_noise", "search_start", "starting_kernel", "starting_mean"]

DEFAULT_KERNEL = "matern32"
START_FACTORS = (0.25, 1.0, 4.0)
"""Multiples of the typical lengthscale that are tried."""

START_NOISE = 0.1
LEAST_START_NOISE = 1e-6
"""A start at the noise floor itself could not learn a larger noise: its logarithm has no slope there."""
NOISE_LADDER = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
SUBSET_ROWS = 1000
SUBSET_CORESET = 64
EVALUATIONS = 25


def starting_kernel(kernel: str | Kernel | None, num_dims: int, *, ard: bool) -> Kernel:
    """A kernel by name at a typical lengthscale, or a copy of the given one; float64."""
    if isinstance(kernel, Kernel):
        return deepcopy(kernel).double()
    if kernel is not None and not isinstance(kernel, str):
        raise InvalidTypeError(f"kernel must be a name, a GPyTorch kernel or None; got {type(kernel).__name__}.")
    made = make_kernel(kernel or DEFAULT_KERNEL, num_dims, ard=ard)
    for part in made.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = typical_lengthscale(num_dims)
    return made


def starting_mean(mean: str | Mean) -> Mean:
    """A mean by name, or a copy of the given one; float64."""
    if isinstance(mean, Mean):
        return deepcopy(mean).double()
    if mean not in ("zero", "constant"):
        raise InvalidInputError(f"mean must be 'zero', 'constant' or a GPyTorch mean; got {mean!r}.")
    return ConstantMean().double() if mean == "constant" else ZeroMean()


def begin_model(
    source: DataSource,
    kernel: Kernel,
    mean: Mean,
    rng: np.random.Generator,
    watch: Watch,
    *,
    size: int | None,
    init: InitName | Coreset = "kmeans",
    beta_transform: Literal["log", "softplus"] = "log",
    exact_if_few: bool = False,
) -> CVGP:
    """Search a start for kernel and noise, choose the size of the coreset if it is None, and place its points.

    A coreset that is given as `init` is in the units of the source. With `exact_if_few`, a size that is left open is
    that of the data where they are few enough. In a group every process makes the same start, and takes the first one's
    numbers in the end, should theirs differ in the last digits.
    """
    start = search_start(kernel, mean, source, rng, watch)
    if isinstance(init, Coreset):
        coreset = init
    else:
        if size is None and exact_if_few and init == "kmeans" and may_be_exact(source.num_rows, watch.max_time):
            size = source.num_rows
        elif size is None:
            size = choose_size(start.kernel, start.noise, source, rng, watch.max_time)
        coreset = _first_coreset(source.group, _place_coreset(init, source, size, start.kernel, rng))
    likelihood = gaussian_likelihood(start.noise)
    model = CVGP(coreset, start.kernel, mean=start.mean, likelihood=likelihood, beta_transform=beta_transform)
    model.to(source.device)
    raise_noise(model, source, rng)
    if source.has_known_noise:
        # The weights of a first coreset count rows, and a row's precision is that of its total noise.
        w = model.beta.detach() / source.harmonic_noise(model.noise.item())
        model.set_sites(model.y_c - prior_mean(model.mean, model.X_c, model.y_c), w)
    _adopt_first(source.group, model)
    return model


def typical_lengthscale(num_dims: int) -> float:
    """The root mean square distance of two standardised inputs in one dimension, grown with the dimension."""
    return float(np.sqrt(num_dims))


class Start(NamedTuple):
    """Kernel, mean and noise to begin with."""

    kernel: Kernel
    mean: Mean
    noise: float


@torch.enable_grad()  # also for a caller that has switched gradients off
def search_start(kernel: Kernel, mean: Mean, source: DataSource, rng: np.random.Generator, watch: Watch) -> Start:
    """The kernel, mean and noise of the best of a few short fits on a subset; the arguments stay as they are."""
    rows = MemorySource(*source.sample(SUBSET_ROWS, rng))
    data = rows.data
    x, y = data.x.cpu().numpy(), data.y.cpu().numpy()
    weight = None if data.sample_weight is None else data.sample_weight.cpu().numpy()
    coreset = initial_coreset("kmeans", x, y, min(SUBSET_CORESET, max(len(x) // 2, 1)), rng, sample_weight=weight)
    best_value, best = np.inf, Start(deepcopy(kernel), deepcopy(mean), START_NOISE)
    for factor in START_FACTORS if _lengthscales(kernel) else (1.0,):
        trial = CVGP(coreset, deepcopy(kernel), mean=deepcopy(mean), likelihood=gaussian_likelihood(START_NOISE))
        _multiply_lengthscales(trial.kernel, factor)
        value = _short_fit(trial, rows, watch, factor)
        if value < best_value:
            best_value, best = value, Start(trial.kernel, trial.mean, max(trial.noise.item(), LEAST_START_NOISE))
    return best


@torch.no_grad()
def raise_noise(model: CVGP, source: DataSource, rng: np.random.Generator) -> None:
    """Raise the model's noise to the rung of a ladder that suits its coreset best, by the bound on a subset.

    The noise that the search learned is what its own points, already trained, left unexplained. A smaller coreset, or
    one that has yet to move, leaves more; under a noise far below that, a solver's cheapest way up is to give up the
    function and predict a constant.
    """
    rows = MemorySource(*source.sample(SUBSET_ROWS, rng))

    def bound_at(noise: float) -> float:
        model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
        return titsias_value(model, rows.chunks(SUBSET_ROWS))

    start = model.noise.item()
    best = max([start, *(noise for noise in NOISE_LADDER if noise > start)], key=bound_at)
    model.likelihood.noise = torch.tensor(best, dtype=torch.float64)


def _short_fit(model: CVGP, rows: MemorySource, watch: Watch, factor: float) -> float:
    """The negative bound per row that a few evaluations reach."""
    objective = TitsiasObjective(model, lambda: rows.chunks(SUBSET_ROWS), rows.num_rows)
    phase = f"start x{factor:g}"
    try:
        return maximise_by_lbfgs(
            objective, rows.total_weight, watch, max_evaluations=EVALUATIONS, tol=0.0, phase=phase
        ).value
    except (FactorisationError, FloatingPointError):
        # A start that cannot even be evaluated loses to the others.
        return np.inf


def _lengthscales(kernel: Kernel) -> list[Kernel]:
    """The kernels whose lengthscale is to be learned; one that is frozen is not to be tried at other values."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    return [part for part in parts if part.raw_lengthscale.requires_grad]


@torch.no_grad()
def _multiply_lengthscales(kernel: Kernel, factor: float) -> None:
    for part in _lengthscales(kernel):
        part.lengthscale = part.lengthscale * factor


@torch.no_grad()
def _adopt_first(group: Group, model: CVGP) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    for tensor, value in zip(tensors, group.first(tensors), strict=True):
        tensor.copy_(value)


def _first_coreset(group: Group, coreset: Coreset) -> Coreset:
    (size,) = group.first([torch.tensor(float(len(coreset)))])
    # Clusters may be lost: to take the first process's points, the others need arrays of their number.
    arrays = [np.resize(a, (int(size), *a.shape[1:])) for a in (coreset.X, coreset.y, coreset.beta)]
    x, y, beta = group.first([torch.as_tensor(a) for a in arrays])
    return Coreset(x, y, beta)


def _place_coreset(
    method: InitName, source: DataSource, size: int, kernel: Kernel, rng: np.random.Generator
) -> Coreset:
    rows = source.sample(size if method == "random" else rows_to_see(size), rng)
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().numpy()
    x, y = rows.x.cpu().numpy(), rows.y.cpu().numpy()
    if method == "kmeans" and size >= source.num_rows:
        return Coreset(x, y, np.ones(len(x)) if weight is None else weight)  # nothing to summarise
    return initial_coreset(
        method, x, y, size, rng, sample_weight=weight, total_weight=source.total_weight, kernel=kernel
    )
