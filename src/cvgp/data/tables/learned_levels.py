"""The effects of levels, learned from the rows of a table: of what a line through the other features leaves."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.data.cell_features import FoldEffects, features_of, level_codes
from cvgp.data.columns import Column
from cvgp.data.level_effects import NUM_FOLDS, embed_levels, fold_effects, learn_prior, level_sums, row_folds
from cvgp.data.rows import Array, Rows
from cvgp.data.tables.blocks import Encoder
from cvgp.parallel.group import Group

MOST_TRIED = 8
"""Features in which levels may differ by their slopes: the first of the table."""


class _Line(NamedTuple):
    """A ridge regression on the features of the columns that have no levels, and on squares of the numbers."""

    columns: tuple[Column, ...]
    where: list[int]
    """Their positions among all columns."""
    squared: NDArray[np.int64]
    """The features that are squared, and in which levels may have slopes."""
    centre: Array  # [D]
    scale: Array  # [D]
    middle: Array  # [F]
    slopes: Array  # [F, Q]
    level: Array  # [Q]

    @classmethod
    def learn(cls, columns: tuple[Column, ...], sample: Rows[Array]) -> "_Line":
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

    def leaves(self, rows: Rows[Array]) -> tuple[Array, Array]:
        """Residuals [n, Q] of rows in numbers, and the features [n, J] in which levels may have slopes."""
        x = self._scaled(rows.x)
        return rows.y - self.level - (self._terms(x) - self.middle) @ self.slopes, x[:, self.squared[:MOST_TRIED]]

    @property
    def slope_names(self) -> list[str]:
        """The names of these features."""
        names = [name for column in self.columns for name in column.feature_names]
        return [names[d] for d in self.squared[:MOST_TRIED]]

    def _scaled(self, cells: Array) -> Array:
        x = (features_of(self.columns, cells[:, self.where]) - self.centre) / self.scale
        return np.clip(x, -5.0, 5.0)  # a square of an outlier would be the line

    def _terms(self, x: Array) -> Array:
        return np.hstack([x, x[:, self.squared] ** 2])


def learn_levels(
    encoder: Encoder,
    sample: Rows[Array],
    read: Callable[[], Iterable[tuple[Rows[Array], NDArray[np.int64]]]],
    group: Group,
) -> Encoder:
    """The encoder with the effects of all levels, from one pass over the rows in numbers."""
    line = _Line.learn(encoder.columns, sample)
    num_outputs, num_terms = len(encoder.targets), 3 + 3 * len(line.slope_names)
    levels = [(position, column) for position, column in enumerate(encoder.columns) if column.kind == "levels"]
    sums = {c.name: np.zeros((num_outputs, NUM_FOLDS, _num_levels(c), num_terms)) for _, c in levels}
    for rows, numbers in read():
        r, z = line.leaves(rows)
        folds = row_folds(numbers)
        for position, column in levels:
            codes = level_codes(column, rows.x[:, position])
            codes = np.where(codes < 0, _num_levels(column) - 1, codes)
            for q in range(num_outputs):
                sums[column.name][q] += level_sums(codes, folds, r[:, q], z, rows.sample_weight, _num_levels(column))
    added = group.sum([torch.from_numpy(part) for part in sums.values()])
    columns, effects = list(encoder.columns), {}
    for (position, column), total in zip(levels, added, strict=True):
        columns[position], effects[column.name] = _embedded(column, total.numpy(), encoder.targets, line.slope_names)
    return replace(encoder, columns=tuple(columns), fold_effects=effects)


def _num_levels(column: Column) -> int:
    """With the level of missing cells, if they are marked, and one for all that have none of their own."""
    return len(column.categories) + column.marks_missing + 1


def _embedded(
    column: Column, sums: Array, targets: tuple[str, ...], slope_names: list[str]
) -> tuple[Column, FoldEffects]:
    """The column with its effects, from sums [Q, K, L + 1, F] of which the last level is that of unknown cells."""
    dims, effects, doubts, prior_sd, by_fold = [], [], [], [], []
    for name, own in zip(targets, sums, strict=True):
        known, weight = own[:, :-1], own[:, :-1, 0].sum(axis=0)
        prior = learn_prior(known.sum(axis=0))
        found = embed_levels(known.sum(axis=0), prior)
        # The noise of the model holds what a typical row does not know of its level.
        usual = weight @ found.variance / weight.sum()
        alone = column.name if len(targets) == 1 else f"{column.name} on {name}"
        dims += [alone, *(f"{alone} x {slope_names[j]}" for j in prior.which)]
        effects.append(found.effects)
        doubts.append(np.sqrt(np.maximum(found.variance - usual, 0.0)))
        prior_sd.append(np.sqrt(np.maximum(prior.variance - usual, 0.0)))
        by_fold.append(fold_effects(known, prior))
    learned = replace(
        column,
        dims=tuple(dims),
        effects=tuple(map(tuple, np.hstack(effects).tolist())),
        doubts=tuple(map(tuple, np.hstack(doubts).tolist())),
        prior_sd=tuple(np.concatenate(prior_sd).tolist()),
    )
    whole = np.concatenate(by_fold, axis=2)  # [K, L, d]
    return learned, FoldEffects(np.pad(whole, ((0, 0), (0, 1), (0, 0))))
