"""The effects of the levels of a column: random intercepts and slopes by empirical Bayes (§14.1 of the mathematics)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.parallel.group import Group
from cvgp.tables.columns import Column
from cvgp.tables.encode import features_of, level_codes

NUM_FOLDS = 5
MOST_TRIED = 8  # features in which levels may differ by their slopes: the first of the table
MOST_SLOPES = 2  # slopes that a level is embedded by, beside its intercept
CLEAR = 5.0  # standard deviations by which the spread of slopes must exceed what chance gives
SMALLEST_SHARE = 0.01  # share of the noise variance that slopes must explain to become a feature
WELL_KNOWN, MANY_ROWS = 0.9, 30.0  # share and number of its own rows from which on a level is known


class LevelPrior(NamedTuple):
    """What is known of a level before any of its rows: the first entry is the intercept, the others are slopes."""

    noise: float  # variance within levels
    which: tuple[int, ...]  # the features whose slopes count
    mean: Array  # [d]
    variance: Array  # [d]


class Embedding(NamedTuple):
    """Levels as vectors."""

    effects: Array  # [L, d]
    variance: Array  # [L, d], of their posterior
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
    """The posterior of each level: its intercept and each slope separately."""
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
    """Effects [K, L, d] for the rows of each fold, from the other folds; well-known levels have one for all rows."""
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


class _Line(NamedTuple):
    """A ridge regression on the features of the columns that have no levels, and on squares of the numbers."""

    columns: tuple[Column, ...]
    where: list[int]  # their positions among all columns
    squared: NDArray[np.int64]  # the features that are squared, and in which levels may have slopes
    centre: Array  # [D]
    scale: Array  # [D]
    middle: Array  # [F]
    slopes: Array  # [F, Q]
    level: Array  # [Q]

    @classmethod
    def learn(cls, columns: tuple[Column, ...], sample: Rows[Array]) -> _Line:
        where = [position for position, column in enumerate(columns) if column.kind != "levels"]
        others = tuple(columns[position] for position in where)
        x = features_of(others, sample.x[:, where])
        names = [name for column in others for name in column.feature_names]
        own = {column.feature_names[0] for column in others if column.kind in ("numeric", "ordered", "date")}
        squared = np.array([d for d, name in enumerate(names) if name in own], dtype=np.int64)
        spread = x.std(axis=0)
        scale = np.where(spread > 1e-12 * np.abs(x).max(axis=0, initial=0.0), spread, np.inf)
        line = cls(others, where, squared, x.mean(axis=0), scale, np.zeros(1), np.zeros((1, 1)), np.zeros(1))
        z = line._terms(line._scaled(sample.x))
        middle, level = z.mean(axis=0), sample.y.mean(axis=0)
        weight = np.ones(len(z)) if sample.sample_weight is None else sample.sample_weight
        centred = z - middle
        gram = (centred * weight[:, None]).T @ centred + np.eye(z.shape[1])
        slopes = np.linalg.solve(gram, (centred * weight[:, None]).T @ (sample.y - level))
        return line._replace(middle=middle, slopes=slopes, level=level)

    def residuals(self, rows: Rows[Array]) -> tuple[Array, Array]:
        """Residuals [n, Q] of rows in numbers, and the features [n, J] in which levels may have slopes."""
        x = self._scaled(rows.x)
        return rows.y - self.level - (self._terms(x) - self.middle) @ self.slopes, x[:, self.squared[:MOST_TRIED]]

    def slope_names(self) -> list[str]:
        names = [name for column in self.columns for name in column.feature_names]
        return [names[d] for d in self.squared[:MOST_TRIED]]

    def _scaled(self, cells: Array) -> Array:
        x = (features_of(self.columns, cells[:, self.where]) - self.centre) / self.scale
        return np.clip(x, -5.0, 5.0)  # a square of an outlier would be the line

    def _terms(self, x: Array) -> Array:
        return np.hstack([x, x[:, self.squared] ** 2])


def learn_levels(
    columns: tuple[Column, ...],
    targets: tuple[str, ...],
    sample: Rows[Array],
    blocks: Iterable[tuple[Rows[Array], NDArray[np.int64]]],
    group: Group,
) -> tuple[tuple[Column, ...], dict[str, Array]]:
    """The columns with the effects of all levels, and those for the training rows of each fold, from one pass."""
    line = _Line.learn(columns, sample)
    levels = [(position, column) for position, column in enumerate(columns) if column.kind == "levels"]
    num_terms = 3 + 3 * len(line.slope_names())
    sums = {c.name: np.zeros((len(targets), NUM_FOLDS, _num_levels(c), num_terms)) for _, c in levels}
    for rows, numbers in blocks:
        r, z = line.residuals(rows)
        folds = row_folds(numbers)
        for position, column in levels:
            codes = level_codes(column, rows.x[:, position])
            codes = np.where(codes < 0, _num_levels(column) - 1, codes)
            for q in range(len(targets)):
                sums[column.name][q] += level_sums(codes, folds, r[:, q], z, rows.sample_weight, _num_levels(column))
    added = group.sum([torch.from_numpy(part) for part in sums.values()])
    learned, effects = list(columns), {}
    for (position, column), total in zip(levels, added, strict=True):
        learned[position], effects[column.name] = _embedded(column, total.numpy(), targets, line.slope_names())
    return tuple(learned), effects


def _num_levels(column: Column) -> int:
    """With the level of missing cells, if they are marked, and one for all that have none of their own."""
    return len(column.categories) + column.marks_missing + 1


def _embedded(column: Column, sums: Array, targets: tuple[str, ...], slope_names: list[str]) -> tuple[Column, Array]:
    """The column with its effects, from sums [Q, K, L + 1, F] of which the last level is that of unknown cells."""
    dims, effects, effect_sd, prior_sd, by_fold = [], [], [], [], []
    for name, own in zip(targets, sums, strict=True):
        known, weight = own[:, :-1], own[:, :-1, 0].sum(axis=0)
        prior = learn_prior(known.sum(axis=0))
        found = embed_levels(known.sum(axis=0), prior)
        # The noise of the model holds what a typical row does not know of its level.
        usual = weight @ found.variance / weight.sum()
        alone = column.name if len(targets) == 1 else f"{column.name} on {name}"
        dims += [alone, *(f"{alone} x {slope_names[j]}" for j in prior.which)]
        effects.append(found.effects)
        effect_sd.append(np.sqrt(np.maximum(found.variance - usual, 0.0)))
        prior_sd.append(np.sqrt(np.maximum(prior.variance - usual, 0.0)))
        by_fold.append(fold_effects(known, prior))
    learned = replace(
        column,
        dims=tuple(dims),
        effects=tuple(map(tuple, np.hstack(effects).tolist())),
        effect_sd=tuple(map(tuple, np.hstack(effect_sd).tolist())),
        prior_sd=tuple(np.concatenate(prior_sd).tolist()),
    )
    whole = np.concatenate(by_fold, axis=2)  # [K, L, d]
    return learned, np.pad(whole, ((0, 0), (0, 1), (0, 0)))
