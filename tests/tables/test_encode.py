"""Rows with cells that are not known."""

import numpy as np
import pytest

from cvgp.errors import CVGPWarning
from cvgp.tables.columns import TYPICAL, Column
from cvgp.tables.encode import DRAWS, UNKNOWN, Inputs, column_features, new_inputs

QUANTILES = tuple(np.linspace(0.0, 15.0, TYPICAL).tolist())
NUMBER = Column("a", "numeric", typical=QUANTILES)
MARKED = Column("b", "numeric", fill=2.0, n_missing=1, marks_missing=True, typical=QUANTILES)
COLOR = Column("color", "categorical", ("blue", "red"), typical=(3.0, 1.0))
LEVELS = Column(
    "city", "levels", ("x", "y"), dims=("city",), effects=((1.0,), (-1.0,)), effect_sd=((0.0,), (0.5,)), prior_sd=(2.0,)
)
DATE = Column("when", "date", parts=("trend", "hour"), typical=QUANTILES)


def drawn(column: Column, cell: float) -> np.ndarray:
    """The draws [DRAWS, w] of one cell."""
    return new_inputs((column,), np.array([[cell]]))[0].draws()[0]


# Features of cells.


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        (NUMBER, 3.0, [3.0]),
        (MARKED, 3.0, [3.0, 0.0]),
        (MARKED, np.nan, [2.0, 1.0]),
        (COLOR, 1.0, [0.0, 1.0]),
        (COLOR, UNKNOWN, [0.0, 0.0]),
        (Column("c", "categorical", ("u", "v"), fill="v"), np.nan, [0.0, 1.0]),
        (Column("c", "categorical", ("u", "v"), marks_missing=True), np.nan, [0.0, 0.0, 1.0]),
        (LEVELS, 1.0, [-1.0]),
        (LEVELS, UNKNOWN, [0.0]),
        (Column("o", "ordered", ("low", "high")), 1.0, [1.0]),
        (Column("d", "date", fill=4.0, marks_missing=True, parts=("trend", "hour")), np.nan, [4.0, 0.0, 0.0, 1.0]),
    ],
)
def test_a_cell_has_the_features_of_its_column(column: Column, cell: float, expected: list[float]) -> None:
    np.testing.assert_allclose(column_features(column, np.array([cell])), [expected], atol=1e-12)


# What is not known.


def test_a_missing_number_has_the_quantiles_of_its_column() -> None:
    assert sorted(drawn(NUMBER, np.nan)[:, 0]) == list(QUANTILES)


def test_an_unknown_level_has_the_prior() -> None:
    found = drawn(LEVELS, UNKNOWN)
    assert (found.mean(), found.std()) == (pytest.approx(0.0, abs=1e-12), pytest.approx(2.0))


def test_a_rare_level_has_its_effect_and_its_uncertainty() -> None:
    found = drawn(LEVELS, 1.0)
    assert (found.mean(), found.std()) == (pytest.approx(-1.0), pytest.approx(0.5))


def test_a_missing_date_has_dates_of_the_training_table_with_all_their_parts() -> None:
    found = drawn(DATE, np.nan)
    assert sorted(found[:, 0]) == list(QUANTILES)
    np.testing.assert_allclose(np.hypot(found[:, 1], found[:, 2]), 1.0)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (MARKED, (7.5, 0.0)),
        (Column("c", "categorical", ("u", "v"), marks_missing=True, typical=(3.0, 1.0, 9.0)), (0.75, 0.25, 0.0)),
    ],
)
def test_a_marked_gap_keeps_its_features_and_tells_what_the_cell_could_be(
    column: Column, expected: tuple[float, ...]
) -> None:
    inputs, found = new_inputs((column,), np.array([[np.nan]]))
    assert inputs.x[0, -1] == 1.0
    assert not inputs.unknown
    assert not found.counts
    assert inputs.filled.draws()[0].mean(axis=0) == pytest.approx(expected)


def test_columns_are_drawn_independently() -> None:
    other = Column("b", "numeric", typical=QUANTILES)
    draws = new_inputs((NUMBER, other), np.full((1, 2), np.nan))[0].draws()[0]
    assert abs(np.corrcoef(draws.T)[0, 1]) < 0.5


def test_taken_and_joined_rows_keep_their_draws() -> None:
    cells = np.array([[1.0], [np.nan], [2.0], [np.nan]])
    inputs, _ = new_inputs((NUMBER,), cells)
    part = inputs.take(np.array([0, 1, 3]))
    assert part.uncertain_rows.tolist() == [1, 2]
    joined = Inputs.join([inputs.take(np.array([0, 1])), inputs.take(np.array([2, 3]))])
    assert (len(joined), joined.uncertain_rows.tolist()) == (4, [1, 3])
    np.testing.assert_array_equal(joined.draws(), inputs.draws())
    assert joined.draws().shape == (4, DRAWS, 1)


# What is said.


def test_findings_are_counted_by_column_and_said_once() -> None:
    cells = np.array([[np.nan, UNKNOWN, 100.0], [1.0, UNKNOWN, 1.0]])
    _, found = new_inputs((NUMBER, COLOR, DATE), cells)
    with pytest.warns(CVGPWarning) as caught:
        found.warn()
    said = [str(warning.message) for warning in caught]
    assert ["did not have: 'color' 2" in said[0], "complete in the training table: 'a' 1" in said[1]] == [True, True]
    assert "Dates outside the range of the training table: 'when' 1" in said[2]
