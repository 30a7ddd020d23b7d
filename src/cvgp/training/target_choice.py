"""The choice of a transform of y: an exact GP of some rows is learned under each, and the density of others decides.

Densities are of y in its own units, so the slope of the transform counts. The identity keeps its place unless another
transform is clearly better.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from gpytorch.means import ZeroMean
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import bulk_of, learn_scaling, moments_of
from cvgp.data.target import IDENTITY, TargetTransform, TransformName, learn_target
from cvgp.errors import FactorisationError, InvalidInputError
from cvgp.host import kept_warnings
from cvgp.optim.stopping import Progress
from cvgp.training.candidates import Start
from cvgp.training.densities import is_clearly_better, weighted_mean
from cvgp.training.kernel_search import START_NOISE, learn_exactly
from cvgp.training.monitor import Watch
from cvgp.training.start import starting_kernel

TargetName = Literal["auto"] | TransformName

LEAST_ROWS = 200
"""With fewer rows nothing can be said of the tails of y."""
PART_ROWS, EVALUATIONS = 500, 20
"""Rows of each of two parts: each is learned from once and judged by once."""
ROWS_FOR_POWER = 100_000
STANDARD_ERRORS = 2.0
"""A transform is used if its gain is more than so many standard errors."""
SHARE_OF_TIME = 0.12
"""Of a time limit, what the choice may take."""
LEAST_GAIN = 0.01
"""Nats per row. A transform that makes y as a whole no more normal than this is not tried."""


class Judged(NamedTuple):
    """A transform, and how likely it makes rows that were not learned from."""

    transform: TargetTransform
    densities: list[tuple[Tensor, Rows[Tensor]]]
    """Log densities of y in its own units, with their rows, for each part."""

    @property
    def density(self) -> float:
        """Their mean, in nats per row."""
        return sum(weighted_mean(values, rows) for values, rows in self.densities) / len(self.densities)


def check_target_name(name: object) -> None:
    """Refuse a transform that there is not."""
    names = ("auto", *get_args(TransformName))
    if name not in names:
        raise InvalidInputError(f"target must be one of {', '.join(names)}; got {name!r}.")


@torch.enable_grad()  # also for a caller that has switched gradients off
def choose_target(
    name: TargetName, rows: Rows[Array], seed: int, watch: Watch, *, in_time: bool = False
) -> TargetTransform:
    """The transform of a name, learned from rows in the user's units; with 'auto', the one that suits them best.

    Parameters
    ----------
    name
        As the user gives it.
    rows
        Those of the fit. Known noise variances are in units of y squared, which leaves only the identity.
    seed
        Draws the rows that are learned from and judged by.
    watch
        Records what was chosen.
    in_time
        Whether to keep to a share of the time limit. A run that goes on later with another limit must make the same
        choice, and does not.
    """
    if name != "auto":
        return learn_target(name, rows.y, rows.sample_weight)
    y_varies = bool(moments_of(rows.y, rows.sample_weight).scales.all())
    if len(rows.x) < LEAST_ROWS or not y_varies or rows.noise_variance is not None:
        return IDENTITY
    rng = np.random.default_rng(seed)
    names: Sequence[TransformName] = ("log", "yeo-johnson") if (rows.y > 0.0).all() else ("yeo-johnson",)
    others = _worth_trying(names, rows.take(rng.permutation(len(rows.x))[:ROWS_FOR_POWER]))
    if not others:
        return IDENTITY
    order = rng.permutation(len(rows.x))
    half = min(watch.some_of(PART_ROWS) if in_time else PART_ROWS, len(order) // 2)
    parts = rows.take(order[:half]), rows.take(order[half : 2 * half])
    count = 2 * (1 + len(others))
    watches = watch.shares(SHARE_OF_TIME, count) if in_time else (Watch() for _ in range(count))
    judged = [_judge(transform, *parts, watches) for transform in (IDENTITY, *others)]
    chosen = _clearly_best(judged)
    # Processes whose last digits differ must not fit different transforms.
    (first,) = watch.group.first([torch.tensor(float(chosen), dtype=torch.float64)])
    best = judged[int(first)]
    _report(judged, best, watch)
    return best.transform


def _worth_trying(names: Sequence[TransformName], rows: Rows[Array]) -> list[TargetTransform]:
    """Transforms under which y as a whole is more like a normal variable."""
    transforms = [learn_target(name, rows.y, rows.sample_weight) for name in names]
    return [t for t in transforms if _normal_density(t, rows) > _normal_density(IDENTITY, rows) + LEAST_GAIN]


def _normal_density(transform: TargetTransform, rows: Rows[Array]) -> float:
    """Mean over rows and outputs of the log density of y, with T(y) normal."""
    scales = moments_of(transform.apply(rows.y), rows.sample_weight).scales  # [Q]
    slopes = np.average(transform.log_slope(rows.y), axis=0, weights=rows.sample_weight)
    return float((slopes - np.log(scales)).mean())


def _densities(transform: TargetTransform, learning: Rows[Array], judging: Rows[Array], watch: Watch) -> Tensor:
    """Log density of y in its own units at each row of `judging`, by an exact GP of `learning`."""
    known = learning._replace(y=transform.apply(learning.y))
    bulk = bulk_of(known.x, known.sample_weight)
    scaling = learn_scaling(known.x, known.y, known.sample_weight, bulk)
    new = scaling.tensors(judging._replace(y=transform.apply(judging.y)))
    dims = len(scaling.x_mean)
    start = Start(starting_kernel(None, dims, ard=True), ZeroMean(), START_NOISE, -math.inf)
    try:
        with kept_warnings():
            learned = learn_exactly(start, scaling.tensors(known), new, watch, "start target", EVALUATIONS)
    except (FactorisationError, FloatingPointError):
        return torch.full((len(judging.x),), -math.inf, dtype=torch.float64)  # what cannot be learned loses
    assert learned.densities is not None, "a start that has learned has been judged"
    slope = (transform.log_slope(judging.y) - np.log(scaling.y_scale)).mean(axis=1)  # [n]
    return learned.densities + torch.as_tensor(slope)


def _judge(transform: TargetTransform, first: Rows[Array], second: Rows[Array], watches: Iterator[Watch]) -> Judged:
    parts = ((second, first), (first, second))
    return Judged(transform, [(_densities(transform, *pair, next(watches)), _as_tensors(pair[1])) for pair in parts])


def _clearly_best(judged: Sequence[Judged]) -> int:
    """The transform with the highest density, if it is clearly better than the identity on both parts.

    One part may have a few rows that decide alone; two of them seldom agree by chance.
    """
    identity, best = judged[0], max(judged, key=lambda one: one.density)
    is_clear = all(
        is_clearly_better(own, other, rows, errors=STANDARD_ERRORS)
        for (own, rows), (other, _) in zip(best.densities, identity.densities, strict=True)
    )
    return judged.index(best) if is_clear else 0


def _as_tensors(rows: Rows[Array]) -> Rows[Tensor]:
    return Rows(*(None if values is None else torch.as_tensor(values) for values in rows))  # type: ignore[arg-type]


def _report(judged: Sequence[Judged], best: Judged, watch: Watch) -> None:
    """Write the choice into the history, where callbacks see it too."""
    tried = ", ".join(f"{one.density:.3f} with {one.transform.name}" for one in judged if one is not best)
    choice = f"target {best.transform.name}: {best.density:.3f} nats per unseen row, and {tried}"
    watch.begin("start target", 1)
    watch.observe(Progress(1, -best.density, math.nan, choice))
