"""The audit: rows that no choice has seen decide between a model and simpler ones, and calibrate its intervals.

They are drawn as future rows will be, so copies of them may be among the rows of the fit. One half decides: where the
coverage of 90 % intervals is wrong, or a simpler model is clearly more likely, the simpler one is taken. The other half
calibrates and is reported. Where rows are few, rows of the fit that are left out one by one calibrate too.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.stats import binomtest
from torch import Tensor

from cvgp.data.rows import NUM_STRETCHES, Array, Rows, draw_weight
from cvgp.data.source import MemorySource
from cvgp.data.transforms import IDENTITY
from cvgp.errors import CVGPWarning
from cvgp.estimators.fitted import FittedGP, as_array
from cvgp.estimators.predictive import IntervalName, Predictive, ends_of_interval
from cvgp.fitting.compare import Scores, compare, weight_of
from cvgp.fitting.decide import Fit, Request, fit
from cvgp.fitting.decisions import Choice
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.kernel import cross_fitted_residuals, periodic_parts, starting_kernel, starting_mean
from cvgp.fitting.monitor import Run
from cvgp.fitting.noise import NoiseFit, out_of_sample
from cvgp.fitting.prepare import SORTED_ROWS, FitData
from cvgp.gp.calibration import Calibration
from cvgp.gp.kernels import NOISE_FLOOR, name_of_kernel

if TYPE_CHECKING:
    from cvgp.tables.stream import Numbered
    from cvgp.tables.table import TrainingTable

LEVEL = 0.9
INTERVALS: tuple[IntervalName, ...] = ("model", "conformal")
LARGEST_FACTOR = 1.25  # how wide calibrated intervals may be, over those of the model; beyond, the model is too sure
LARGEST_FACTOR_OF_FEW = 4.0  # without noise, a fifth fewer rows may double the error
SHOWN_ROWS, ROWS_FOR_LINE = 200, 100_000
THE_FIT = "the fit"


def draw_audit(rows: Rows[Array], h: Heuristics, rng: np.random.Generator) -> tuple[Rows[Array], Rows[Array] | None]:
    """Split rows into those to fit and those to set aside: at most a tenth, and none if there are few rows.

    If all weights are whole numbers, a row stands for that many copies, some of which may be set aside. Of groups, none
    are set aside: all of them are left out in turn. Of rows with a time, the latest tenth is set aside.
    """
    weight = _weight(rows)
    if rows.time is not None and len(rows.x) >= h.least_rows_to_choose:  # forecasts need it, and it is fitted again
        stretch = np.asarray(rows.cluster)
        is_late = stretch >= min(round((1.0 - h.audit_share) * NUM_STRETCHES), stretch.max())
        return rows.take(~is_late), rows.take(is_late)
    if min(len(rows.x), weight.sum()) < h.audit_from or rows.cluster is not None:
        return rows, None
    # The order of the rows should not matter.
    order = np.lexsort(np.hstack([rows.x, rows.y]).T[::-1]) if len(weight) <= SORTED_ROWS else np.arange(len(weight))
    drawn = np.zeros(len(weight))
    share = min(h.audit_share, h.most_audit_rows / weight.sum())
    drawn[order] = draw_weight(rows.take(order), share, rng, copies=True)
    return _reweighted(rows, weight - drawn), _reweighted(rows, drawn)


def draw_audit_of_table(
    table: "TrainingTable", h: Heuristics, rng: np.random.Generator
) -> tuple["TrainingTable", "Numbered | None"]:
    """As `draw_audit`, for a table that is read in parts; what is set aside is in numbers."""
    total = float(table.moments.weight[-1])
    if min(table.num_rows, total) < h.audit_from or table.table.groups is not None:
        return table, None
    return table.hold_out(min(h.audit_share, h.most_audit_rows / total), rng, copies=True)


def _reweighted(rows: Rows[Array], weight: Array) -> Rows[Array]:
    found = rows.take(weight > 0.0)
    return found if rows.sample_weight is None else found._replace(sample_weight=weight[weight > 0.0])


def _weight(rows: Rows[Array]) -> Array:
    return np.ones(len(rows.x)) if rows.sample_weight is None else rows.sample_weight


class Examined(NamedTuple):
    """How a model predicts rows that it has not seen."""

    predictive: Predictive
    scores: Scores
    residuals: Array  # [n, Q], over their standard deviations
    coverage: float  # of the model's own intervals
    p_value: float  # of this coverage, if the intervals are right


def examine(found: Predictive, rows: Rows[Array]) -> Examined:
    """Compare rows with their predictions."""
    low, high = np.moveaxis(found.quantiles(ends_of_interval(LEVEL), "model"), -1, 0)  # [n, Q] each
    weight = _weight(rows)
    inside, count = ((low <= rows.y) & (rows.y <= high)).mean(1), round(weight.sum())
    coverage = float(np.average(inside, weights=weight))
    p_value = float(binomtest(round(coverage * count), count, LEVEL).pvalue)
    square = (rows.y - found.moments.mean) ** 2
    scores = Scores(*map(torch.as_tensor, (found.log_density(rows.y).mean(1), square.mean(1), weight)))
    return Examined(found, scores, found.residuals(rows.y), coverage, p_value)


def posterior(result: NoiseFit, data: FitData, dtype: torch.dtype) -> FittedGP:
    """A fit in the units of the data."""
    own, rare = (result.kept, result.noise, data.target, data.outliers), result.rare_share
    return FittedGP(result.solution.model, data.scaling, dtype, *own, rare_share=rare, outputs=result.outputs)


class Audited(NamedTuple):
    """The fit that is taken, and its posterior with a calibration."""

    fit: Fit
    gp: FittedGP


def audit(request: Request, found: Fit, rows: Rows[Array] | None, dtype: torch.dtype) -> Audited:
    """Decide between a fit and simpler ones, and calibrate the one that is taken.

    Without audit rows nothing is decided, and rows of the fit calibrate.
    """
    data, run, h, begin = request.data, request.run, request.run.heuristics, request.run.budget.seconds
    if rows is None:
        return _calibrated(request, found, posterior(found.result, data, dtype))
    order = run.rng("audit halves").permutation(len(rows.x))
    order = order if rows.time is None else order[: h.most_audit_rows]
    are_many = len(rows.x) + data.train.num_rows >= h.calibrated_by_audit_from
    half = len(order) // 2 if are_many else len(order)
    deciding, others = rows.take(order[:half]), rows.take(order[half:] if are_many else order)
    tried = {name: (one, _examined(one, data, dtype, deciding)) for name, one in _candidates(request, found)}
    if request.pinned.audit is None:
        _add_simpler(tried, request, deciding, dtype)
    exams = {name: exam for name, (_, exam) in tried.items()}
    taken = list(exams)[int(run.agreed(list(exams).index(_chosen(exams, h))))]
    result = tried[taken][0]
    gp, shown = posterior(result.result, data, dtype), _examined(result, data, dtype, others)
    calibration: Calibration | None
    if rows.time is not None:  # the latest rows err to the same side, and those after them to either
        both = np.concatenate([shown.residuals, -shown.residuals])
        calibration = Calibration.of(both, np.tile(_weight(others), 2))
    elif are_many:
        calibration = Calibration.of(shown.residuals, _weight(others))
    else:
        calibration = _by_left_out_rows(request, result, gp, shown.residuals)
    which, largest = f"{len(others.x)} unseen rows", LARGEST_FACTOR
    if rows.time is not None:
        which = f"the latest rows ({len(others.x)} of them)"
        largest = LARGEST_FACTOR if data.train.num_rows >= h.audit_from else LARGEST_FACTOR_OF_FEW
    choice = request.pinned.audit or _choice(taken, exams, shown, calibration, which, largest)
    choice = replace(choice, seconds=run.budget.seconds - begin)
    return Audited(
        result._replace(decisions=result.decisions.with_choice("audit", choice)), replace(gp, calibration=calibration)
    )


def _calibrated(request: Request, found: Fit, gp: FittedGP) -> Audited:
    """A fit without an audit, calibrated by its own rows; few rows may widen intervals, but not narrow them."""
    data, h, calibration = request.data, request.run.heuristics, None
    are_few, reason = data.train.num_rows < h.audit_from, "no rows were set aside"
    one = data.train.sample(1, request.run.rng("groups"))
    if one.time is None:
        calibration = _by_left_out_rows(request, found, gp)
    else:  # rows that are left out among others say too little about a forecast
        reason = f"fewer than {h.least_rows_to_choose} rows: too few to set the latest ones aside"
    if are_few and calibration is not None and isinstance(data.train, MemorySource):
        some = data.scaling.unscale_x(data.train.data.x[:SHOWN_ROWS].cpu().numpy())
        factor = interval_factor(Predictive.at(gp, some), calibration)
        reason = f"fewer than {h.audit_from} rows"
        calibration = calibration if factor > 1.0 else None
        _warn_if_wrong("The model is wrong about rows that were left out", factor, LARGEST_FACTOR_OF_FEW)
    if calibration is not None:
        left_out = "rows" if one.cluster is None else "groups"
        reason += f"; intervals are calibrated by {left_out} that are left out in turn"
    choice = request.pinned.audit or Choice("none", None, reason)
    return Audited(
        found._replace(decisions=found.decisions.with_choice("audit", choice)), replace(gp, calibration=calibration)
    )


def _examined(one: Fit, data: FitData, dtype: torch.dtype, rows: Rows[Array]) -> Examined:
    found = Predictive.at(posterior(one.result, data, dtype), rows.x)
    if rows.noise_variance is not None:
        found = replace(found, noise=found.noise + rows.noise_variance[:, None])
    return examine(found, rows)


def _candidates(request: Request, found: Fit) -> Iterator[tuple[str, Fit]]:
    """The fit and, unless its audit is known, those that it was made from."""
    yield THE_FIT, found
    simpler = found.result.simpler if request.pinned.audit is None else None
    while simpler is not None:
        name = "constant noise" if simpler.recipe is None else "rows not re-weighted"
        value = None if simpler.recipe is None else simpler.recipe._asdict()
        choice = replace(found.decisions.noise or Choice(name), taken=name, value=value)
        yield name, Fit(simpler, found.decisions.with_choice("noise", choice))
        simpler = simpler.simpler


def _add_simpler(
    tried: dict[str, tuple[Fit, Examined]], request: Request, rows: Rows[Array], dtype: torch.dtype
) -> None:
    """Fit what is simpler still, if every fit fails, or if a line is more likely than all of them."""
    data, options, run, limit = request.data, request.options, request.run, request.run.heuristics.audit_p_value
    exams = [exam for _, exam in tried.values()]
    refits = {}
    has_chosen_neighbors = options.n_neighbors == "auto" and tried[THE_FIT][0].result.kept is not None
    # Intervals that are too wide are no reason to fit again: a calibration narrows them.
    if run.agreed(has_chosen_neighbors and all(exam.p_value < limit and exam.coverage < LEVEL for exam in exams)):
        refits["no neighbors"] = replace(options, n_neighbors=0)
    line = _line(data, rows, run) if options.kernel in (None, "auto") else None
    if run.agreed(line is not None and all(compare(line.scores, exam.scores).is_clear for exam in exams)):
        refits["a line"] = replace(options, n_neighbors=0, kernel="linear")
    for name, changed in refits.items():
        one = fit(request._replace(options=changed))
        tried[name] = one, _examined(one, data, dtype, rows)


def _line(data: FitData, rows: Rows[Array], run: Run) -> Examined | None:
    """How the least-squares line of the rows of a fit, or of many of them, predicts audit rows."""
    some = data.train.sample(ROWS_FOR_LINE, run.rng("line"))
    x, y, weight = (as_array(values) for values in (some.x, some.y, weight_of(some)))
    if len(x) <= 2 * (x.shape[1] + 1):
        return None
    root, y = np.sqrt(weight)[:, None], y.reshape(len(y), -1)
    columns = np.hstack([np.ones((len(x), 1)), x])
    slopes = np.linalg.lstsq(root * columns, root * y, rcond=None)[0]
    variance = np.average((y - columns @ slopes) ** 2, axis=0, weights=weight) * data.scaling.y_scale**2
    new = data.scaling.scale_x(rows.x)
    mean = data.scaling.unscale_y(np.hstack([np.ones((len(new), 1)), new]) @ slopes)
    noise = np.broadcast_to(variance, mean.shape) + (
        0.0 if rows.noise_variance is None else rows.noise_variance[:, None]
    )
    return examine(Predictive(data.target, mean, np.zeros_like(mean), noise), rows)


def _chosen(tried: dict[str, Examined], h: Heuristics) -> str:
    """The first fit, unless a simpler one is clearly more likely, or passes where it fails and is no less likely."""
    taken, *others = tried
    for name in others:
        passes = tried[name].p_value >= h.audit_p_value > tried[taken].p_value
        simpler, first = tried[name].scores, tried[taken].scores
        if compare(simpler, first).is_clear or (passes and simpler.density >= first.density):
            taken = name
    return taken


def _by_left_out_rows(request: Request, found: Fit, gp: FittedGP, beside: Array | None = None) -> Calibration | None:
    """A calibration by rows of the fit that are left out, and by residuals of audit rows beside them."""
    data, h, parts = request.data, request.run.heuristics, [] if beside is None else [(beside, np.ones(len(beside)))]
    # Outliers are not among the rows of a fit, and a constant y says nothing about its spread.
    if gp.outliers is None and data.only_y is None and data.train.num_rows >= h.least_noise_rows:
        parts.append(_left_out(request, found))
    return Calibration.of(*(np.concatenate(values) for values in zip(*parts, strict=True))) if parts else None


def _left_out(request: Request, fit: Fit) -> tuple[Array, Array]:
    """Residuals of rows that are left out, and their weights.

    They are left out one by one, or group by group, in closed form. For an exact GP of few rows, they are left out of
    the kernel as well. The widths of intervals are then compared by their medians, since the fit may have a noise that
    depends on x.
    """
    found = out_of_sample(fit.result, request.data.train, request.run)
    sd = (found.f_var + found.known).sqrt()
    residuals, weight, cluster = found.error / sd[:, None], found.weight, found.cluster
    if (factor := fit.result.factor) is not None:  # each output of a row comes as a row, one after the other
        residuals, weight = residuals.reshape(-1, len(factor)), len(factor) * weight[:: len(factor)]
        has_groups = cluster is not None and len(cluster.unique()) < len(weight)  # or else each row is one
        cluster = cluster[:: len(factor)] if cluster is not None and has_groups else None
    crossed = None if factor is not None else _cross_fitted(request, fit)
    if crossed is not None:
        errors, sds, cluster = crossed
        residuals = errors / sds[:, None] * (sds.median() / sd.median())
        weight = torch.ones_like(sds)
    if cluster is not None:
        # A new row belongs to a new group, and as far as that is concerned each group is one observation.
        _, place, sizes = cluster.unique(return_inverse=True, return_counts=True)
        weight = sizes.to(torch.float64).reciprocal()[place]
    return residuals.cpu().numpy(), weight.cpu().numpy()


def _cross_fitted(request: Request, found: Fit) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Errors, standard deviations and groups of rows that had no part in the kernel, for an exact GP of few rows."""
    data, options, size = request.data, request.options, found.decisions.n_coreset
    is_exact = size is not None and isinstance(size.value, dict) and bool(size.value.get("exact"))
    if not (
        is_exact and isinstance(data.train, MemorySource) and data.train.num_rows < request.run.heuristics.audit_from
    ):
        return None
    name = options.kernel if isinstance(options.kernel, Kernel) else name_of_kernel(found.result.solution.model.kernel)
    chosen = found.decisions.kernel
    ard = options.ard if chosen is None else chosen.value["ard"]
    kernel = starting_kernel(name, len(data.scaling.x_mean), ard=ard, spread=data.spread, tied=options.sphere)
    # A period would have to be searched for.
    if periodic_parts(kernel) or data.train.group.world > 1 or not request.run.has_time:
        return None
    floor = NOISE_FLOOR if data.spread is None else NOISE_FLOOR * data.spread.y**2
    mean = starting_mean(options.mean, data.spread)
    rows = data.train.data
    return *cross_fitted_residuals(kernel, mean, rows, request.run, floor), rows.cluster


def _choice(
    taken: str, tried: dict[str, Examined], shown: Examined, calibration: Calibration | None, which: str, largest: float
) -> Choice:
    """The decision in words, with a warning if the fit that is taken is wrong."""
    factor = interval_factor(shown.predictive, calibration)
    found = f"{shown.coverage:.1%} of {which} are in the model's own 90 % intervals"
    reason = f"{found}; calibrated ones are {factor:.2f} times as wide"
    if taken != THE_FIT:
        reason = f"the first fit had {tried[THE_FIT].coverage:.1%} of unseen rows in its 90 % intervals; {reason}"
    _warn_if_wrong(f"The audit failed: {found}", factor, largest)
    scores = Choice.scored({name: exam.scores for name, exam in tried.items()})
    return Choice("passed" if taken == THE_FIT else taken, {"taken": taken}, reason, scores)


def _warn_if_wrong(what: str, factor: float, largest: float) -> None:
    """Warn if a model is too sure of itself; intervals that are too wide are narrowed without a warning."""
    if factor > largest:
        warnings.warn(
            f"{what}. Intervals and quantiles are calibrated by rows that were left out: {factor:.2f} times as wide "
            "as the model's own. Standard deviations, densities and samples are the model's, and too narrow by about "
            "this factor.",
            CVGPWarning,
            stacklevel=2,
        )


def interval_factor(found: Predictive, calibration: Calibration | None) -> float:
    """How many times as wide as the model's own calibrated 90 % intervals are, before a transform of y is undone."""
    plain, ends = replace(found, target=IDENTITY, calibration=calibration), ends_of_interval(LEVEL)
    own, calibrated = (np.diff(plain.quantiles(ends, name), axis=-1) for name in INTERVALS)
    return float(np.median(calibrated / own))
