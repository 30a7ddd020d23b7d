"""Columns and schemas as values, and the parts of dates."""

import dataclasses
import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.errors import FileFormatError
from cvgp.tables.columns import TYPICAL, Column, Schema, date_features, varying_parts

SIZE = Column("size", "numeric")
COLOR = Column("color", "categorical", ("blue", "red"))
SOLD = Column("sold", "boolean")
FILLED = tuple(dataclasses.replace(c, fill=fill) for c, fill in ((SIZE, 1.5), (COLOR, "red"), (SOLD, True)))
SCHEMA = Schema("price", FILLED, "mean")
MARKED = Column("size", "numeric", fill=1.5, n_missing=3, marks_missing=True, typical=(0.5,) * TYPICAL)
DATE = Column("when", "date", parts=("trend", "hour"), typical=tuple(map(float, range(TYPICAL))))
LEVELS = Column(
    "city",
    "levels",
    ("a", "b"),
    dims=("city", "city x size"),
    effects=((0.5, 0.1), (-0.5, 0.2)),
    effect_sd=((0.0, 0.1), (0.3, 0.0)),
    prior_sd=(1.0, 0.5),
)
ORDERED = Column("rank", "ordered", ("low", "high"))
SHARES = dataclasses.replace(COLOR, typical=(1.0, 3.0, 1.0), marks_missing=True)


# Storing a column.


@pytest.mark.parametrize(
    "column", [SIZE, COLOR, SOLD, *FILLED, MARKED, DATE, LEVELS, ORDERED, SHARES], ids=lambda c: c.name
)
def test_column_survives_json(column: Column) -> None:
    assert Column.from_json(json.loads(json.dumps(column.to_json()))) == column


GOOD_COLUMN = Column("a", "categorical", ("x", "y")).to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "numeric"},
        {"categories": ["y", "x"]},
        {"categories": ["x", "x"]},
        {"categories": [1, 2]},
        {"categories": [f"name {i:03}" for i in range(51)]},
        {"marks_missing": 1},
        {"typical": [-1.0, 1.0]},
        {"typical": [0.0, 0.0]},
        {"parts": ["trend"]},
        {"effects": [[1.0], [1.0]]},
        {"unheard": 1},
        {"fill": "z"},
        {"kind": "numeric", "categories": [], "fill": True},
        {"kind": "numeric", "categories": [], "fill": float("nan")},
        {"kind": "numeric", "categories": [], "fill": 10**400},
    ],
    ids=str,
)
def test_column_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FileFormatError, match="schema"):
        Column.from_json({**GOOD_COLUMN, **change})


# Storing a schema.


GOOD = SCHEMA.to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"target": None},
        {"target": "size"},
        {"columns": ["size"]},
        {"columns": GOOD["columns"] * 2},
        {"columns": [SIZE.to_json()]},
        {"impute": None},
        {"impute": "drop"},
        {"n_dropped": True},
        {"target": ["y", 1]},
        {"extra": 1},
        {"unused": [1]},
    ],
    ids=str,
)
def test_schema_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(FileFormatError, match="schema"):
        Schema.from_json({**GOOD, **change})


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
anything = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(anything)
def test_any_json_in_place_of_a_schema_is_refused(data: object) -> None:
    with pytest.raises(FileFormatError, match="schema"):
        Schema.from_json(data)


@given(st.sampled_from(["name", "kind", "categories", "fill", "typical", "effects", "parts"]), anything)
def test_any_json_in_a_column_gives_a_valid_schema_or_is_refused(key: str, value: object) -> None:
    columns = [{**GOOD["columns"][1], key: value}, *GOOD["columns"][2:]]
    try:
        outcome = Schema.from_json({**GOOD, "columns": columns})
    except FileFormatError as error:
        outcome = error
    is_default = value in ([], ())
    assert isinstance(outcome, FileFormatError) or is_default or outcome.to_json()["columns"][0][key] == value


# Dates.

EVERY = ("trend", "season", "weekday", "hour")


def days(*times: str) -> np.ndarray:
    return pd.DatetimeIndex(times).to_numpy("datetime64[s]").astype(np.int64) / 86400.0


@pytest.mark.parametrize(
    ("part", "first", "second"),
    [
        ("season", "2021-03-01", "2025-03-01"),
        ("weekday", "2024-05-06 01:00", "2024-05-13 23:00"),
        ("hour", "2020-02-03 17:30", "2023-08-09 17:30"),
    ],
)
def test_a_part_is_the_same_a_turn_later(part: str, first: str, second: str) -> None:
    one, other = date_features(days(first, second), (part,))
    np.testing.assert_allclose(one, other, atol=0.02)  # leap years move a season by less than a day


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        (["2020-01-01"], ("trend",)),
        (["2020-01-01", "2020-01-03"], ("trend",)),
        (["2020-01-01", "2020-01-14"], ("trend", "weekday")),
        (["2020-01-01 10:00", "2020-01-01 12:00"], ("trend", "hour")),
        (["2020-01-01", "2021-01-03 05:00"], EVERY),
    ],
)
def test_parts_that_do_not_vary_are_left_out(times: list[str], parts: tuple[str, ...]) -> None:
    assert varying_parts(days(*times)) == parts
