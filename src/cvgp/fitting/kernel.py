"""The kernel: its candidates, the priors that a short table needs, and the start that unseen rows prefer.

Kernel and noise start from an exact GP of some rows: a bound with few pseudo-points could explain everything as noise.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, PeriodicKernel, ScaleKernel
from gpytorch.means import ConstantMean, Mean, ZeroMean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.scaling import Spread
from cvgp.data.source import DataSource, MemorySource
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.fitting.compare import (
    Scores,
    compare,
    exact_residuals_of_new,
    folds_of,
    log_normal,
    variance_of_y,
    weight_of,
    weighted_mean,
)
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import FitLog, Run
from cvgp.fitting.sample import DEFAULT_KERNEL, Start, best_start, draw_halves, learn_exact, two_parts
from cvgp.gp.bounds import solve_titsias, whitener
from cvgp.gp.kernels import (
    NOISE_FLOOR,
    add_log_normal_prior,
    add_lower_prior,
    add_similarity_prior,
    make_kernel,
    multiply_inside,
    name_of_kernel,
    prior_mean,
    registered_priors,
    stationary_form,
    tie_lengthscales,
    with_lengthscale,
)
from cvgp.gp.model import CVGP
from cvgp.objectives import statistics
from cvgp.runtime import kept_warnings

AUTO_KERNELS = ("rbf", "matern52", "matern32+linear", "rbf+linear", "matern52+linear")
SMOOTH_KERNELS = ("matern52", "rbf")  # only for an exact GP: a sample of the rows makes every f look smooth
ROUGH_KERNELS = ("matern32+matern12",)  # only if every row may be a point: a few could not carry the rough part
PHASE = "choose kernel"
CROSS_FITS = 5
TREND_DEGREE, FEWEST_CYCLES, STEPS_PER_CYCLE = 3, 2.0, 4  # of a periodogram
MOST_CYCLES_PER_ROW = 5.0  # of irregular inputs, two of which may happen to be arbitrarily close


def starting_kernel(
    kernel: str | Kernel | None, num_dims: int, *, ard: bool, spread: Spread | None = None, tied: Sequence[int] = ()
) -> Kernel:
    """A kernel by name at a typical lengthscale, the same for `tied` columns, or a copy of the given one; float64."""
    if isinstance(kernel, Kernel):
        return deepcopy(kernel).double()
    if kernel is not None and not isinstance(kernel, str):
        raise InvalidTypeError(f"kernel must be a name, a GPyTorch kernel or None; got {type(kernel).__name__}.")
    made = make_kernel(DEFAULT_KERNEL if kernel in (None, "auto") else kernel, num_dims, ard=ard)
    varying = num_dims if spread is None else max(int(np.count_nonzero(spread.x)), 1)
    for part in with_lengthscale(made):
        part.lengthscale = torch.full_like(part.lengthscale, math.sqrt(varying))  # a typical distance
    for part in made.modules():
        if isinstance(part, AdditiveKernel):
            _share_variance(part, varying)
    if spread is not None:
        _set_units(made, spread, ard=ard)
    if tied and ard:
        tie_lengthscales(made, tied)
    return made


def alternative_kernels(kernel: str | Kernel | None, *, is_exact: bool, may_be_rough: bool) -> tuple[str, ...]:
    """What may replace :func:`starting_kernel` if the kernel is open."""
    if not (kernel is None or (isinstance(kernel, str) and kernel == "auto")):
        return ()
    others = AUTO_KERNELS if kernel == "auto" else SMOOTH_KERNELS if is_exact else ()
    return others + (ROUGH_KERNELS if may_be_rough else ())


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


def _share_variance(kernel: AdditiveKernel, num_dims: int) -> None:
    share = 1.0 / len(kernel.kernels)
    for term in kernel.kernels:
        if isinstance(term, ScaleKernel):
            term.outputscale = torch.full_like(term.outputscale, share)
        else:
            linear = [part for part in term.modules() if isinstance(part, LinearKernel)]
            for part in linear:
                part.variance = torch.full_like(part.variance, share ** (1.0 / len(linear)) / num_dims)


@torch.no_grad()
def _set_units(kernel: Kernel, spread: Spread, *, ard: bool) -> None:
    width = torch.as_tensor(spread.x)  # [D]
    if not ard:
        width = width.square().sum(0, keepdim=True).div(max(int(width.count_nonzero()), 1)).sqrt()
    width = torch.where(width > 0.0, width, 1.0)
    for part in kernel.modules():
        if isinstance(part, PeriodicKernel):  # its lengthscale is one of angles
            part.period_length = part.period_length * width
        elif isinstance(part, LinearKernel):
            part.variance = part.variance * spread.y_square / width.square()
        elif isinstance(part, ScaleKernel):
            part.outputscale = part.outputscale * spread.y_square
        elif isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = part.lengthscale * width


class KernelChoice(NamedTuple):
    """The start that was chosen, and all that were tried."""

    start: Start
    tried: dict[str, Start]


@torch.enable_grad()  # also for a caller that has switched gradients off
def choose_kernel(
    kernel: Kernel,
    mean: Mean,
    source: DataSource,
    run: Run,
    *,
    alternatives: Sequence[Kernel] = (),
    noise_floor: float = NOISE_FLOOR,
    known_noise: float | None = None,
) -> KernelChoice:
    """The kernel, mean and noise with the best density of unseen rows; the arguments stay as they are."""
    h, evaluations = run.heuristics, run.heuristics.alternative_evaluations
    learning, judging = _rows_to_choose_by(source, run)
    y_variance = variance_of_y(learning)
    y_sd = math.sqrt(y_variance) or 1.0  # constant outputs say nothing about f
    kernel, *alternatives = (with_priors(k, source.num_rows, learning.x, y_sd, h) for k in (kernel, *alternatives))
    noise = max(h.start_noise * y_variance, h.least_start_noise * noise_floor)
    mean = sensible_mean(mean, learning)
    first = Start(kernel, mean, noise, noise_floor=noise_floor, name=name_of_kernel(kernel))
    if known_noise is not None:
        first = first._replace(noise=known_noise, noise_is_known=True)
    best = _learn_from_rows(first, learning, judging, source.total_weight, run)
    if best is None:
        return KernelChoice(_scaled(first, 1.0), {})
    tried = {first.name: best}
    for other in alternatives if run.has_time else ():
        name, warm = name_of_kernel(other), best._replace(kernel=with_scales_of(other, best.kernel))
        if name == "rbf" and "matern52" in tried and tried["matern52"].density <= best.density:
            continue  # f is not even smooth enough for that
        if isinstance(other, AdditiveKernel):  # has several optima, and where the single kernel ended need not lead on
            starts = [warm, _scaled(first._replace(kernel=other), 1.0)]
        else:  # with little noise, rows would be so unlikely at the scales of another kernel that f became noise
            starts = [warm._replace(noise=max(best.noise, first.noise))]
        found = best_start(lambda start: learn_exact(start, learning, judging, run, PHASE, evaluations), starts, run)
        if found is not None:
            widen_to_gaps(found.kernel, learning.x, h.least_lengthscale)
            tried[name] = found._replace(name=name)
    best = _chosen(best, list(tried.values())[1:], run)
    if isinstance(best.kernel, AdditiveKernel) and best.name != first.name and run.has_time:
        # A sum has several optima, and where the single kernel ended need not lead to the best.
        other = next(kernel for kernel in alternatives if name_of_kernel(kernel) == best.name)
        afresh = first._replace(kernel=other, name=best.name)
        best = _learn_from_rows(afresh, learning, judging, source.total_weight, run) or best
    return KernelChoice(best, tried)


@torch.enable_grad()
def cross_fitted_residuals(
    kernel: Kernel, mean: Mean, rows: Rows[Tensor], run: Run, noise_floor: float
) -> tuple[Tensor, Tensor]:
    """Errors [n, Q] and standard deviations [n], each of an exact GP that has not seen the row or its cluster.

    Kernel and noise are learned without the row too: where rows are few for the columns, leaving a row out with the
    kernel of all rows shows too small an error.
    """
    h, found, quiet = run.heuristics, [], run._replace(log=FitLog())
    folds = folds_of(rows, CROSS_FITS, run.rng("cross-fit"))
    for fold in range(CROSS_FITS):
        seen, new = rows.take(folds != fold), rows.take(folds == fold)
        variance = variance_of_y(seen)
        prepared = with_priors(kernel, len(seen.x), seen.x, math.sqrt(variance) or 1.0, h)
        noise = max(h.start_noise * variance, h.least_start_noise * noise_floor)
        start = _scaled(Start(prepared, mean, noise, noise_floor=noise_floor), 1.0)
        with kept_warnings():
            learned = learn_exact(start, seen, new, quiet, PHASE, h.kernel_evaluations)
        model = learned.model(Coreset(seen.x, seen.y, np.ones(len(seen.x))))
        left = exact_residuals_of_new(model, seen, new)
        found.append((left.error, (left.f_var + model.total_noise(new.noise_variance)).sqrt()))
    errors, sds = (torch.cat(parts).detach() for parts in zip(*found, strict=True))
    order = folds.argsort(stable=True).argsort()
    return errors[order], sds[order]


def share_lengthscale(
    start: Start, source: MemorySource, run: Run, spread: Spread | None, tied: Sequence[int] = ()
) -> tuple[Start | None, dict[str, Start]]:
    """Where rows are few for the columns, a start with one lengthscale for all, unless one for each predicts better.

    Both are cross-fitted. With the kernel of all rows, a row that is left out looks far better predicted than a new one
    is, since each lengthscale has been fitted to it.
    """
    h, dims, rows, tried = run.heuristics, source.data.x.shape[1], source.data, dict[str, Start]()
    few = min(h.linear_rows_per_column * dims, h.audit_from)
    if dims == 1 or not h.fewest_rows_to_share < source.num_rows < few or not run.has_time:
        return None, {}
    for name, ard in (("one lengthscale per column", True), ("one lengthscale", False)):
        kernel = starting_kernel(start.name, dims, ard=ard, spread=spread, tied=tied)
        error, sd = cross_fitted_residuals(kernel, start.mean, rows, run, start.noise_floor)
        density = log_normal(error, sd.square()[:, None]).mean(1)
        scores = Scores(density, error.square().mean(1), weight_of(rows), rows.cluster)
        tried[name] = start._replace(kernel=kernel, scores=scores)
    per_column, shared = (found.scores for found in tried.values())
    if run.agreed(per_column is not None and shared is not None and compare(per_column, shared).is_likelier()):
        return None, tried
    known, kernel = start.noise if start.noise_is_known else None, tried["one lengthscale"].kernel
    found = choose_kernel(kernel, start.mean, source, run, noise_floor=start.noise_floor, known_noise=known)
    return found.start, tried


def _learn_from_rows(
    first: Start, learning: Rows[Tensor], judging: Rows[Tensor] | None, total_weight: float, run: Run
) -> Start | None:
    h = run.heuristics
    periods = periodic_parts(first.kernel)
    every = learning.x if judging is None else torch.cat([learning.x, judging.x])
    shortest = shortest_periods(every) if periods else learning.x.new_zeros(1)
    # An exact GP of all rows goes on from here, so a shorter search is enough.
    usual = h.alternative_evaluations if judging is None else h.kernel_evaluations

    def learn_from(start: Start, rows: Rows[Tensor] = learning, evaluations: int = usual) -> Start:
        found = learn_exact(start, rows, judging, run, PHASE, evaluations)
        widen_to_gaps(found.kernel, learning.x, h.least_lengthscale)
        return found._replace(scores=None) if periods and is_alias(found.kernel, shortest) else found

    starts = [_scaled(first, factor) for factor in (h.start_factors if _lengthscales(first.kernel) else (1.0,))]
    if periods:
        for values in candidate_periods(learning.x, learning.y, shortest, h.periods_tried):
            starts.append(_scaled(first, 1.0))
            set_periods(starts[-1].kernel, values)
    if len(starts) > 1 and len(learning.x) > h.race_rows:
        fewer = _counting_as(learning.take(slice(h.race_rows)), total_weight)
        ahead = best_start(lambda start: learn_from(start, fewer, h.race_evaluations), starts, run)
        return None if ahead is None else best_start(learn_from, [ahead], run) or ahead
    return best_start(learn_from, starts, run)


def _chosen(default: Start, others: Sequence[Start], run: Run) -> Start:
    """The default, unless another kernel is clearly better.

    Unseen rows show badly what the second part of a sum has learned. So a sum of kernels of distances is also taken if
    the evidence of its own rows gains more nats than it has additional parameters (Akaike, 1974).
    """

    def size(start: Start) -> int:
        return sum(parameter.numel() for parameter in start.kernel.parameters() if parameter.requires_grad)

    best = default
    for other in sorted(others, key=lambda start: start.density):
        assert other.scores is not None, "it was judged"
        assert best.scores is not None, "it was judged"
        is_sum = isinstance(other.kernel, AdditiveKernel) and "linear" not in other.name
        by_evidence = (
            is_sum
            and other.evidence - best.evidence > size(other) - size(best)
            and other.density >= best.density - run.heuristics.margin
        )
        if compare(other.scores, best.scores).is_clear or by_evidence:
            best = other
    return [default, *others][int(run.agreed([default, *others].index(best)))]


@torch.no_grad()
def raise_noise(model: CVGP, rows: Rows[Tensor], ladder: Sequence[float]) -> None:
    """Raise the noise to the share of the variance of y under which the bound on some rows is highest, in place."""
    variance = variance_of_y(rows)
    start, weight = model.noise.item(), weight_of(rows).sum().item()
    L_inv = whitener(model.jittered_covariance())
    sums_at_start = statistics(model, [rows])

    def bound_at(noise: float) -> float:
        model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
        has_known = rows.noise_variance is not None
        sums = statistics(model, [rows]) if has_known else sums_at_start.at_noise(start, noise, weight)
        return solve_titsias(sums, L_inv).value.item() + model.log_prior().item()

    best = max([start, *(share * variance for share in ladder if share * variance > start)], key=bound_at)
    model.likelihood.noise = torch.tensor(best, dtype=torch.float64)


def with_priors(kernel: Kernel, num_rows: int, x: Tensor, y_sd: float, h: Heuristics) -> Kernel:
    """A copy of a kernel with weak priors where rows are few for its lengthscales, or the kernel itself (§6.3)."""
    num_dims, parts = x.shape[1], with_lengthscale(kernel)
    is_one_per_column = num_dims > 1 and all(part.lengthscale.shape == (1, num_dims) for part in parts)
    may_have = is_one_per_column and _lengthscales(kernel) and not registered_priors(kernel)
    if not may_have or num_rows > h.few_rows_per_column * num_dims:
        return kernel
    changed, width = deepcopy(kernel), x.std(0, correction=0)
    width = torch.where(width > 0.0, width, 1.0)  # [D]
    if num_rows > h.very_few_rows_per_column * num_dims:
        # Three standard deviations of a column, and of y: a lengthscale of one of them then costs 2.3 nats, which is
        # what the criterion of Schwarz (1978) asks of a parameter with 100 rows.
        add_lower_prior(changed, 3.0 * width, width.new_tensor(3.0 * y_sd))
        add_similarity_prior(changed, width)
    elif isinstance(kernel, ScaleKernel) and stationary_form(kernel, num_dims) is not None:
        add_log_normal_prior(changed, math.sqrt(num_dims) * width, math.sqrt(3.0))
    return changed


@torch.no_grad()
def widen_to_gaps(kernel: Kernel, x: Tensor, share: float) -> None:
    """Raise lengthscales that are below a share of the smallest gap between two values of their column, in place."""
    steps = x.sort(dim=0).values.diff(dim=0)
    if not len(steps):
        return
    gaps = torch.where(steps > 0.0, steps, torch.inf).amin(0)
    least = share * torch.where(torch.isfinite(gaps), gaps, 0.0)  # [D]
    for part in _lengthscales(kernel):
        is_per_column = part.active_dims is None and part.lengthscale.shape[-1] == x.shape[1]
        if is_per_column and not isinstance(part, PeriodicKernel):
            factor = (least.to(part.lengthscale) / part.lengthscale).clamp_min(1.0)
            if (factor > 1.0).any():
                multiply_inside(part, "lengthscale", factor)


@torch.enable_grad()
def sensible_mean(mean: Mean, rows: Rows[Tensor]) -> Mean:
    """The mean, or a copy after one Gauss-Newton step if it is farther from the rows than a constant is."""
    error, stepped = _squared_error(mean, rows), deepcopy(mean).to(rows.x.device)
    learned = [p for p in stepped.parameters() if p.requires_grad]
    too_few = len(rows.x) < 2 * sum(p.numel() for p in learned)
    if not learned or too_few or error <= variance_of_y(rows):
        return mean
    values = prior_mean(stepped, rows.x, rows.y).reshape(len(rows.x), -1)[:, 0]
    grads = (torch.autograd.grad(v, learned, retain_graph=True, materialize_grads=True) for v in values)
    slopes = torch.stack([torch.cat([part.reshape(-1) for part in grad]) for grad in grads])  # [n, p]
    residual = rows.y.reshape(len(values), -1).mean(1) - values.detach()  # [n]
    root = weight_of(rows).sqrt()
    step = torch.linalg.lstsq((root[:, None] * slopes).cpu(), (root * residual)[:, None].cpu()).solution[:, 0]
    with torch.no_grad():
        for parameter, change in zip(learned, step.split([p.numel() for p in learned]), strict=True):
            parameter += change.view_as(parameter).to(parameter)
    return stepped if _squared_error(stepped, rows) < error else mean


@torch.no_grad()
def _squared_error(mean: Mean, rows: Rows[Tensor]) -> float:
    return weighted_mean((rows.y - prior_mean(mean, rows.x, rows.y)).square(), rows)


@torch.no_grad()
def with_scales_of(kernel: Kernel, learned: Kernel) -> Kernel:
    """A copy of a kernel with the lengthscales and the outputscale that a single kernel has learned."""
    kernel = deepcopy(kernel)
    term = kernel.kernels[0] if isinstance(kernel, AdditiveKernel) else kernel
    term.base_kernel.lengthscale = learned.base_kernel.lengthscale
    term.outputscale = learned.outputscale
    return kernel


def _scaled(start: Start, factor: float) -> Start:
    kernel = deepcopy(start.kernel)
    for part in _lengthscales(kernel):
        multiply_inside(part, "lengthscale", factor)
    return start._replace(kernel=kernel, mean=deepcopy(start.mean))


def _lengthscales(kernel: Kernel) -> list[Kernel]:
    """The kernels whose lengthscale is to be learned; a frozen one is not tried at other values."""
    return [part for part in with_lengthscale(kernel) if part.raw_lengthscale.requires_grad]


def _rows_to_choose_by(source: DataSource, run: Run) -> tuple[Rows[Tensor], Rows[Tensor] | None]:
    """Rows to learn from, and rows to judge by; few rows are left out one by one instead, if they have no time."""
    h, rng = run.heuristics, run.rng("kernel")
    are_few, most = source.num_rows <= run.rows(h.leave_one_out_rows), run.rows(h.sample_rows)
    rows = source.sample(source.num_rows if are_few else most + run.rows(h.judging_rows), rng)
    if rows.time is not None:
        learning, judging = draw_halves(rows, len(rows.x) if are_few else most, rng)
    elif are_few:
        return _counting_as(rows, source.total_weight), None
    else:
        learning, judging = two_parts(rows, most, len(rows.x) - most, rng)
    return _counting_as(learning, source.total_weight), judging


def _counting_as(rows: Rows[Tensor], total_weight: float) -> Rows[Tensor]:
    """Rows whose weights add up to that of all rows, or to their number if this is less."""
    if rows.sample_weight is None:
        return rows
    factor = min(total_weight, len(rows.x)) / rows.sample_weight.sum().item()
    return rows._replace(sample_weight=rows.sample_weight * max(factor, 1.0))


def periodic_parts(kernel: Kernel) -> list[PeriodicKernel]:
    """The periodic kernels whose period is to be learned."""
    parts = [part for part in kernel.modules() if isinstance(part, PeriodicKernel)]
    return [part for part in parts if part.raw_period_length.requires_grad and part.active_dims is None]


def shortest_periods(x: Tensor) -> Tensor:
    """The shortest period that rows `[n, D]` can tell from a longer one, along each column `[D]`."""
    shortest = x.new_zeros(x.shape[1], dtype=torch.float64)
    for d, column in enumerate(x.to(torch.float64).mT):
        span, gaps = column.max() - column.min(), column.sort().values.diff()
        gaps = gaps[gaps > 1e-9 * span]
        if len(gaps):  # on a grid, shorter waves than two steps take the same values as longer ones
            shortest[d] = torch.max(2.0 * gaps.min(), span / (MOST_CYCLES_PER_ROW * len(x)))
    return shortest


@torch.no_grad()
def is_alias(kernel: Kernel, shortest: Tensor) -> bool:
    """Whether a period that was learned is shorter than the rows can tell."""
    return any(bool((part.period_length.to(shortest) < 0.99 * shortest).any()) for part in periodic_parts(kernel))


@torch.no_grad()
def candidate_periods(x: Tensor, y: Tensor, shortest: Tensor, count: int) -> list[Tensor]:
    """Up to `count` likely periods `[D]` of y `[n]` or `[n, Q]` along the columns of x `[n, D]`, likeliest first."""
    columns, outputs = x.to(torch.float64).mT, y.reshape(len(y), -1)
    by_column = [_peaks(column, outputs, least.item(), count) for column, least in zip(columns, shortest, strict=True)]
    longest = max(len(peaks) for peaks in by_column)
    if min(len(peaks) for peaks in by_column) == 0:
        return []
    return [torch.stack([peaks[min(i, len(peaks) - 1)] for peaks in by_column]) for i in range(longest)]


def set_periods(kernel: Kernel, periods: Tensor) -> None:
    """Give the periodic parts these periods `[D]`; their geometric mean, where one period is for all columns."""
    for part in periodic_parts(kernel):
        now = part.period_length.detach()
        wanted = periods if now.shape[-1] == len(periods) else periods.log().mean().exp()
        multiply_inside(part, "period_length", wanted.to(now) / now)


def _peaks(x: Tensor, y: Tensor, shortest: float, count: int) -> Tensor:
    from scipy.signal import lombscargle  # only for periodic kernels

    span, distinct = (x.max() - x.min()).item(), len(x.unique())
    if distinct <= TREND_DEGREE + FEWEST_CYCLES or span < FEWEST_CYCLES * shortest:
        return x.new_zeros(0)
    cycles = torch.arange(FEWEST_CYCLES, span / shortest, 1.0 / STEPS_PER_CYCLE, dtype=x.dtype, device=x.device)
    place = (x - x.min()) / span
    trend = torch.linalg.qr(torch.stack([(2.0 * place - 1.0) ** degree for degree in range(TREND_DEGREE + 1)], 1))[0]
    residual = y.to(torch.float64) - trend @ (trend.mT @ y.to(torch.float64))  # [n, Q]
    angular = (2.0 * math.pi * cycles).cpu().numpy()
    powers = [lombscargle(place.cpu().numpy(), output.cpu().numpy(), angular) for output in residual.mT]
    power = torch.as_tensor(np.sum(powers, axis=0))
    is_peak = (power[1:-1] >= power[:-2]) & (power[1:-1] >= power[2:])
    peaks = is_peak.nonzero()[:, 0] + 1
    best = peaks[power[peaks].argsort(descending=True)[:count]]
    return span / cycles[best]
