"""What should make a reader careful: of the model, of the rows, and of both together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.rows import Array
from cvgp.estimators.columns_seen import LEVELS, ColumnsSeen
from cvgp.plots.style import some_rows
from cvgp.report.markup import shortened
from cvgp.report.tightness import Tightness

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated
    from cvgp.report.score_table import Scores

NEAR_FLOOR = 2.0
"""A noise variance that is at most so many times the smallest one is at its floor."""
UNUSED = 1e-4
"""A weight below this share of the mean weight counts for nothing."""
BEYOND = 0.05
"""A value is outside the range of the fit if it is beyond it by this share of the range."""
DIFFERENT = 0.1
"""Distributions differ if the largest difference of their shares is more than this, beside what chance allows."""
LARGE_GAP, FEWEST_ROWS = 0.1, 50
"""Nats per row, and rows that tell something of it."""
SAME = 0.2
"""If more than this share of the rows are rows of the fit, scores are too good."""
MOST_NAMED = 5
PART_ROWS = 10_000
"""Rows of the fit that are looked at together."""


def cautions(rows: Evaluated, scores: Scores, gap: Tightness | None) -> list[str]:
    """All of them, in plain words; names in them are shortened."""
    found = [*_of_the_model(rows), *_of_the_rows(rows), *_of_the_scores(scores, len(rows.y))]
    # A fit that needs more points than half of its rows keeps all of them, and no more points can be had.
    keeps_all_rows = len(rows.model.coreset_) > rows.model.n_rows_ / 2
    if gap is not None and gap.num_rows >= FEWEST_ROWS and gap.gap > LARGE_GAP and not keeps_all_rows:
        found.append(
            f"The bound is {gap.gap:.2f} nats per row below the exact marginal likelihood on {gap.num_rows} rows: more "
            "pseudo-points, or neighbours, would describe the rows better."
        )
    return found


def _of_the_model(rows: Evaluated) -> list[str]:
    model, found = rows.model, list[str]()
    floor = float(model.model_.likelihood.noise_covar.raw_noise_constraint.lower_bound)
    if model.model_.noise.item() <= NEAR_FLOOR * floor:
        found.append(
            "The noise is at its floor: the model takes the observations as exact. Rows that are copies of each other, "
            "or a target that is a function of the columns, do this; check that no column gives the target away."
        )
    beta = model.coreset_.beta
    unused = int((beta < UNUSED * beta.mean()).sum())
    if unused:
        found.append(
            f"{unused} of {len(beta)} pseudo-points have next to no weight and are not used; prune drops them."
        )
    if not model.converged_:
        found.append("Training stopped before it converged; a longer fit may be better.")
    if model.outlier_share_ > 0:
        found.append(f"{model.outlier_share_:.1%} of the rows of the fit were wildly wrong, and hardly count.")
    return found


def _of_the_rows(rows: Evaluated) -> list[str]:
    found = list[str]()
    if (same := _share_of_known(rows)) > SAME:
        found.append(f"{same:.0%} of these rows are rows of the fit, so that the scores are better than on new rows.")
    seen = rows.seen
    if seen is None:
        return [*found, "What the columns were like in the fit is not known, so drift was not looked for."]
    outside = {
        shortened(column.name): count
        for column in rows.columns
        if not column.categories and (count := _num_outside(rows.x[:, column.features], seen.x[:, column.features]))
    }
    if outside:
        listed = _listed({name: f"{count} rows" if count > 1 else "1 row" for name, count in outside.items()})
        found.append(f"Inputs outside the range of the fit: {listed}. Predictions there fall back to the prior.")
    drifted = {}
    for column in rows.columns:
        if (far := _drift(rows, seen, column.features, bool(column.categories))) is not None:
            drifted[shortened(column.name)] = f"{far:.0%}"
    if drifted:
        found.append(
            "These rows differ from those of the fit: the distribution of "
            f"{_listed(drifted)} (the largest difference of shares). Scores on such rows say little about others."
        )
    far = distance(seen.y[:, rows.output], rows.observed)
    if far > _limit(seen.y[:, rows.output], seen.num_rows, len(rows.y)):
        found.append(
            f"The target has another distribution than in the fit (the largest difference of shares is {far:.0%})."
        )
    return found


def _of_the_scores(scores: Scores, num_rows: int) -> list[str]:
    own, found = scores["cvgp"], list[str]()
    for name, words in (("constant", "a constant"), ("linear", "a line"), ("boosting", "gradient boosting")):
        if name in scores and own["rmse"] > 1.02 * scores[name]["rmse"]:
            found.append(f"{words[0].upper()}{words[1:]} has a lower RMSE on these rows than the model.")
    chance = 3.0 * np.sqrt(0.95 * 0.05 / num_rows)
    if abs(own["coverage_95"] - 0.95) > chance + 0.5 / num_rows:
        narrow = "narrow" if own["coverage_95"] < 0.95 else "wide"
        found.append(
            f"The 95 % intervals hold {own['coverage_95']:.1%} of these observations: they are too {narrow} here."
        )
    return found


def _listed(named: dict[str, str]) -> str:
    shown = [f"{name} ({words})" for name, words in list(named.items())[:MOST_NAMED]]
    left = len(named) - len(shown)
    return ", ".join(shown) + (f" and {left} more columns" if left else "")


def _num_outside(x: Array, quantiles: Array) -> int:
    """How many rows [n, w] are beyond the range of a column in the fit [parts, w]."""
    low, high = quantiles[0], quantiles[-1]
    margin = BEYOND * (high - low)
    return int(((x < low - margin) | (x > high + margin)).any(axis=1).sum())


def _drift(rows: Evaluated, seen: ColumnsSeen, features: slice, is_text: bool) -> float | None:
    """How far the distribution of a column is from that of the fit, if by more than chance allows."""
    x, n = rows.x[:, features], len(rows.x)
    if is_text:
        far = 0.5 * float(np.abs(x.mean(axis=0) - seen.x_mean[features]).sum())
        limit = DIFFERENT + 0.6 * float(np.sqrt(x.shape[1] * (1.0 / n + 1.0 / seen.num_rows)))
    else:
        far = distance(seen.x[:, features][:, 0], x[:, 0])
        limit = _limit(seen.x[:, features][:, 0], seen.num_rows, n)
    return far if far > limit else None


def distance(quantiles: Array, values: Array) -> float:
    """The largest difference of the distribution functions, at the quantiles of the fit (Kolmogorov and Smirnov)."""
    places, last = np.unique(quantiles[::-1], return_index=True)
    expected = LEVELS[::-1][last]  # the largest level of those that share a value
    below = np.searchsorted(np.sort(values), places, side="right") / len(values)
    inner = expected < 1.0
    return float(np.abs(below - expected)[inner].max(initial=max(0.0, 1.0 - float(below[-1]))))


def _limit(quantiles: Array, num_seen: int, num_rows: int) -> float:
    # Values that several quantiles share are known to one part only.
    ties = 1.0 / (len(LEVELS) - 1) if len(np.unique(quantiles)) < len(quantiles) else 0.0
    return DIFFERENT + ties + 1.63 * float(np.sqrt(1.0 / num_rows + 1.0 / num_seen))


def _share_of_known(rows: Evaluated) -> float:
    """Which share of the rows are rows of the fit, where these are known."""
    if rows.train is None:
        return 0.0
    shown = some_rows(len(rows.x))
    wanted = _keys(rows, rows.x[shown], rows.y[shown])
    x, y = rows.train
    parts = [slice(start, start + PART_ROWS) for start in range(0, len(x), PART_ROWS)]
    known = set[bytes]().union(*(wanted & _keys(rows, x[part], y[part]) for part in parts))
    return len(known) / len(wanted)


def _keys(rows: Evaluated, x: Array, y: Array) -> set[bytes]:
    """Rows as values to compare, without the last digits."""
    scaling = rows.model.gp_.scaling
    return {row.tobytes() for row in np.round(np.hstack([scaling.scale_x(x), y / scaling.y_scale]), 6) + 0.0}
