"""Rows as a model is fitted to them: copies merged, y transformed, outliers weighted, columns warped and scaled.

Solvers suit numbers of about one. With ``standardize=True`` every column gets mean zero and variance one. Otherwise the
prior is to be that of the data as they are, which allows only changes that it cannot feel: a unit is absorbed by a
learned lengthscale or outputscale, and an origin by a kernel of differences or by a learned mean.
"""

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import (
    Scaling,
    Spread,
    constant_output_sd,
    learn_warped_scaling,
    moments_of,
    no_scaling,
)
from cvgp.data.source import DataSource, MemorySource, split
from cvgp.data.transforms import IDENTITY, InputWarp, TargetTransform, learn_target
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.monitor import Run
from cvgp.fitting.outliers import Outliers, find_outliers, regular_rows
from cvgp.fitting.transforms import Candidates, InputWarpName, TargetName, choose_target, choose_warp
from cvgp.gp.noise import Contamination
from cvgp.parallel.group import Group

FARTHEST_INPUT = 1e3
"""Inputs farther out than this many standard deviations are moved here: float64 would lose the others' digits."""
SORTED_ROWS = 100_000
"""Up to this many rows their order does not matter: minibatches shuffle more."""
MOST_NAMES = 10
"""Columns that a warning names."""
FEW_ROWS = 30
"""Weights that add up to more than this leave something to learn, however small they are."""


def merge_copies(data: Rows[Array]) -> Rows[Array]:
    """Merge equal rows into one with their summed weight, and sort.

    A weight of two and a row given twice then give the same fit, to the bit, and the order of rows does not matter.
    """
    columns = [data.x, data.y] + ([] if data.noise_variance is None else [data.noise_variance[:, None]])
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


@dataclass(frozen=True)
class ModelOptions:
    """What the user says about the model; checked."""

    kernel: str | Kernel | None = None
    mean: str | Mean = "zero"
    ard: bool = True
    noise: str = "auto"
    n_coreset: int | None = None
    """None leaves it to the fit."""
    n_neighbors: int | str = "auto"
    input_warp: InputWarpName = "auto"
    target_transform: TargetName = "identity"
    standardize: bool = True
    device: str = "cpu"


class PreparedRows(NamedTuple):
    """Rows as they are fitted, still unscaled, and what was decided about them."""

    train: Rows[Array]
    held_out: Rows[Array] | None
    target: TargetTransform
    outliers: Contamination | None
    log_slopes: float
    """The weighted sum over the rows of `train` of log T'(y)."""
    warp: InputWarp
    decisions: Decisions


def prepare_rows(
    train: Rows[Array],
    held_out: Rows[Array] | None,
    options: ModelOptions,
    run: Run,
    pinned: Decisions,
    *,
    look_for_outliers: bool,
) -> PreparedRows:
    """Decide about outliers, the transform of y and the warp of x.

    Outliers can look like a tail that needs a transform, and a tail like outliers. So a transform is chosen from the
    rows that are regular as they are, and if there is one, outliers are those of the transformed y.
    """
    train = merge_copies(train)
    every = [train] if held_out is None else [train, held_out]
    begin = run.budget.seconds
    may_have = look_for_outliers and train.noise_variance is None
    if pinned.outliers is not None:
        may_have = pinned.outliers.value is not None

    def find(transform: TargetTransform) -> Outliers | None:
        if not may_have:
            return None
        weight = np.concatenate([np.ones(len(r.x)) if r.sample_weight is None else r.sample_weight for r in every])
        x, y = (np.concatenate(parts) for parts in zip(*((r.x, r.y) for r in every), strict=True))
        return find_outliers(transformed(transform, Rows(x, y, weight)), run)

    target, outliers = IDENTITY, None
    is_open = options.target_transform == "auto" and pinned.target_transform is None
    if is_open:
        outliers = find(IDENTITY)
    target_choice = _choose_target(train, held_out, outliers, options, run, pinned)
    target = _as_transform(target_choice)
    if not is_open or target.name != "identity":
        outliers = find(target)
    seconds = run.budget.seconds - begin - target_choice.seconds
    count = len(train.x)
    if outliers is not None:
        train = regular_rows(train, outliers.probability[:count])
        held_out = None if held_out is None else regular_rows(held_out, outliers.probability[count:])
    log_slopes = sum_of_log_slopes(target, train)
    train = transformed(target, train)
    warp, warp_choice = decide_warp(train, options, run, pinned)
    decisions = Decisions(
        outliers=pinned.outliers or _outlier_choice(outliers, run, may_have=may_have, seconds=seconds),
        target_transform=target_choice,
        input_warp=warp_choice,
        seed=run.seed,
    )
    return PreparedRows(
        train,
        None if held_out is None else transformed(target, held_out),
        target,
        None if outliers is None else outliers.noise,
        log_slopes,
        warp,
        decisions,
    )


def _outlier_choice(outliers: Outliers | None, run: Run, *, may_have: bool, seconds: float) -> Choice:
    if outliers is None:
        return Choice("none", None, "" if may_have else "not looked for", seconds=seconds)
    noise, sd = outliers.noise, ", ".join(f"{value:.4g}" for value in np.sqrt(outliers.noise.variance))
    taken = f"{outliers.num_rows} of {len(outliers.probability)} rows"
    reason = f"{noise.share:.2%} of all rows, with a standard deviation of {sd}"
    run.note("choose outliers", f"{taken}: {reason}")
    return Choice(taken, {"share": noise.share, "variance": noise.variance.tolist()}, reason, seconds=seconds)


def _choose_target(
    train: Rows[Array],
    held_out: Rows[Array] | None,
    outliers: Outliers | None,
    options: ModelOptions,
    run: Run,
    pinned: Decisions,
) -> Choice:
    if pinned.target_transform is not None:
        return pinned.target_transform
    name, begin = options.target_transform, run.budget.seconds
    scores: Candidates = {}
    if name == "auto":
        rows = train if outliers is None else regular_rows(train, outliers.probability[: len(train.x)])
        chosen, scores = choose_target(rows, run.part(0.12))
        every = train.y if held_out is None else np.concatenate([train.y, held_out.y])
        if chosen.name == "log" and not (every > 0.0).all():
            chosen = IDENTITY  # outliers or held-out rows are not above 0
    else:
        chosen = learn_target(name, train.y, train.sample_weight)
    value = {
        "name": chosen.name,
        "centre": chosen.centre.tolist(),
        "unit": chosen.unit.tolist(),
        "power": chosen.power.tolist(),
    }
    reason = "" if name == "auto" else "as asked for"
    return Choice(chosen.name, value, reason, Choice.scored(scores), run.budget.seconds - begin)


def _as_transform(choice: Choice) -> TargetTransform:
    value = choice.value
    arrays = (np.asarray(value[name], dtype=np.float64) for name in ("centre", "unit", "power"))
    return TargetTransform(value["name"], *arrays)


def decide_warp(rows: Rows[Array], options: ModelOptions, run: Run, pinned: Decisions) -> tuple[InputWarp, Choice]:
    """The warp of the inputs, and the decision about it."""
    if pinned.input_warp is not None:
        value = pinned.input_warp.value
        arrays = {name: np.asarray(value[name], dtype=np.float64) for name in ("shares", "knots", "values")}
        warp = InputWarp(value["name"], counts=np.asarray(value["counts"], dtype=np.int64), **arrays)
        return warp, pinned.input_warp
    begin = run.budget.seconds
    warp, scores = choose_warp(options.input_warp, rows, run.part(0.1))
    value = {name: part if isinstance(part, str) else part.tolist() for name, part in warp._asdict().items()}
    reason = "" if scores else "as asked for" if options.input_warp != "auto" else "too few rows, or nothing to warp"
    choice = Choice(warp.name, value, reason, Choice.scored(scores), run.budget.seconds - begin)
    return warp, choice


def choose_scaling(learned: Scaling, options: ModelOptions, *, y_varies: bool = True) -> Scaling:
    """From the user's units to those of the model, given the means and standard deviations of the data.

    Without standardizing, a kernel or mean that is an object sees the data as they are. For one by name, lengthscales
    per column allow units per column, and one for all allows a common one. Outputs share a covariance, hence a unit.
    A constant column stays one. Outputs without spread cannot say what is function and what is noise: their origin is
    their value.
    """
    kernel, mean = options.kernel, options.mean
    by_name = not (isinstance(kernel, Kernel) or isinstance(mean, Mean))
    # What is linear may go on beyond any limit; a kernel of distances is at its prior long before.
    x_limit = FARTHEST_INPUT if by_name and "linear" not in str(kernel) else math.inf
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


class FitData(NamedTuple):
    """Scaled rows, and how they were made."""

    train: DataSource
    held_out: DataSource | None
    """The rows of early stopping."""
    scaling: Scaling
    spread: Spread | None
    """Of the scaled rows; None if every column has variance one."""
    only_y: Array | None
    """The outputs [Q] of all rows, if these are the same."""
    target: TargetTransform = IDENTITY
    outliers: Contamination | None = None
    """If there are outliers, the rows count by their probability of not being one."""
    log_slopes: float = 0.0
    """The sum over rows and outputs of log T'(y), by which a bound for T(y) differs from one for y."""
    decisions: Decisions = Decisions()

    @property
    def known_noise(self) -> float | None:
        """The noise variance of outputs without spread, in the model's units: that of the scale they were given."""
        if self.only_y is None:
            return None
        return 1.0 if self.spread is None else self.spread.y**2


def spread_of(scaling: Scaling, learned: Scaling) -> Spread | None:
    """The spread that a scaling leaves; None if every column has variance one."""
    as_learned = all(own is known for own, known in zip(scaling[:4], learned[:4], strict=True))
    return None if as_learned and scaling.varies.all() else Spread.left_by(scaling, learned)


def scaled_rows(rows: Rows[Array], scaling: Scaling, device: str | torch.device, group: Group) -> DataSource:
    """Rows in memory, scaled and shared out over the group."""
    whole = MemorySource(*scaling.tensors(rows, device=device))
    return whole if group.world == 1 else split(whole, group)


def memory_data(
    train: Rows[Array],
    held_out: Rows[Array] | None,
    options: ModelOptions,
    run: Run,
    pinned: Decisions,
    *,
    look_for_outliers: bool,
) -> FitData:
    """Rows in memory, ready to be fitted."""
    rows = prepare_rows(train, held_out, options, run, pinned, look_for_outliers=look_for_outliers)
    learned = learn_warped_scaling(rows.warp, rows.train)
    y_varies = bool(moments_of(rows.train.y, rows.train.sample_weight).scales.any())
    scaling = choose_scaling(learned, options, y_varies=y_varies)
    check_variance(scaling.y_scale)
    source = scaled_rows(rows.train, scaling, options.device, run.group)
    return FitData(
        source,
        None if rows.held_out is None else scaled_rows(rows.held_out, scaling, options.device, run.group),
        scaling,
        spread_of(scaling, learned),
        None if y_varies else rows.target.invert(learned.y_mean),
        rows.target,
        rows.outliers,
        rows.log_slopes,
        rows.decisions,
    )


def check_variance(y_scale: Array) -> None:
    """Raise if floating-point numbers cannot hold the variance of the outputs."""
    if y_scale.max() > 1e150 or y_scale.min() < 1e-150:
        raise InvalidInputError(
            f"y has a standard deviation of {y_scale.max():.0e}, whose square is beyond the range of floating-point "
            "numbers; give y in another unit."
        )


def warn_about(data: FitData, names: Sequence[str], quiet: Collection[str] = ()) -> None:
    """Say before the fit what the data cannot teach; constant columns among `quiet` ones are expected."""
    _warn_of_constants(data.scaling, names, data.train.num_rows, quiet)
    _warn_of_weights(data.train.total_weight, data.train.num_rows)
    _warn_of_one_output(data.only_y, data.train.total_weight)


def _warn_of_one_output(only_y: Array | None, total_weight: float) -> None:
    if only_y is None:
        return
    sd = constant_output_sd(only_y, np.full_like(only_y, total_weight))
    _warn(
        f"y is {_listed(only_y)} in every row, which says nothing about its spread. The standard deviation of "
        f"predictions is set to |y| divided by the number of rows, {_listed(sd)}."
    )


def _warn_of_weights(total_weight: float, num_rows: int) -> None:
    """Weights that make a handful of rows of many were mostly meant to compare rows."""
    if total_weight > min(num_rows / 2, FEW_ROWS):
        return
    _warn(
        f"The sample weights of {num_rows} rows add up to {total_weight:.3g}. A row of weight w counts as w rows, so "
        f"there is as little to learn as from {total_weight:.3g} rows. Weights that compare rows should have a mean of "
        "one: divide them by their mean."
    )


def _warn_of_constants(scaling: Scaling, names: Sequence[str], num_rows: int, quiet: Collection[str]) -> None:
    """Columns with one value in all of several rows."""
    pairs = zip(names, scaling.varies, strict=True)
    constant = [name for name, varies in pairs if not varies and name not in quiet]
    if num_rows == 1 or not constant:
        return
    shown = ", ".join(map(repr, constant[:MOST_NAMES])) + (", ..." if len(constant) > MOST_NAMES else "")
    what = "so the model predicts one value" if len(constant) == len(names) else "so the model leaves them out"
    _warn(
        f"Columns with one value in all rows: {shown} ({len(constant)} of {len(names)}). They teach nothing, {what}, "
        "and no prediction depends on them."
    )


def _listed(values: Array) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _warn(text: str) -> None:
    warnings.warn(text, CVGPWarning, stacklevel=5)
