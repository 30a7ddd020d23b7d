"""What should make a reader careful: about the model, about the rows, and about both together."""

from __future__ import annotations

import numpy as np

from cvgp.data.rows import Array
from cvgp.estimators.training_summary import LEVELS, FeatureQuantiles
from cvgp.plots.drawing import UNUSED, shortened, some_rows
from cvgp.report.facts import Facts

NEAR_FLOOR = 2.0
"""A noise variance of at most this many times the smallest one is at its floor."""
BEYOND = 0.05
"""A value is outside the range of the fit if it is beyond it by this share of the range."""
DIFFERENT = 0.1
"""Distributions differ if the largest difference of their shares is more than this, beside what chance allows."""
SAME = 0.2
"""If more than this share of the rows are training rows, the scores are too good."""
MOST_NAMED = 5
PART_ROWS = 10_000
"""Training rows that are compared at a time."""


def cautions(facts: Facts) -> list[str]:
    """All cautions, in plain words."""
    return [*_about_the_model(facts), *_about_the_rows(facts), *_about_the_scores(facts)]


def _about_the_model(facts: Facts) -> list[str]:
    model, found = facts.model, list[str]()
    if facts.noise_over_floor <= NEAR_FLOOR:
        found.append(
            "The noise is at its floor: the model takes the observations as exact. Duplicated rows, or a target that "
            "is a function of the columns, can cause this; check that no column gives the target away."
        )
    beta = model.coreset_.beta
    unused = int((beta < UNUSED * beta.mean()).sum())
    if unused:
        found.append(f"{unused} of {len(beta)} pseudo-points have next to no weight; prune() drops them.")
    if not model.converged_:
        found.append("Training stopped before it converged; a longer fit may be better.")
    if model.outlier_share_ > 0:
        found.append(f"{model.outlier_share_:.1%} of the training rows were gross outliers and hardly count.")
    return found


def _about_the_rows(facts: Facts) -> list[str]:
    found = list[str]()
    if (same := _share_of_known(facts)) > SAME:
        found.append(f"{same:.0%} of these rows are training rows, so the scores are better than on new rows.")
    seen = facts.seen
    if seen is None:
        return [*found, "The model does not know the range of its training rows, so drift was not looked for."]
    outside, drifted = dict[str, str](), dict[str, str]()
    for column in facts.columns:
        x, quantiles = facts.x[:, column.features], seen.x[:, column.features]
        if not column.categories and (count := _num_outside(x, quantiles)):
            outside[column.name] = "1 row" if count == 1 else f"{count} rows"
        if (far := _drift(x, seen, column.features, is_text=bool(column.categories))) is not None:
            drifted[column.name] = f"{far:.0%}"
    if outside:
        found.append(
            f"Inputs outside the range of the training rows: {_listed(outside)}. Predictions there fall back to the "
            "prior."
        )
    if drifted:
        found.append(
            f"These rows differ from the training rows in the distribution of {_listed(drifted)} (the largest "
            "difference of shares). Scores on such rows say little about others."
        )
    target = seen.y[:, facts.output]
    far = distance(target, facts.observed)
    if far > _limit(target, seen.num_rows, len(facts.y)):
        found.append(
            f"The target is distributed differently than in the training rows (the largest difference of shares is "
            f"{far:.0%})."
        )
    return found


def _about_the_scores(facts: Facts) -> list[str]:
    own, found = facts.scores["cvgp"], list[str]()
    for name, words in (("constant", "A constant"), ("linear", "A line"), ("boosting", "Gradient boosting")):
        if name in facts.scores and own["rmse"] > 1.02 * facts.scores[name]["rmse"]:
            found.append(f"{words} has a lower RMSE on these rows than the model.")
    chance = 3.0 * np.sqrt(0.95 * 0.05 / len(facts.y))
    if abs(own["coverage_95"] - 0.95) > chance + 0.5 / len(facts.y):
        width = "narrow" if own["coverage_95"] < 0.95 else "wide"
        found.append(
            f"The 95 % intervals hold {own['coverage_95']:.1%} of the observations: they are too {width} here."
        )
    return found


def _listed(named: dict[str, str]) -> str:
    shown = [f"“{shortened(name)}” ({words})" for name, words in list(named.items())[:MOST_NAMED]]
    left = len(named) - len(shown)
    return ", ".join(shown) + (f" and {left} more columns" if left else "")


def _num_outside(x: Array, quantiles: Array) -> int:
    """How many rows [n, w] are beyond the range of a column in the training rows [parts, w]."""
    low, high = quantiles[0], quantiles[-1]
    margin = BEYOND * (high - low)
    return int(((x < low - margin) | (x > high + margin)).any(axis=1).sum())


def _drift(x: Array, seen: FeatureQuantiles, features: slice, *, is_text: bool) -> float | None:
    """How far the distribution of a column [n, w] is from the training rows', if by more than chance allows."""
    if is_text:
        far = 0.5 * float(np.abs(x.mean(axis=0) - seen.x_mean[features]).sum())
        limit = DIFFERENT + 0.6 * float(np.sqrt(x.shape[1] * (1.0 / len(x) + 1.0 / seen.num_rows)))
    else:
        quantiles = seen.x[:, features.start]
        far, limit = distance(quantiles, x[:, 0]), _limit(quantiles, seen.num_rows, len(x))
    return far if far > limit else None


def distance(quantiles: Array, values: Array) -> float:
    """The largest difference of the distribution functions, at the training quantiles (Kolmogorov and Smirnov)."""
    places, last = np.unique(quantiles[::-1], return_index=True)
    expected = LEVELS[::-1][last]  # the largest level of those that share a value
    below = np.searchsorted(np.sort(values), places, side="right") / len(values)
    inner = expected < 1.0
    return float(np.abs(below - expected)[inner].max(initial=max(0.0, 1.0 - float(below[-1]))))


def _limit(quantiles: Array, num_seen: int, num_rows: int) -> float:
    # If several quantiles share a value, its level is known to one part only.
    ties = 1.0 / (len(LEVELS) - 1) if len(np.unique(quantiles)) < len(quantiles) else 0.0
    return DIFFERENT + ties + 1.63 * float(np.sqrt(1.0 / num_rows + 1.0 / num_seen))


def _share_of_known(facts: Facts) -> float:
    """The share of the rows that are training rows, if these are known."""
    if facts.train is None:
        return 0.0
    scaling, shown = facts.gp.scaling, some_rows(len(facts.x))

    def keys(x: Array, y: Array) -> set[bytes]:
        """Rows as values to compare, without the last digits."""
        return {row.tobytes() for row in np.round(np.hstack([scaling.scale_x(x), y / scaling.y_scale]), 6) + 0.0}

    wanted = keys(facts.x[shown], facts.y[shown])
    x, y = facts.train
    parts = [slice(start, start + PART_ROWS) for start in range(0, len(x), PART_ROWS)]
    known = set[bytes]().union(*(wanted & keys(x[part], y[part]) for part in parts))
    return len(known) / len(wanted)
