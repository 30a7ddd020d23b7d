"""Kernel, mean, noise and coreset of a model, learned from its rows by cvgp's own solvers.

Modules of GPyTorch are trained as they are: their priors count, and their constraints hold. Constraints that have no
transform are left to a bounded optimiser by GPyTorch. The solvers here know no bounds, so they see a copy of the
modules in which each such constraint has a transform.
"""

import math
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.constraints import Interval, LessThan
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.means import Mean
from torch import Tensor, nn

from cvgp.adapters.botorch.module_outputs import adopt, dims_of_outputs, for_outputs
from cvgp.adapters.botorch.training_rows import TrainingRows
from cvgp.coreset import Coreset
from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp.bounds import log_marginal
from cvgp.gp.hyperparameters import inside, multiply_inside
from cvgp.gp.kernels import log_above, prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.training.candidates import Start
from cvgp.training.fit import fit_model
from cvgp.training.initialise import initial_coreset
from cvgp.training.kernel_search import raise_noise
from cvgp.training.monitor import Watch
from cvgp.training.plan import Settings
from cvgp.training.size import SMALLEST, exact_is_worth_it
from cvgp.training.size_choice import choose_size

STRETCHES, NOISE_SHARES = (1.0, 0.5, 2.0, 4.0), (0.5, 0.1, 0.01, 1e-3)
"""Starts that are tried: factors of all lengthscales, and shares of the variance of the outputs that are noise."""
START_ROWS = 500
"""Rows from whose exact likelihood kernel and noise start, where there are too many rows for the exact GP."""


class Modules(NamedTuple):
    """What a fit learns beside the coreset."""

    kernel: Kernel
    mean: Mean
    likelihood: Likelihood


class Points(NamedTuple):
    """A learned coreset."""

    X_c: Tensor  # [M, D]
    y_c: Tensor  # [M, m]
    precision: Tensor  # [M, m] or [M, 1]


def learn(modules: Modules, rows: TrainingRows) -> Points:
    """Train the modules in place, and return the coreset.

    Outputs that share kernel, mean and noise share a coreset. Otherwise each has its own points, which have the
    precision zero for all other outputs.
    """
    if type(modules.likelihood) is not GaussianLikelihood:
        raise InvalidTypeError(
            f"A fit learns the noise of a gpytorch.likelihoods.GaussianLikelihood; got "
            f"{type(modules.likelihood).__name__}."
        )
    m = rows.Y.shape[-1]
    if m == 1 or not _differ_by_output(modules, m):
        trained, points = _learn_one(modules, rows)
        for mine, learned in zip(modules, trained, strict=True):
            _take_values(mine, learned)
        return points
    found = []
    for output in range(m):
        one = Modules(*(for_outputs(module, [output], m) for module in modules))
        trained, points = _learn_one(one, rows.of_outputs([output]))
        for mine, single, learned in zip(modules, one, trained, strict=True):
            _take_values(single, learned)
            adopt(mine, single, output, m)
        found.append(points)
    return Points(
        torch.cat([points.X_c for points in found]),
        torch.block_diag(*(points.y_c for points in found)),
        torch.block_diag(*(points.precision for points in found)),
    )


def _differ_by_output(modules: Modules, num_outputs: int) -> bool:
    counted = [(len(dims_of_outputs(module, num_outputs)), len(list(module.parameters()))) for module in modules]
    if not any(own for own, _ in counted):
        return False
    if any(own < every for own, every in counted):
        raise InvalidInputError(
            f"Kernel, mean and likelihood must all have batch_shape [{num_outputs}], for outputs that are learned one "
            "by one, or none of them, for outputs that share all."
        )
    return True


def _learn_one(modules: Modules, rows: TrainingRows) -> tuple[Modules, Points]:
    """Trained copies of the modules in float64, and the coreset."""
    kernel, mean, likelihood = (_searchable(module) for module in modules)
    source = _source(rows)
    rng = np.random.default_rng(0)  # the same rows give the same model
    watch = Watch()
    everything, some = (source.sample(count, rng) for count in (source.num_rows, START_ROWS))
    _find_start(kernel, mean, likelihood, some)
    if exact_is_worth_it(source.num_rows, everything.x.shape[1], SMALLEST, None):
        start = CVGP(_as_points(everything), kernel, mean=mean, likelihood=likelihood)
    else:
        first = CVGP(_as_points(some), kernel, mean=mean, likelihood=likelihood)
        fit_model(first, MemorySource(*some), Settings(), watch)
        learned = Start(kernel, mean, first.noise.item(), -math.inf)
        size = choose_size(learned, source, rng, watch, may_stay_untrained=False).size
        x, y = (values.cpu().numpy() for values in everything[:2])
        weight = None if everything.sample_weight is None else everything.sample_weight.cpu().numpy()
        placed = initial_coreset("kmeans", x, y, size, rng, sample_weight=weight, kernel=kernel)
        start = CVGP(placed, kernel, mean=mean, likelihood=likelihood)
        raise_noise(start, some)
    report = fit_model(start.to(source.device), source, Settings(), watch, summary_rng=rng)
    with torch.no_grad():
        w = report.model.site_precision
        y_c = report.model.y_c.detach()
        points = Points(report.model.X_c.detach(), y_c if y_c.ndim == 2 else y_c[:, None], w[:, None])
    return Modules(kernel, mean, likelihood), points


@torch.no_grad()
def _find_start(kernel: Kernel, mean: Mean, likelihood: GaussianLikelihood, rows: Rows[Tensor]) -> None:
    """Stretch all lengthscales and set the noise to what suits some rows best, by their exact likelihood.

    Far from an optimum the slope is steep, and the first step of L-BFGS would take parameters to the end of their
    range, from where no slope leads back.
    """
    model = CVGP(_as_points(rows), kernel, mean=mean, likelihood=likelihood)
    stretched = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    own, variance = [part.lengthscale.clone() for part in stretched], rows.y.var().item()
    noises = [model.noise.item(), *(share * variance for share in NOISE_SHARES)]

    def density(factor: float, noise: float) -> float:
        for part, lengthscale in zip(stretched, own, strict=True):
            part.lengthscale = lengthscale
            multiply_inside(part, "lengthscale", factor)
        likelihood.noise_covar.noise = model.noise.new_tensor(noise)
        covariance = square_matrix(kernel, rows.x)
        residual = rows.y - prior_mean(mean, rows.x, rows.y)
        noise_of_rows = model.total_noise(rows.noise_variance)
        value = log_marginal(covariance, residual, noise_of_rows, sample_weight=rows.sample_weight)
        return value.item() + model.log_prior().item()

    best = max(((factor, noise) for factor in STRETCHES for noise in noises), key=lambda start: density(*start))
    density(*best)


def _source(rows: TrainingRows) -> MemorySource:
    """The rows as training takes them; outputs share weights and known noise."""
    X, Y, weight, known = (values.detach().to(torch.float64) for values in rows)
    for name, values in (("weights", weight), ("noise variances", known)):
        if not torch.equal(values, values[:, :1].expand_as(values)):
            raise InvalidInputError(f"Outputs that share kernel and noise must have the same {name} in each row.")
    return MemorySource(
        X,
        Y[:, 0] if Y.shape[1] == 1 else Y,
        None if bool((weight == 1.0).all()) else weight[:, 0],
        None if bool((known == 0.0).all()) else known[:, 0],
    )


def _as_points(rows: Rows[Tensor]) -> Coreset:
    weight = torch.ones(len(rows.x), dtype=torch.float64) if rows.sample_weight is None else rows.sample_weight
    return Coreset(rows.x.cpu(), rows.y.cpu(), weight.cpu())


def _searchable(module: nn.Module) -> nn.Module:
    """A copy in float64 whose parameters may take any value."""
    copied = deepcopy(module).double()
    part: Any
    for part in copied.modules():
        for name, constraint in list(getattr(part, "_constraints", {}).items()):
            if not constraint.enforced:
                raw = name.removesuffix("_constraint")
                value = getattr(part, raw).detach()
                part.register_constraint(raw, _with_transform(constraint))
                own = part.constraint_for_parameter_name(raw)
                getattr(part, raw).data = own.inverse_transform(inside(value, own.lower_bound, own.upper_bound))
    return copied


def _with_transform(constraint: Interval) -> Interval:
    lower, upper = constraint.lower_bound.clone(), constraint.upper_bound.clone()
    if torch.isinf(upper).all():
        return log_above(lower)
    return LessThan(upper) if torch.isinf(lower).all() else Interval(lower, upper)


@torch.no_grad()
def _take_values(mine: nn.Module, learned: nn.Module) -> None:
    """Copy parameters by their values, as the constraints of each side express them."""
    theirs = dict(learned.named_modules())
    for prefix, part in mine.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            value = getattr(theirs[prefix], name)
            if f"{name}_constraint" in getattr(part, "_constraints", {}):
                there, here = (p.constraint_for_parameter_name(name) for p in (theirs[prefix], part))
                value = here.inverse_transform(there.transform(value))
            parameter.copy_(value.reshape(parameter.shape))
