"""The choice of a transform of y, and of a warp of the inputs, by rows that a GP of a sample has not seen.

Densities are those of y in its own units, so the slope of a transform of y counts. A warp mixes each column with its
ranks: an exact GP learns with each column and its ranks as inputs, and the ratio of their two lengthscales is the share
of the ranks. The identity is kept unless another transform is clearly better.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import bulk_of, learn_scaling, moments_of
from cvgp.data.transforms import (
    IDENTITY,
    NO_WARP,
    InputWarp,
    Path,
    TargetTransform,
    TransformName,
    WarpName,
    learn_target,
    mixed_path,
    normal_scores,
    warp_of,
)
from cvgp.errors import InvalidInputError
from cvgp.fitting.compare import Scores, compare
from cvgp.fitting.kernel import default_kernel
from cvgp.fitting.monitor import Run
from cvgp.fitting.sample import Sample, learn_sample

TargetName = Literal["auto"] | TransformName
InputWarpName = Literal["auto"] | WarpName

ROWS_FOR_POWER = 100_000
ROWS_FOR_RANKS = 20_000
SHARE_STEP = 0.05
"""Shares of ranks are multiples of this: rounding in a search must not make another model of the same rows."""

Candidates = dict[str, Scores | None]
"""Scores of unseen rows by the name of a candidate; None for one that could not be learned."""


def check_transform_names(target_transform: object, input_warp: object) -> None:
    """Raise if a transform is not a known one."""
    for name, value, known in (
        ("target_transform", target_transform, get_args(TransformName)),
        ("input_warp", input_warp, get_args(WarpName)),
    ):
        if value not in ("auto", *known):
            raise InvalidInputError(f"{name} must be one of auto, {', '.join(known)}; got {value!r}.")


def suitable_warp(
    name: InputWarpName, *, standardize: bool, kernel: str | Kernel | None, mean: str | Mean, ard: bool, solver: str
) -> InputWarpName:
    """What ``auto`` means for a model: the identity, unless a warp leaves the meaning of its prior intact.

    That is so for a kernel of distances by name with a lengthscale for each column. A line, a period, and a kernel or
    mean that is an object refer to the columns as they are.
    """
    if name not in ("auto", "identity") and not standardize:
        raise InvalidInputError(
            f"input_warp={name!r} changes the units of the columns, and standardize=False asks for those of the data. "
            "Use standardize=True, or input_warp='identity'."
        )
    by_name = not (isinstance(kernel, Kernel) or isinstance(mean, Mean))
    of_distances = by_name and not any(part in str(kernel) for part in ("linear", "periodic"))
    is_suited = standardize and of_distances and ard and solver != "paper"
    return name if name != "auto" or is_suited else "identity"


def choose_target(rows: Rows[Array], run: Run) -> tuple[TargetTransform, Candidates]:
    """The transform of y under which unseen rows are clearly most likely, and the scores of all candidates."""
    h = run.heuristics
    y_varies = bool(moments_of(rows.y, rows.sample_weight).scales.all())
    # Known noise variances are in units of y squared, which leaves only the identity.
    if len(rows.x) < h.least_rows_to_choose or not y_varies or rows.noise_variance is not None:
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
    sample = Sample.draw(rows, run.rows(h.sample_rows), run.rng("sample"))
    scores: Candidates = {transform.name: _target_scores(transform, sample, run) for transform in (IDENTITY, *others)}
    identity = scores["identity"]
    known = {name: found for name, found in scores.items() if found is not None}
    best = max(known, key=lambda name: known[name].density, default="identity")
    is_better = best != "identity" and (identity is None or compare(known[best], identity).is_clear)
    chosen = next(t for t in (IDENTITY, *others) if t.name == (best if is_better else "identity"))
    return chosen, scores


def _normal_density(transform: TargetTransform, rows: Rows[Array]) -> float:
    """Mean over rows and outputs of the log density of y, with T(y) normal."""
    scales = moments_of(transform.apply(rows.y), rows.sample_weight).scales  # [Q]
    slopes = np.average(transform.log_slope(rows.y), axis=0, weights=rows.sample_weight)
    return float((slopes - np.log(scales)).mean())


def _target_scores(transform: TargetTransform, sample: Sample, run: Run) -> Scores | None:
    """Scores of both parts, each predicted by the GP of the other; squared errors are those of the median of y."""
    parts = []
    for learning, judging in (sample, tuple(reversed(sample))):
        known, new = (rows._replace(y=transform.apply(rows.y)) for rows in (learning, judging))
        gp = learn_sample(default_kernel, known, new, run.silent(), "choose target")
        if gp is None:
            return None
        error, _ = gp.residuals(new)
        predicted = transform.invert(new.y - error * gp.scaling.y_scale)
        square = torch.as_tensor(np.square(judging.y - predicted).mean(1))
        slope = torch.as_tensor(transform.log_slope(judging.y).mean(axis=1))
        parts.append(gp.scores._replace(densities=gp.scores.densities + slope, squares=square))
    return Scores.joined(parts)


def choose_warp(name: InputWarpName, rows: Rows[Array], run: Run) -> tuple[InputWarp, Candidates]:
    """The warp of a name, learned from rows in the user's units, and the scores of the candidates of ``auto``."""
    if name == "identity":
        return NO_WARP, {}
    h, dims = run.heuristics, rows.x.shape[1]
    known = rows.take(run.rng("ranks").permutation(len(rows.x))[:ROWS_FOR_RANKS])
    ranks = {d: path for d in range(dims) if (path := normal_scores(known.x[:, d], known.sample_weight)) is not None}
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
    if len(rows.x) > run.rows(h.leave_one_out_rows):
        learning, judging = Sample.draw(rows, run.rows(h.sample_rows), run.rng("sample"))
    unseen = None if judging is None else with_ranks(judging)
    mixed = learn_sample(default_kernel, with_ranks(learning), unseen, run.silent(), "choose warp")
    if mixed is None:
        return NO_WARP, {}
    # Processes whose last digits differ must not warp in different ways.
    (lengthscales,) = run.group.first([torch.as_tensor(mixed.lengthscales)])
    warp = _mixed_warp(lengthscales.numpy(), ranks, known, h.irrelevant_column)
    if name == "mixed":
        return warp, {}
    plain = learn_sample(default_kernel, learning, judging, run.silent(), "choose warp")
    is_better = plain is None or compare(mixed.scores, plain.scores).is_clear
    scores: Candidates = {"identity": None if plain is None else plain.scores, "mixed": mixed.scores}
    return (warp if run.agreed(is_better) else NO_WARP), scores


def _mixed_warp(lengthscales: Array, ranks: dict[int, Path], rows: Rows[Array], irrelevant: float) -> InputWarp:
    """The warp that lengthscales of all columns, and of the ranks of some, imply."""
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
