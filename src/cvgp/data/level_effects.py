r"""The effects of the levels of a column: random intercepts and slopes by empirical Bayes (§14 of the mathematics).

Of the residuals r of a line through the other features, the level l of a row has

.. math:: r_i = m + a_l + \sum_j (m_j + b_{lj}) z_{ij} + \epsilon_i, \quad a_l \sim N(0, \tau^2),
          \quad b_{lj} \sim N(0, \tau_j^2), \quad \epsilon_i \sim N(0, \sigma^2).

The variances come from sums over the rows of each level, which add up over parts of a table and over processes. A level
is embedded by its posterior means of a and of those b that clearly differ among levels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array

NUM_FOLDS = 5
MOST_SLOPES = 2
"""Slopes that a level is embedded by, beside its intercept."""
CLEAR = 5.0
"""Standard deviations by which the spread of slopes must exceed what chance gives."""
SMALLEST_SHARE = 0.01
"""Of the noise variance: what slopes must explain to be worth a feature."""
WELL_KNOWN, MANY_ROWS = 0.9, 30.0
"""Share of its own rows in the effect of a level, and their number, from which on one row's y hardly enters."""


class LevelPrior(NamedTuple):
    """What is known of a level before any of its rows: the first entry is the intercept, the others are slopes."""

    noise: float
    """Variance within levels."""
    which: tuple[int, ...]
    """The features whose slopes count."""
    mean: Array  # [d]
    variance: Array  # [d]


class Embedding(NamedTuple):
    """Levels as vectors."""

    effects: Array  # [L, d]
    variance: Array  # [L, d], what is not known of them
    share: Array  # [L, d], of the level's own rows in its effect


def row_folds(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fold of each row, from its number in its file: pseudo-random, and the same in every pass (splitmix64)."""
    z = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(NUM_FOLDS)).astype(np.int64)


def level_sums(
    codes: NDArray[np.int64], folds: NDArray[np.int64], r: Array, z: Array, weight: Array | None, num_levels: int
) -> Array:
    """Sums [K, L, 3 + 3 J] of 1, r, r^2, then z, z^2 and r z for features z [n, J], over the rows of each level."""
    one = np.ones(len(r)) if weight is None else weight
    place = folds * num_levels + codes
    terms = [one, r * one, r * r * one]
    for column in z.T:
        terms += [column * one, column * column * one, r * column * one]
    size = NUM_FOLDS * num_levels
    sums = [np.bincount(place, weights=term, minlength=size).astype(np.float64) for term in terms]
    return np.stack(sums, axis=1).reshape(NUM_FOLDS, num_levels, len(terms))


def learn_prior(sums: Array) -> LevelPrior:
    """The prior of a column from the sums [L, 3 + 3 J] of its levels, by the method of moments."""
    n, r, rr = sums[:, 0], sums[:, 1], sums[:, 2]
    seen = n > 0.0
    level_mean = np.divide(r, n, out=np.zeros_like(r), where=seen)
    within = float(np.maximum(rr - n * level_mean**2, 0.0).sum())
    square = float(rr.sum() / n.sum())
    total = square - float(r.sum() / n.sum()) ** 2
    if total <= 1e-14 * square:  # rounding of rows that are all the same
        return LevelPrior(1.0, (), np.array([float(r.sum() / n.sum())]), np.zeros(1))
    # Rows that agree exactly within levels still leave something open.
    noise = max(within / max(n.sum() - seen.sum(), 1.0), 1e-9 * total)
    variance, mean, _ = _spread(level_mean, n / noise)
    which, means, variances = [], [mean], [variance]
    for j in range((sums.shape[1] - 3) // 3):
        precision, slope = _slopes(sums, j, noise)
        spread, centre, excess = _spread(slope, precision)
        if excess > CLEAR and spread > SMALLEST_SHARE * noise:
            which.append(j)
            means.append(centre)
            variances.append(spread)
    largest = np.sort(np.argsort(-np.array(variances[1:]), kind="stable")[:MOST_SLOPES])
    kept = [0, *(largest + 1)]
    return LevelPrior(noise, tuple(which[i] for i in largest), np.array(means)[kept], np.array(variances)[kept])


def embed_levels(sums: Array, prior: LevelPrior) -> Embedding:
    """The posterior of each level, of its intercept and of each slope by itself."""
    n, r = sums[:, 0], sums[:, 1]
    estimates = [np.divide(r, n, out=np.zeros_like(r), where=n > 0.0)]
    precisions = [n / prior.noise]
    for j in prior.which:
        precision, slope = _slopes(sums, j, prior.noise)
        estimates.append(slope)
        precisions.append(precision)
    known = np.stack(precisions, axis=1) * prior.variance  # [L, d]
    share = known / (1.0 + known)
    return Embedding(share * (np.stack(estimates, axis=1) - prior.mean), prior.variance * (1.0 - share), share)


def fold_effects(sums: Array, prior: LevelPrior) -> Array:
    """Effects [K, L, d] for the rows of each fold, from the rows of the other folds.

    A level that its own rows determine has the same effect in all folds, that of all rows: one row hardly counts in it,
    and a model that can tell levels apart must find them at the same place again.
    """
    whole = embed_levels(sums.sum(axis=0), prior)
    without = np.stack([embed_levels(sums.sum(axis=0) - own, prior).effects for own in sums])
    is_known = (whole.share >= WELL_KNOWN) & (sums[:, :, :1].sum(axis=0) >= MANY_ROWS)  # [L, d]
    return np.where(is_known, whole.effects, without)


def _slopes(sums: Array, j: int, noise: float) -> tuple[Array, Array]:
    """The precision [L] of the slope of each level in a feature, and the slope itself [L]."""
    n, r = sums[:, 0], sums[:, 1]
    z, zz, rz = sums[:, 3 + 3 * j], sums[:, 4 + 3 * j], sums[:, 5 + 3 * j]
    each = np.where(n > 0.0, n, 1.0)
    squares = np.maximum(zz - z * z / each, 0.0)
    usable = squares > 1e-6 * np.maximum(zz, 1e-12)
    slope = np.divide(rz - r * z / each, squares, out=np.zeros_like(squares), where=usable)
    return np.where(usable, squares / noise, 0.0), slope


def _spread(estimate: Array, precision: Array) -> tuple[float, float, float]:
    """Variance and mean of what estimates [L] are of (DerSimonian and Laird, 1986), and how clear the variance is."""
    total = float(precision.sum())
    num_levels = int((precision > 0.0).sum())
    if num_levels < 2:
        return 0.0, float((precision * estimate).sum() / total) if total > 0.0 else 0.0, 0.0
    mean = float((precision * estimate).sum() / total)
    excess = float((precision * (estimate - mean) ** 2).sum()) - (num_levels - 1)
    reach = total - float((precision**2).sum()) / total
    return max(excess / reach, 0.0), mean, excess / float(np.sqrt(2.0 * (num_levels - 1)))
