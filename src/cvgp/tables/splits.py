"""Which rows of a table are fitted and which are scored: at random, by whole groups, or the latest ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, GroupShuffleSplit, KFold, ShuffleSplit, TimeSeriesSplit

from cvgp.errors import InvalidInputError
from cvgp.tables.apply import names_to_choose
from cvgp.tables.cells import label, times
from cvgp.tables.read import Opened

FEWEST_ROWS = 5  # in all


def split_table(
    opened: Opened,
    target: str,
    *,
    test_size: float | None = None,
    folds: int = 5,
    groups: str | None = None,
    time: str | None = None,
) -> Iterator[tuple[Opened, Opened]]:
    """Pairs of the table, with the rows to fit and with those to score: one by `test_size`, or one for each fold.

    Rows without a target are in neither. With `time`, all rows to fit are earlier than those to score.
    """
    if groups is not None and time is not None:
        raise InvalidInputError("Rows are split by groups or by time; give one of the two.")
    if test_size is not None and not 0.0 < test_size < 1.0:
        raise InvalidInputError(
            f"test_size (--test-size) must be between 0 and 1, such as .2 for a fifth; got {test_size:g}."
        )
    if test_size is None and folds < 2:
        raise InvalidInputError(f"Cross-validation needs at least 2 folds, such as 5; got {folds}.")
    for name in (target, groups, time):
        if name is not None and name not in opened.names:
            raise InvalidInputError(f"The table has no column {name!r}; {names_to_choose(name, opened.names)}")
    has_target = opened.values(target, lambda column: ~np.asarray(pc.is_null(column, nan_is_null=True)))
    rows = np.flatnonzero(has_target)
    if len(rows) < max(FEWEST_ROWS, 0 if test_size is not None else folds):
        raise InvalidInputError(
            f"The table has {len(rows)} rows with a target, which are too few to be split; fit all of them, and score "
            "rows of another table."
        )
    by, when = None, None
    if groups is not None:
        texts = opened.values(groups, lambda column: np.array([label(v) for v in column.to_pylist()], dtype=object))
        by = texts[rows]
    if time is not None:
        when = _times(opened, time)[rows]
    for train, test in _positions(len(rows), test_size, folds, by, when):
        if when is not None:  # rows of one time stay together
            train = np.flatnonzero(when < when[test].min())
        if not len(train) or not len(test):
            raise InvalidInputError("One part of the split has no rows; give other groups, times or sizes.")
        parts = (np.isin(np.arange(len(has_target)), rows[part]) for part in (train, test))
        fitted, scored = map(opened.choose, parts)
        yield fitted, scored


def _positions(
    count: int,
    test_size: float | None,
    folds: int,
    groups: NDArray[np.object_] | None,
    times: NDArray[np.float64] | None,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Positions to fit and to score among `count` rows."""
    number = np.arange(count)
    if groups is not None and (found := len(set(groups))) < max(folds if test_size is None else 2, 2):
        raise InvalidInputError(f"The table has {found} groups, which are too few to be split; give fewer folds.")
    if test_size is not None and times is not None:
        first = np.sort(times)[count - max(round(test_size * count), 1)]
        yield np.flatnonzero(times < first), np.flatnonzero(times >= first)
    elif times is not None:
        order = np.argsort(times, kind="stable")
        yield from ((order[train], order[test]) for train, test in TimeSeriesSplit(folds).split(number))
    elif test_size is not None:
        one = (ShuffleSplit if groups is None else GroupShuffleSplit)(1, test_size=test_size, random_state=0)
        yield from one.split(number, groups=groups)
    else:
        several = KFold(folds, shuffle=True, random_state=0) if groups is None else GroupKFold(folds)
        yield from several.split(number, groups=groups)


def _times(opened: Opened, name: str) -> NDArray[np.float64]:
    """Dates as days, or numbers such as years."""
    found = opened.values(name, lambda column: times(name, column))
    if not np.isfinite(found).all():
        raise InvalidInputError(
            f"Column {name!r} must hold a date or a number in each row to be split by time, and "
            f"{(~np.isfinite(found)).sum()} of {len(found)} cells are not. Write dates as 2024-05-31."
        )
    return found
