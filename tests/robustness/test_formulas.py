"""Text in a table of predictions is that of the table given: a spreadsheet must not run it."""

import csv
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.conftest import Run, make_table

FORMULA = '=HYPERLINK("http://example.org","x")'


def table_with_formulas(rows: int) -> pd.DataFrame:
    frame = make_table(rows)
    frame["note"] = [FORMULA, "+1+1", "-2", "@SUM(A1)", "\tx", "plain"] * (rows // 6)
    return frame.rename(columns={"note": "=note"})


def cells(path: Path) -> tuple[list[str], set[str]]:
    """The column names, and what is in the column of text."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    column = next(i for i, name in enumerate(header) if "note" in name)
    return header, {row[column] for row in rows}


EXPECTED = {"'" + FORMULA, "'+1+1", "'-2", "'@SUM(A1)", "'\tx", "plain"}


@pytest.mark.parametrize("given", ["a file", "a folder"])
def test_formulas_in_a_table_of_predictions_are_text(run: Run, model: Path, tmp_path: Path, given: str) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(1 if given == "a file" else 2):
        table_with_formulas(12).to_parquet(folder / f"{i}.parquet", index=False)
    data = folder / "0.parquet" if given == "a file" else folder
    result = run("predict", model, data, "--out", tmp_path / "out.csv")
    assert result.exit_code == 0, result.stderr
    header, found = cells(tmp_path / "out.csv")
    assert "'=note" in header
    assert found == EXPECTED


def test_negative_predictions_are_numbers(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(12).assign(weight=-200.0).to_csv(tmp_path / "low.csv", index=False)
    run("predict", model, tmp_path / "low.csv", "--out", tmp_path / "out.csv")
    assert pd.read_csv(tmp_path / "out.csv")["price_lower"].min() < 0.0


def test_a_binary_table_keeps_formulas_to_the_letter(run: Run, model: Path, tmp_path: Path) -> None:
    table_with_formulas(12).to_parquet(tmp_path / "in.parquet", index=False)
    run("predict", model, tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert FORMULA in set(pd.read_parquet(tmp_path / "out.parquet")["=note"])
