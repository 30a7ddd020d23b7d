"""Where a fit starts: the kernel, the noise, and the places of the pseudo-points."""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, PeriodicKernel, ScaleKernel
from gpytorch.means import ConstantMean, Mean, ZeroMean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.scaling import Spread
from cvgp.data.source import DataSource
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.gp.kernel_names import name_of_kernel
from cvgp.gp.kernels import NOISE_FLOOR, make_kernel, prior_mean
from cvgp.gp.model import CVGP
from cvgp.parallel.group import Group
from cvgp.training.candidates import Start
from cvgp.training.initialise import LEAST_PER_CENTRE, InitName, initial_coreset, placing_seconds, rows_to_see
from cvgp.training.kernel_search import CORESET_POINTS, raise_noise, search_start
from cvgp.training.mean_start import sensible_mean
from cvgp.training.monitor import Watch
from cvgp.training.size import CANDIDATES, SMALLEST, enough_points, exact_is_worth_it, largest_size
from cvgp.training.size_choice import choose_size, untrained_points

DEFAULT_KERNEL = "matern32"
AUTO = "auto"
AUTO_KERNELS = ("rbf", "matern52", "matern32+linear", "rbf+linear", "matern52+linear")
"""What ``auto`` tries beside the default."""
ROUGH_KERNELS = ("matern32+matern12",)
"""What is tried beside the default where every row may be a point: a part that few points could not carry."""
ROWS_TO_BE_ROUGH = 200
"""With fewer rows, a rough part cannot be told from noise."""
LADDER_ROWS, MEAN_ROWS = 1000, 500
SHARE_OF_SEARCH, SHARE_OF_PLACING = 0.2, 0.1
"""Of a time limit, what the search for a start may take, and what k-means may. A start that is being learned when its
time is up stays as it is, and no other is tried."""


def starting_kernel(kernel: str | Kernel | None, num_dims: int, *, ard: bool, spread: Spread | None = None) -> Kernel:
    """A kernel by name at a typical lengthscale, or a copy of the given one; float64.

    `spread` is that of data in which not every column has variance one. A column that is constant does not count.
    """
    if isinstance(kernel, Kernel):
        return deepcopy(kernel).double()
    if kernel is not None and not isinstance(kernel, str):
        raise InvalidTypeError(f"kernel must be a name, a GPyTorch kernel or None; got {type(kernel).__name__}.")
    made = make_kernel(DEFAULT_KERNEL if kernel in (None, AUTO) else kernel, num_dims, ard=ard)
    varying = num_dims if spread is None else max(int(np.count_nonzero(spread.x)), 1)
    for part in made.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = torch.full_like(part.lengthscale, typical_lengthscale(varying))
        elif isinstance(part, AdditiveKernel):
            _share_variance(part, varying)
    if spread is not None:
        _set_units(made, spread, ard=ard)
    return made


def alternative_kernels(
    kernel: str | Kernel | None, num_dims: int, *, ard: bool, may_be_rough: bool = False, spread: Spread | None = None
) -> list[Kernel]:
    """What may take the place of :func:`starting_kernel`: other names if it is ``auto``, a sum if it is left open.

    With `may_be_rough`, every row may be a point.
    """
    is_open = kernel is None or (isinstance(kernel, str) and kernel == AUTO)
    names = (AUTO_KERNELS if isinstance(kernel, str) else ()) + (ROUGH_KERNELS if may_be_rough else ())
    return [starting_kernel(name, num_dims, ard=ard, spread=spread) for name in names] if is_open else []


def _share_variance(kernel: AdditiveKernel, num_dims: int) -> None:
    """Give each term of a sum an equal share of a variance of one, at standardised inputs."""
    share = 1.0 / len(kernel.kernels)
    for term in kernel.kernels:
        if isinstance(term, ScaleKernel):
            term.outputscale = torch.full_like(term.outputscale, share)
        else:
            linear = [part for part in term.modules() if isinstance(part, LinearKernel)]
            for part in linear:
                part.variance = torch.full_like(part.variance, share ** (1.0 / len(linear)) / num_dims)


def starting_mean(mean: str | Mean, spread: Spread | None = None) -> Mean:
    """A mean by name, or a copy of the given one; float64. A constant begins at the level of the outputs."""
    if isinstance(mean, Mean):
        return deepcopy(mean).double()
    if mean not in ("zero", "constant"):
        raise InvalidInputError(f"mean must be 'zero', 'constant' or a GPyTorch mean; got {mean!r}.")
    if mean == "zero":
        return ZeroMean()
    level = 0.0 if spread is None else spread.y_level
    return ConstantMean().double().initialize(constant=torch.tensor(level, dtype=torch.float64))


def blank_model(
    kernels: Sequence[Kernel],
    mean: Mean,
    beta_transform: Literal["log", "softplus"],
    device: torch.device,
    coreset: Coreset,
    name: str,
    *,
    noise_is_known: bool = False,
) -> CVGP:
    """A model that has yet to learn anything, with the one of the kernels that has the name."""
    named = [kernel for kernel in kernels if name_of_kernel(kernel) == name]
    if not named:
        raise FileFormatError(f"No kernel of this fit is called {name!r}.")
    start = Start(deepcopy(named[0]), deepcopy(mean), 1.0, -math.inf, noise_is_known=noise_is_known)
    parts = {"mean": start.mean, "likelihood": start.likelihood()}
    return CVGP(coreset, start.kernel, **parts, beta_transform=beta_transform).to(device)


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
    spread: Spread | None = None,
    exact_if_few: bool = False,
    may_stay_untrained: bool = False,
    has_neighbours: bool = False,
    known_noise: float | None = None,
    alternatives: Sequence[Kernel] = (),
) -> CVGP:
    """Search a start for kernel and noise, choose the size of the coreset if it is None, and place its points.

    A coreset that is given as `init`, and a `known_noise` that is not to be learned, are in the units of the source.
    With `exact_if_few`, a size that is left open is that of the data where the exact GP is worth its time
    (:func:`wants_all_rows`). With `has_neighbours` the nearest rows may be consulted, which costs less than a large
    exact GP. With `may_stay_untrained` the size may be one that there is no time to train
    (:func:`~cvgp.training.size_choice.choose_size`): the points are then rows, and require no gradient. One of the
    alternatives may take the place of the kernel. In a group every process makes the same start, and takes the first
    one's numbers in the end, should theirs differ in the last digits.
    """
    may_be_exact = size is None and exact_if_few and init == "kmeans"
    points = len(init) if isinstance(init, Coreset) else size or CORESET_POINTS
    if any(p.requires_grad for p in mean.parameters()):
        mean = sensible_mean(mean, source.sample(MEAN_ROWS, np.random.default_rng(0)))
    floor = NOISE_FLOOR if spread is None else NOISE_FLOOR * spread.y**2

    def is_exact(by_rows: Start) -> bool:
        return may_be_exact and wants_all_rows(by_rows, source, rng, watch.max_time, has_neighbours=has_neighbours)

    options: dict[str, Any] = {"size": points, "is_exact": is_exact, "alternatives": alternatives}
    noise: dict[str, Any] = {"noise_floor": floor, "known_noise": known_noise}
    with watch.stage(SHARE_OF_SEARCH):
        start = search_start(kernel, mean, source, rng, watch, **noise, **options)
    is_trained = True
    if isinstance(init, Coreset):
        coreset = init
    else:
        if start.for_all_rows:
            size = source.num_rows
        elif size is None:
            may_stay = may_stay_untrained and init == "kmeans"
            start, size, is_trained = sized = choose_size(start, source, rng, watch, may_stay_untrained=may_stay)
        if is_trained:
            placed = _place_coreset(init, source, size, start.kernel, rng, watch)
        else:
            placed = untrained_points(sized, source, rng)
        if init == "random" and spread is not None:
            placed = _spread_out(placed, source.sample(LADDER_ROWS, rng))
        coreset = _first_coreset(source.group, placed)
    parts = {"mean": start.mean, "likelihood": start.likelihood()}
    model = CVGP(coreset, start.kernel, **parts, beta_transform=beta_transform)
    model.to(source.device)
    model.X_c.requires_grad_(is_trained)
    if is_trained and not start.for_all_rows:
        raise_noise(model, source.sample(watch.some_of(LADDER_ROWS), rng))
    if source.has_known_noise:
        # The weights of a first coreset count rows, and a row's precision is that of its total noise.
        w = model.beta.detach() / source.harmonic_noise(model.noise.item())
        model.set_sites(model.y_c - prior_mean(model.mean, model.X_c, model.y_c), w)
    _adopt_first(source.group, model)
    return model


def wants_all_rows(
    start: Start,
    source: DataSource,
    rng: np.random.Generator,
    max_time: float | None,
    *,
    has_neighbours: bool = False,
) -> bool:
    """Whether the exact GP is worth its time: where rows are few, or most of them would be needed as points.

    How many points are needed is found out only where it matters. In a group the first process decides.
    """
    x = source.sample(CANDIDATES, rng).x.cpu().numpy()

    def is_worth_it(size: int) -> bool:
        return exact_is_worth_it(source.num_rows, x.shape[1], size, max_time, has_neighbours=has_neighbours)

    if is_worth_it(SMALLEST) or not is_worth_it(largest_size(max_time)):
        return is_worth_it(SMALLEST)
    decision = is_worth_it(enough_points(start.kernel, start.noise, x, max_time))
    (first,) = source.group.first([torch.tensor(float(decision), dtype=torch.float64)])
    return bool(first)


@torch.no_grad()
def _set_units(kernel: Kernel, spread: Spread, *, ard: bool) -> None:
    """Bring a kernel that suits standardised data to the units of others."""
    width = torch.as_tensor(spread.x)  # [D]
    if not ard:
        width = width.square().sum(0, keepdim=True).div(max(int(width.count_nonzero()), 1)).sqrt()
    width = torch.where(width > 0.0, width, 1.0)
    for part in kernel.modules():
        if isinstance(part, PeriodicKernel):  # whose lengthscale is one of angles
            part.period_length = part.period_length * width
        elif isinstance(part, LinearKernel):
            part.variance = part.variance * spread.y_square / width.square()
        elif isinstance(part, ScaleKernel):
            part.outputscale = part.outputscale * spread.y_square
        elif isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = part.lengthscale * width


def typical_lengthscale(num_dims: int) -> float:
    """The root mean square distance of two standardised inputs in one dimension, grown with the dimension."""
    return float(np.sqrt(num_dims))


@torch.no_grad()
def _adopt_first(group: Group, model: CVGP) -> None:
    tensors = [*model.parameters(), *model.buffers()]
    for tensor, value in zip(tensors, group.first(tensors), strict=True):
        tensor.copy_(value)


def _first_coreset(group: Group, coreset: Coreset) -> Coreset:
    (size,) = group.first([torch.tensor(float(len(coreset)), dtype=torch.float64)])
    # Clusters may be lost: to take the first process's points, the others need arrays of their number.
    arrays = [np.resize(a, (int(size), *a.shape[1:])) for a in (coreset.X, coreset.y, coreset.beta)]
    x, y, beta = group.first([torch.as_tensor(a) for a in arrays])
    return Coreset(x, y, beta)


def _spread_out(noise: Coreset, rows: Rows[Tensor]) -> Coreset:
    """White noise, with the means and standard deviations of some rows."""
    x, y = (values.reshape(len(values), -1).cpu().numpy() for values in (rows.x, rows.y))
    outputs = noise.y.reshape(len(noise), -1) * y.std(0) + y.mean(0)
    return Coreset(noise.X * x.std(0) + x.mean(0), outputs.reshape(noise.y.shape), noise.beta)


def rows_to_place_by(source: DataSource, size: int, watch: Watch) -> int:
    """How many rows k-means sees: fewer where a time limit is short."""
    if watch.max_time is None or size >= source.num_rows:
        return rows_to_see(size)
    num_dims = source.sample(1, np.random.default_rng(0)).x.shape[1]
    affordable = SHARE_OF_PLACING * watch.max_time / (watch.pace * placing_seconds(size, num_dims))
    return min(rows_to_see(size), max(int(affordable), LEAST_PER_CENTRE * size))


def _place_coreset(
    method: InitName, source: DataSource, size: int, kernel: Kernel, rng: np.random.Generator, watch: Watch
) -> Coreset:
    rows = source.sample(size if method == "random" else rows_to_place_by(source, size, watch), rng)
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().numpy()
    x, y = rows.x.cpu().numpy(), rows.y.cpu().numpy()
    if method == "kmeans" and size >= source.num_rows:
        return Coreset(x, y, np.ones(len(x)) if weight is None else weight)  # nothing to summarise
    return initial_coreset(
        method, x, y, size, rng, sample_weight=weight, total_weight=source.total_weight, kernel=kernel
    )
