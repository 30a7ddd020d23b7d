"""Columns of text that hold numbers, in tables whose format has types."""

import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cvgp.data.reading import Numerals, Reading
from cvgp.data.schema import Schema
from cvgp.data.tables.by_schema import load_rows
from cvgp.data.tables.in_memory import dataset_of
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.notes import notes_of
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import InvalidInputError

SALES = pd.DataFrame(
    {"amount": ["1,234", "950", "12,000", None], "share": ["12 %", "7 %", "3.5 %", "0 %"], "y": [1.0, 2.0, 3.0, 4.0]}
)


def learned(frame: object) -> tuple[list[list[float]], Schema]:
    table = TrainingTable(dataset_of(frame), "y")
    return table.load().x.tolist(), table.schema


@pytest.mark.parametrize(
    "frame", [SALES, pl.from_pandas(SALES), pa.Table.from_pandas(SALES)], ids=["pandas", "polars", "Arrow"]
)
def test_thousands_and_percent_in_a_frame_are_numbers(frame: object) -> None:
    x, schema = learned(frame)
    assert x == [[1234.0, 0.0, 12.0], [950.0, 0.0, 7.0], [12000.0, 0.0, 3.5], [1234.0, 1.0, 0.0]]
    assert schema.reading.numerals == {"amount": Numerals(".", ",", False), "share": Numerals(".", "", True)}


def test_digits_alone_stay_text_since_they_may_be_codes() -> None:
    codes = pd.DataFrame({"postcode": ["04109", "10115"] * 3, "y": range(6)})
    assert learned(codes)[1].columns[0].categories == ("04109", "10115")


def test_a_frame_of_numbers_is_read_by_a_model_of_spelled_numbers_and_the_other_way_round() -> None:
    _, schema = learned(SALES)
    plain = SALES.assign(amount=[1234.0, 950.0, 12000.0, None], share=[12.0, 7.0, 3.5, 0.0])
    spelled = load_rows(dataset_of(SALES, known=schema.reading), schema)[0]
    assert load_rows(dataset_of(plain, known=schema.reading), schema)[0].x.tolist() == spelled.x.tolist()
    _, plain_schema = learned(plain)
    assert load_rows(dataset_of(SALES, known=plain_schema.reading), plain_schema)[0].x.tolist() == spelled.x.tolist()


def test_cells_with_two_meanings_are_read_as_the_model_has_read_them() -> None:
    german = Reading(numerals={"amount": Numerals(",", ".")})
    few = pd.DataFrame({"amount": ["1.234"]})
    assert notes_of(dataset_of(few, known=german)).numerals["amount"] == Numerals(",", ".")
    assert notes_of(dataset_of(few, known=Reading())).numerals["amount"] == Numerals()


def test_the_notes_of_the_users_own_table_are_not_believed() -> None:
    reading = json.dumps(Reading(numerals={"a": Numerals(",")}).to_json())
    table = pa.table({"a": ["x", "z"]}).replace_schema_metadata({"cvgp.reading": reading, "cvgp.whole": "true"})
    assert notes_of(dataset_of(table)).numerals == {}


def test_one_wrong_cell_among_spelled_numbers_is_named_with_what_it_holds() -> None:
    cells = [f"{1000 + i:,}" for i in range(99)]
    frame = pd.DataFrame({"amount": [*cells, "n.k."], "y": range(100)})
    with pytest.raises(
        InvalidInputError, match=r"data row 100: column 'amount' .*it holds 'n\.k\.'.*on_bad_rows='skip'"
    ):
        learned(frame)


def test_json_lines_hold_such_numbers_too(tmp_path: Path) -> None:
    SALES.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    assert TrainingTable(tmp_path / "a.jsonl", "y").load().x.tolist() == learned(SALES)[0]
    assert notes_of(open_dataset(tmp_path / "a.jsonl")).numerals.keys() == {"amount", "share"}
