"""Rows as a model is fitted to them: copies merged, y transformed, outliers weighted, columns warped and scaled.

Without standardizing, rows are scaled only in ways that the prior absorbs, so that it stays that of the data.
"""

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import (
    Scaling,
    Spread,
    bulk_of,
    constant_output_sd,
    learn_scaling,
    learn_warped_scaling,
    moments_of,
    no_scaling,
)
from cvgp.data.source import DataSource, MemorySource, split
from cvgp.data.transforms import (
    IDENTITY,
    NO_WARP,
    InputWarp,
    Path,
    TargetTransform,
    TransformName,
    learn_target,
    mixed_path,
    normal_scores,
    warp_of,
)
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.fitting.compare import Comparison, Scores, compare
from cvgp.fitting.decisions import Choice, Decisions, from_value, to_value
from cvgp.fitting.monitor import Run
from cvgp.fitting.options import InputWarpName, ModelOptions, TargetName
from cvgp.fitting.outliers import Outliers, find_outliers, regular_rows
from cvgp.fitting.sample import SampleGP, draw_halves, learn_correlation, learn_sample, weigh_clusters
from cvgp.gp.noise import Contamination
from cvgp.parallel.group import Group

ROWS_FOR_POWER = 100_000
ROWS_FOR_RANKS = 20_000
SHARE_STEP = 0.05  # shares of ranks are multiples of this, so that rounding in a search does not change the model
FARTHEST_INPUT = 1e3  # standard deviations; farther inputs are moved here, or the others would lose their digits
SORTED_ROWS = 100_000  # up to this many rows their order does not matter

Candidates = dict[str, Scores | None]  # by name; None for one that could not be learned


class FitData(NamedTuple):
    """Scaled rows, and how they were made."""

    train: DataSource
    held_out: DataSource | None
    scaling: Scaling
    spread: Spread | None  # of the scaled rows; None if every column has variance one
    only_y: Array | None  # [Q], the outputs of all rows if these are the same
    target: TargetTransform = IDENTITY
    outliers: Contamination | None = None
    log_slopes: float = 0.0  # sum of log T'(y), by which a bound for T(y) differs from one for y
    decisions: Decisions = Decisions()

    @property
    def known_noise(self) -> float | None:
        """The noise variance of outputs without spread, in the model's units: that of the scale they were given."""
        if self.only_y is None:
            return None
        return 1.0 if self.spread is None else self.spread.y**2


def memory_data(
    train: Rows[Array],
    held_out: Rows[Array] | None,
    options: ModelOptions,
    run: Run,
    pinned: Decisions,
    audited: Rows[Array] | None = None,
    *,
    look_for_outliers: bool,
) -> FitData:
    """Rows in memory, ready to be fitted: decide about outliers, the transform of y and the warp of x, and scale.

    The rows that are audited must be possible under the transform of y, and are not used otherwise.
    """
    check_fingerprints(train.x, options.kernel)
    train = merge_copies(train)
    if train.cluster is not None and train.time is None:
        train = weigh_clusters(train, learn_correlation(train, run))
    every = [train] if held_out is None else [train, held_out]
    begin, count = run.budget.seconds, len(train.x)
    may_have = look_for_outliers and train.noise_variance is None
    if pinned.outliers is not None:
        may_have = pinned.outliers.value is not None

    def find(transform: TargetTransform) -> Outliers | None:
        if not may_have:
            return None
        weight = np.concatenate([np.ones(len(r.x)) if r.sample_weight is None else r.sample_weight for r in every])
        x, y = (np.concatenate(parts) for parts in zip(*((r.x, r.y) for r in every), strict=True))
        return find_outliers(transformed(transform, Rows(x, y, weight)), run)

    is_open = options.target_transform == "auto" and pinned.target_transform is None
    outliers = find(IDENTITY) if is_open else None
    positive = every if audited is None else [*every, audited]
    target, target_choice = _decide_target(positive, outliers, options, run, pinned)
    if audited is not None:
        transformed(target, audited)
    target = target.with_limits(np.concatenate([part.y for part in positive]))
    if not is_open or target.name != "identity":
        outliers = find(target)
    seconds = run.budget.seconds - begin - target_choice.seconds
    if outliers is not None:
        train = regular_rows(train, outliers.probability[:count])
        held_out = None if held_out is None else regular_rows(held_out, outliers.probability[count:])
        run.note("choose outliers", outliers.about)
    log_slopes = sum_of_log_slopes(target, train)
    train = transformed(target, train)
    warp, warp_choice = decide_warp(train, options, run, pinned)
    found = pinned.outliers or Choice("none", None, "" if may_have else "not looked for", seconds=seconds)
    if outliers is not None and pinned.outliers is None:
        reason = f"{outliers.about}; means ignore them, and intervals allow for their share"
        found = Choice(f"{outliers.num_rows} rows", to_value(outliers.noise), reason, seconds=seconds)
    learned = learn_warped_scaling(warp, train).with_common_scale(options.sphere)
    y_varies = bool(moments_of(train.y, train.sample_weight).scales.any())
    scaling = choose_scaling(learned, options, y_varies=y_varies)
    check_variance(scaling.y_scale)
    held_out = None if held_out is None else transformed(target, held_out)
    return FitData(
        scaled_rows(train, scaling, options.device, run.group),
        None if held_out is None else scaled_rows(held_out, scaling, options.device, run.group),
        scaling,
        spread_of(scaling, learned),
        None if y_varies else target.invert(learned.y_mean),
        target,
        None if outliers is None else outliers.noise,
        log_slopes,
        Decisions(outliers=found, target_transform=target_choice, input_warp=warp_choice, seed=run.seed),
    )


def _decide_target(
    every: Sequence[Rows[Array]], outliers: Outliers | None, options: ModelOptions, run: Run, pinned: Decisions
) -> tuple[TargetTransform, Choice]:
    if pinned.target_transform is not None:
        return from_value(TargetTransform, pinned.target_transform.value), pinned.target_transform
    begin, rows, reason = run.budget.seconds, every[0], "as asked for"
    scores: Candidates = {}
    if options.target_transform == "auto":
        rows = rows if outliers is None else regular_rows(rows, outliers.probability[: len(rows.x)])
        chosen, scores = choose_target(rows, run.part(0.12))
        reason = "" if scores else "no transform makes y more normal, or rows (or groups) are too few"
        if chosen.name == "log" and not all((rows.y > 0.0).all() for rows in every):
            chosen = IDENTITY  # outliers or rows that are held out are not above 0
    else:
        chosen = learn_target(options.target_transform, rows.y, rows.sample_weight)
    return chosen, Choice(chosen.name, to_value(chosen), reason, Choice.scored(scores), run.budget.seconds - begin)


def decide_trends(rows: Rows[Array], trends: Mapping[str, int], run: Run, pinned: Decisions) -> Choice | None:
    """Decide whether to leave out the trends of dates, which are features by column; None if there are none.

    New rows usually come after the training rows, where a kernel with a trend returns to its prior mean and loses the
    season as well. So a trend must improve the predictions of the latest rows from the earlier ones. If it makes no
    difference there, it must clearly improve those of rows drawn at random.
    """
    if not trends:
        return None
    if pinned.dates is not None:
        unknown = [name for name in pinned.dates.value if name not in trends]
        if unknown:
            raise InvalidInputError(f"The pinned decision about dates is for other columns: {', '.join(unknown)}.")
        return pinned.dates
    h, begin, some = run.heuristics, run.budget.seconds, run.part(0.05)
    if len(rows.x) < h.least_rows_to_choose:
        return Choice("with trend", [], "too few rows")
    scores: Candidates = {}

    def gain(label: str, learning: Rows[Array], judging: Rows[Array]) -> Comparison | None:
        """How much more likely the trends make the judging rows."""
        places = list(trends.values())
        a, b = (part._replace(x=np.delete(part.x, places, axis=1)) for part in (learning, judging))
        kept, without = learn_sample(learning, judging, some), learn_sample(a, b, some)
        scores.update({f"{label} with trend": kept and kept.scores, f"{label} without": without and without.scores})
        return None if kept is None or without is None else compare(kept.scores, without.scores)

    order = np.argsort(rows.x[:, next(iter(trends.values()))], kind="stable")
    cut, rng, most = round((1.0 - h.latest_share) * len(order)), some.rng("dates"), some.rows(h.sample_rows)
    later = gain("later rows", *(rows.take(rng.permutation(part)[:most]) for part in (order[:cut], order[cut:])))
    is_kept = later is None or later.is_likelier(margin=h.least_trend_gain)
    if later is not None and not is_kept and later.gain > -later.gain_error:
        between = gain("all rows", *draw_halves(rows, most, some.rng("sample")))
        is_kept = between is None or between.is_clear
    taken, names = ("with trend", []) if run.agreed(is_kept) else ("without trend", list(trends))
    return Choice(taken, names, "", Choice.scored(scores), run.budget.seconds - begin)


def decide_warp(rows: Rows[Array], options: ModelOptions, run: Run, pinned: Decisions) -> tuple[InputWarp, Choice]:
    """The warp of the inputs, and the decision about it."""
    if pinned.input_warp is not None:
        return from_value(InputWarp, pinned.input_warp.value), pinned.input_warp
    begin = run.budget.seconds
    warp, scores = choose_warp(options.input_warp, rows, run.part(0.1), options.sphere)
    reason = "" if scores else "as asked for" if options.input_warp != "auto" else "too few rows, or nothing to warp"
    return warp, Choice(warp.name, to_value(warp), reason, Choice.scored(scores), run.budget.seconds - begin)


def merge_copies(data: Rows[Array]) -> Rows[Array]:
    """Merge equal rows into one with their summed weight, and sort, so that the order of rows does not matter."""
    beside = (data.noise_variance, data.cluster, data.exposure, data.time)
    columns = [data.x, data.y, *(part[:, None] for part in beside if part is not None)]
    table = np.ascontiguousarray(np.hstack(columns)) + 0.0  # -0 and 0 are equal
    # Rows are compared as strings of bytes, which costs less than column by column.
    keys = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).reshape(-1)
    _, first, where = np.unique(keys, return_index=True, return_inverse=True)
    weight = np.bincount(where.reshape(-1), weights=data.sample_weight, minlength=len(first)).astype(np.float64)
    # In an order that no change of units or of the order of rows changes; too many rows stay in their own.
    order = np.lexsort(table[first].T[::-1]) if len(first) <= SORTED_ROWS else np.argsort(first)
    merged, weight = data._replace(sample_weight=None).take(first[order]), weight[order]
    return merged if (weight == 1.0).all() else merged._replace(sample_weight=weight)


def transformed(target: TargetTransform, rows: Rows[Array]) -> Rows[Array]:
    """Rows with T(y), which must be finite; known noise variances, in units of y squared, allow only the identity."""
    if target.name != "identity" and rows.noise_variance is not None:
        raise InvalidInputError(
            f"noise_variance is in the units of y squared, and a model with target_transform={target.name!r} has other "
            "units. Fit with target_transform='identity', or transform y and its noise variances before the fit."
        )
    y = target.apply(rows.y)
    if not np.isfinite(y).all():
        raise InvalidInputError(
            f"The model takes the logarithm of y, so y must be above 0; got {rows.y.min():g}. Leave such rows out, or "
            "fit with target_transform='yeo-johnson' or 'identity'."
        )
    return rows._replace(y=y)


def sum_of_log_slopes(target: TargetTransform, rows: Rows[Array]) -> float:
    """The weighted sum over rows and outputs of log T'(y)."""
    if target.name == "identity":
        return 0.0
    slopes = target.log_slope(rows.y).sum(axis=1)
    return float(slopes.sum() if rows.sample_weight is None else rows.sample_weight @ slopes)


def suitable_warp(options: ModelOptions, solver: str) -> InputWarpName:
    """What ``auto`` means for a model: the identity, unless a warp leaves the meaning of its prior intact."""
    name = options.input_warp
    as_they_are = "standardize=False" if not options.standardize else "kernel='tanimoto'"
    if name not in ("auto", "identity") and (not options.standardize or is_of_fingerprints(options.kernel)):
        raise InvalidInputError(
            f"input_warp={name!r} changes the units of the columns, and {as_they_are} asks for those of the data. "
            f"Fit without {as_they_are}, or with input_warp='identity'."
        )
    return name if name != "auto" or (options.ard and _has_free_units(options, solver)) else "identity"


def suitable_target(options: ModelOptions, solver: str) -> TargetName:
    """What ``auto`` means for a model: the identity, unless a transform leaves the meaning of its prior intact."""
    name = options.target_transform
    return name if name != "auto" or _has_free_units(options, solver) else "identity"


def _has_free_units(options: ModelOptions, solver: str) -> bool:
    """Whether a model says nothing about units: a kernel of distances by name, fitted to standardized rows."""
    kernel = options.kernel
    by_name = not (isinstance(kernel, Kernel) or isinstance(options.mean, Mean))
    of_distances = by_name and not any(part in str(kernel) for part in ("linear", "periodic", "tanimoto"))
    return options.standardize and of_distances and solver != "paper"


def choose_target(rows: Rows[Array], run: Run) -> tuple[TargetTransform, Candidates]:
    """The transform of y under which unseen rows are clearly most likely, and the scores of all candidates."""
    h = run.heuristics
    y_varies = bool(moments_of(rows.y, rows.sample_weight).scales.all())
    independent = len(rows.x if rows.cluster is None or rows.time is not None else np.unique(rows.cluster))
    # Known noise variances are in units of y squared, which leaves only the identity.
    if independent < h.least_rows_to_choose or not y_varies or rows.noise_variance is not None:
        return IDENTITY, {}
    rng = run.rng("target")
    names: Sequence[TransformName] = ("log", "yeo-johnson") if (rows.y > 0.0).all() else ("yeo-johnson",)
    some = rows.take(rng.permutation(len(rows.x))[:ROWS_FOR_POWER])
    others = [learn_target(name, some.y, some.sample_weight) for name in names]
    plain = _normal_density(IDENTITY, some)
    # A transform that makes y as a whole no more normal is not tried.
    others = [transform for transform in others if _normal_density(transform, some) > plain + h.least_transform_gain]
    if not others:
        return IDENTITY, {}
    parts = draw_halves(rows, run.rows(h.sample_rows), run.rng("sample"))
    scores: Candidates = {transform.name: _target_scores(transform, *parts, run) for transform in (IDENTITY, *others)}
    identity = scores["identity"]
    known = {name: found for name, found in scores.items() if found is not None}
    best = max(known, key=lambda name: known[name].density, default="identity")
    is_better = best != "identity"
    if is_better and identity is not None:  # clearly likelier, by enough for a sample to tell, and hardly less accurate
        change = compare(known[best], identity)
        is_better = change.is_clear and change.gain > h.margin and change.square_gain > -change.square_error
    chosen = next(t for t in (IDENTITY, *others) if t.name == (best if is_better else "identity"))
    return chosen, scores


def _normal_density(transform: TargetTransform, rows: Rows[Array]) -> float:
    scales = moments_of(transform.apply(rows.y), rows.sample_weight).scales  # [Q]
    slopes = np.average(transform.log_slope(rows.y), axis=0, weights=rows.sample_weight)
    return float((slopes - np.log(scales)).mean())


def _target_scores(transform: TargetTransform, a: Rows[Array], b: Rows[Array], run: Run) -> Scores | None:
    """Scores of both parts, each predicted by the GP of the other; squared errors are those of the median of y.

    Rows with a time are not predicted by later ones.
    """
    parts = []
    for learning, judging in ((a, b), (b, a)) if a.time is None else ((a, b),):
        known, new = (rows._replace(y=transform.apply(rows.y)) for rows in (learning, judging))
        gp = learn_sample(known, new, run)
        if gp is None:
            return None
        error, _ = gp.residuals(new)
        predicted = transform.invert(new.y - error * gp.scaling.y_scale)
        square = torch.as_tensor(np.square(judging.y - predicted).mean(1))
        slope = torch.as_tensor(transform.log_slope(judging.y).mean(axis=1))
        parts.append(gp.scores._replace(densities=gp.scores.densities + slope, squares=square))
    return Scores.join(parts)


def choose_warp(
    name: InputWarpName, rows: Rows[Array], run: Run, unwarped: Collection[int] = ()
) -> tuple[InputWarp, Candidates]:
    """The warp of a name, learned from rows in the user's units, and the scores of the candidates of ``auto``."""
    if name == "identity":
        return NO_WARP, {}
    h, dims = run.heuristics, rows.x.shape[1]
    known = rows.take(run.rng("ranks").permutation(len(rows.x))[:ROWS_FOR_RANKS])
    found = {d: normal_scores(known.x[:, d], known.sample_weight) for d in range(dims) if d not in unwarped}
    ranks = {d: path for d, path in found.items() if path is not None}
    if name == "rank":
        return warp_of("rank", np.ones(dims), ranks), {}
    y_varies = bool(moments_of(rows.y, rows.sample_weight).scales.all())
    if not ranks or not y_varies or (name == "auto" and len(rows.x) < h.least_rows_to_choose):
        return NO_WARP, {}
    columns = sorted(ranks)

    def with_ranks(part: Rows[Array]) -> Rows[Array]:
        return part._replace(x=np.hstack([part.x, *(ranks[d].apply(part.x[:, d])[:, None] for d in columns)]))

    learning: Rows[Array] = rows
    judging: Rows[Array] | None = None  # few rows are left out one by one
    if len(rows.x) > run.rows(h.leave_one_out_rows) or rows.time is not None:
        learning, judging = draw_halves(rows, run.rows(h.sample_rows), run.rng("sample"))

    def learned(change: Callable[[Rows[Array]], Rows[Array]]) -> SampleGP | None:
        return learn_sample(change(learning), None if judging is None else change(judging), run)

    both = learned(with_ranks)
    if both is None:
        return NO_WARP, {}
    # Processes whose last digits differ must not warp in different ways.
    (own,) = run.group.first([both.start.kernel.base_kernel.lengthscale.detach().reshape(-1)])
    lengthscales = own.numpy() * np.where(both.scaling.varies, both.scaling.x_scale, 1.0)  # in the units of the inputs
    warp = _mixed_warp(lengthscales, ranks, known, h.irrelevant_column)
    if name == "mixed" or warp is NO_WARP:
        return warp, {}
    plain, mixed = learned(lambda part: part), learned(lambda part: part._replace(x=warp.apply(part.x)))
    is_better = mixed is not None and (plain is None or compare(mixed.scores, plain.scores).is_clear)
    scores = {key: None if gp is None else gp.scores for key, gp in (("identity", plain), ("mixed", mixed))}
    return (warp if run.agreed(is_better) else NO_WARP), scores


def _mixed_warp(lengthscales: Array, ranks: dict[int, Path], rows: Rows[Array], irrelevant: float) -> InputWarp:
    dims = rows.x.shape[1]
    plain = learn_scaling(rows.x, rows.y, rows.sample_weight, bulk_of(rows.x, rows.sample_weight))
    of_ranks = dict(zip(sorted(ranks), lengthscales[dims:], strict=True))
    slopes = {d: (plain.x_scale[d] / lengthscales[d], 1.0 / of_ranks[d]) for d in ranks}
    least = irrelevant * max(map(max, slopes.values()))
    shares, paths = np.zeros(dims), {}
    for d, path in ranks.items():
        by_value, by_rank = slopes[d]
        if max(by_value, by_rank) > least:
            shares[d] = SHARE_STEP * round(by_rank / (by_value + by_rank) / SHARE_STEP)
        if shares[d] > 0.0:
            paths[d] = mixed_path(path, shares[d], plain.x_mean[d], plain.x_scale[d])
    return warp_of("mixed", shares, paths)


def choose_scaling(learned: Scaling, options: ModelOptions, *, y_varies: bool = True) -> Scaling:
    """From the user's units to those of the model, given the means and standard deviations of the data."""
    kernel, mean = options.kernel, options.mean
    by_name = not (isinstance(kernel, Kernel) or isinstance(mean, Mean))
    if is_of_fingerprints(kernel):  # taken as they are; a feature that all rows have is one that they share
        learned = learned._replace(x_mean=np.zeros_like(learned.x_mean), x_scale=np.ones_like(learned.x_scale))
    # What is linear may go on beyond any limit; a kernel of distances is at its prior long before.
    is_bounded = by_name and not (is_of_fingerprints(kernel) or "linear" in str(kernel))
    x_limit = FARTHEST_INPUT if is_bounded else math.inf
    if options.standardize:
        return learned._replace(x_limit=x_limit)
    varies = learned.varies
    if not by_name:
        plain = no_scaling(len(learned.x_mean), len(learned.y_mean))
        return plain._replace(x_mean=np.where(varies, 0.0, learned.x_mean), x_scale=np.where(varies, 1.0, 0.0))
    x_mean = np.where(varies, 0.0, learned.x_mean) if kernel == "linear" else learned.x_mean
    x_scale = learned.x_scale if options.ard else np.where(varies, learned.x_scale.max(), 0.0)
    y_mean = learned.y_mean if mean == "constant" or not y_varies else np.zeros_like(learned.y_mean)
    return Scaling(x_mean, x_scale, y_mean, np.full_like(learned.y_scale, learned.y_scale.max()), x_limit)


def is_of_fingerprints(kernel: object) -> bool:
    """Whether a kernel by name compares bits or counts as they are."""
    return isinstance(kernel, str) and "tanimoto" in kernel


def check_fingerprints(x: Array, kernel: object) -> None:
    """Raise if a kernel of fingerprints is given negative numbers."""
    if is_of_fingerprints(kernel) and (x < 0.0).any():
        raise InvalidInputError(
            f"kernel='tanimoto' compares fingerprints, whose bits or counts are at least 0; got {np.nanmin(x):g}. Give "
            "them as they are, without standardizing them, and no other columns."
        )


def spread_of(scaling: Scaling, learned: Scaling) -> Spread | None:
    """The spread that a scaling leaves; None if every column has variance one."""
    as_learned = all(own is known for own, known in zip(scaling[:4], learned[:4], strict=True))
    return None if as_learned and scaling.varies.all() else Spread.left_by(scaling, learned)


def scaled_rows(rows: Rows[Array], scaling: Scaling, device: str | torch.device, group: Group) -> DataSource:
    """Rows in memory, scaled and shared out over the group."""
    whole = MemorySource(*scaling.tensors(rows, device=device))
    return whole if group.world == 1 else split(whole, group)


def check_variance(y_scale: Array) -> None:
    """Raise if floating-point numbers cannot hold the variance of the outputs."""
    if y_scale.max() > 1e150 or y_scale.min() < 1e-150:
        raise InvalidInputError(
            f"y has a standard deviation of {y_scale.max():.0e}, whose square is beyond the range of floating-point "
            "numbers; give y in another unit."
        )


def warn_about(data: FitData, names: Sequence[str], quiet: Collection[str] = ()) -> None:
    """Say before the fit what the data cannot teach; constant columns among `quiet` ones are expected."""
    rows, weight, found = data.train.num_rows, data.train.total_weight, list[str]()
    pairs = zip(names, data.scaling.varies, strict=True)
    constant = [name for name, varies in pairs if not varies and name not in quiet]
    if rows > 1 and constant:
        shown = ", ".join(map(repr, constant[:10])) + (", ..." if len(constant) > 10 else "")
        found.append(
            f"Columns with one value in all rows: {shown} ({len(constant)} of {len(names)}). They teach nothing, so "
            "the model leaves them out, and no prediction depends on them."
        )
    # Weights that make a handful of rows of many were mostly meant to compare rows.
    if weight <= min(rows / 2, 30):
        found.append(
            f"The sample weights of {rows} rows add up to {weight:.3g}, and one of weight w counts as w rows. Weights "
            "that compare rows should have a mean of one: divide them by their mean."
        )
    if data.only_y is not None:
        sd = constant_output_sd(data.only_y, np.full_like(data.only_y, weight))
        value, spread = (", ".join(f"{number:.4g}" for number in numbers) for numbers in (data.only_y, sd))
        found.append(
            f"y is {value} in every row, which says nothing about its spread. The standard deviation of predictions is "
            f"set to |y| divided by the number of rows, {spread}."
        )
    for text in found:
        warnings.warn(text, CVGPWarning, stacklevel=3)
