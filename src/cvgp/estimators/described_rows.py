"""What a model describes: rows with a transform of y, which count by the probability that they are no outliers."""

from typing import NamedTuple

import numpy as np

from cvgp.data.rows import Array, Rows
from cvgp.data.target import IDENTITY, TargetTransform
from cvgp.estimators.transformed_rows import sum_of_log_slopes, transformed
from cvgp.gp.contamination import Contamination
from cvgp.training.monitor import Watch
from cvgp.training.target_choice import TargetName, choose_target
from cvgp.training.wild_rows import WildRows, find_wild_rows, kept_rows


class Described(NamedTuple):
    """Rows as they are fitted."""

    train: Rows[Array]
    held_out: Rows[Array] | None
    target: TargetTransform
    outliers: Contamination | None
    log_slopes: float
    """The sum over the rows of `train`, by their weights, of log T'(y)."""


def describe(
    train: Rows[Array],
    held_out: Rows[Array] | None,
    *,
    target: TargetName,
    look_for_outliers: bool,
    seed: int,
    watch: Watch,
    in_time: bool = False,
) -> Described:
    """Choose a transform of y, and find the rows that are wildly wrong.

    Outliers can look like a tail that wants a transform, and a tail like outliers. So a transform is chosen from the
    rows that are regular as they are, and if there is one, outliers are those of the transformed y. With `in_time` both
    searches keep to their shares of the time limit.
    """
    look_for_outliers = look_for_outliers and train.noise_variance is None

    def find(transform: TargetTransform) -> WildRows | None:
        if not look_for_outliers:
            return None
        every = [train] if held_out is None else [train, held_out]
        weight = np.concatenate([np.ones(len(r.x)) if r.sample_weight is None else r.sample_weight for r in every])
        x, y = (np.concatenate(parts) for parts in zip(*((r.x, r.y) for r in every), strict=True))
        return find_wild_rows(transformed(transform, Rows(x, y, weight)), seed, watch, in_time=in_time)

    wild = find(IDENTITY) if target == "auto" else None
    to_choose_by = train if wild is None else kept_rows(train, wild.probability[: len(train.x)])
    chosen = choose_target(target, to_choose_by, seed, watch, in_time=in_time)
    if chosen.name == "log" and not (train.y > 0.0).all():
        chosen = IDENTITY  # outliers are below zero
    if target != "auto" or chosen.name != "identity":
        wild = find(chosen)
    count = len(train.x)
    if wild is not None:
        train = kept_rows(train, wild.probability[:count])
        held_out = None if held_out is None else kept_rows(held_out, wild.probability[count:])
    return Described(
        transformed(chosen, train),
        None if held_out is None else transformed(chosen, held_out),
        chosen,
        None if wild is None else wild.outliers,
        sum_of_log_slopes(chosen, train),
    )
