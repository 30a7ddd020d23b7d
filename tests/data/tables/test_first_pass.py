from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cvgp.data.scaling import learn_scaling
from cvgp.data.tables import text_files
from cvgp.data.tables.blocks import BLOCK_ROWS
from cvgp.data.tables.first_pass import Survey, TableColumns, survey_table
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import InvalidInputError, InvalidTypeError
from tests.data.tables.tables import frame, write, write_parts

COLUMNS = TableColumns(("y",))


def survey(folder: Path, columns: TableColumns = COLUMNS, **options: object) -> Survey:
    return survey_table(open_dataset(folder), columns, **options)  # type: ignore[arg-type]


def spoilt(row: int, column: str, value: float | None) -> pd.DataFrame:
    table = frame()
    table.loc[row, column] = value
    return table


def mixed(num_rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": rng.normal(size=num_rows),
            "color": rng.choice(["red", "blue", "green"], num_rows),
            "is_new": rng.random(num_rows) < 0.3,
            "y": rng.normal(size=num_rows),
        }
    ).astype({"is_new": "boolean"})
    table.loc[::7, "size"] = np.nan
    table.loc[::11, "color"] = None
    table.loc[::13, "is_new"] = pd.NA
    return table


def test_rows_of_all_files_are_counted_once(tmp_path: Path) -> None:
    write_parts(tmp_path, frame())
    assert survey(tmp_path).num_rows == len(frame())


def test_moments_are_those_of_all_rows(tmp_path: Path) -> None:
    write_parts(tmp_path, frame())
    found, table = survey(tmp_path).moments, frame()
    whole = learn_scaling(table[["a", "b"]].to_numpy(), table[["y"]].to_numpy())
    np.testing.assert_allclose(found.means, np.append(whole.x_mean, whole.y_mean))
    np.testing.assert_allclose(found.scales, np.append(whole.x_scale, whole.y_scale))


@pytest.mark.parametrize(
    ("column", "value"), [("b", np.inf), ("b", -np.inf), ("y", np.nan), ("y", None), ("y", np.inf)]
)
def test_a_bad_row_is_named_by_file_and_row(tmp_path: Path, column: str, value: float | None) -> None:
    write_parts(tmp_path, spoilt(31_234, column, value))  # the third file begins at row 22,000
    with pytest.raises(InvalidInputError, match=rf"part-2\.parquet, data row 9235: column '{column}' is "):
        survey(tmp_path)


def test_bad_rows_are_left_out_and_counted_on_request(tmp_path: Path) -> None:
    table = frame()
    table.loc[15_000:15_099, "y"] = np.nan
    table.loc[39_999, "y"] = np.inf
    write_parts(tmp_path, table)
    found = survey(tmp_path, on_bad_rows="skip")
    assert found.num_rows == len(table) - 101
    assert found.bad.skipped == 101
    assert "101 bad rows were left out" in found.bad.summary()
    assert "part-1.parquet, data row 5001" in found.bad.summary()
    assert found.moments.means[0] == pytest.approx(table["a"].drop([*range(15_000, 15_100), 39_999]).mean())


@pytest.mark.parametrize("typed_bytes", [0, 10**9], ids=["first block", "whole file"])
@pytest.mark.parametrize("cell", ["oops", "inf"])
def test_a_cell_of_a_text_file_that_is_no_number_is_a_bad_row(
    tmp_path: Path, cell: str, typed_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{i},1" for i in range(300_000)]  # more than the first block, by which types may be guessed
    rows[250_000] = f"{cell},1"
    rows[3] = " 4.5 ,1"
    (tmp_path / "table.csv").write_text("\n".join(["a,y", *rows]))
    monkeypatch.setattr(text_files, "TYPED_BYTES", typed_bytes)
    with pytest.raises(InvalidInputError, match=r"table\.csv, data row 250001: column 'a' is"):
        survey(tmp_path)
    assert survey(tmp_path, on_bad_rows="skip").num_rows == 299_999


def test_a_table_of_bad_rows_only_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "table.parquet", frame(5).assign(b=np.inf))
    with pytest.raises(InvalidInputError, match=r"No row .* is left"):
        survey(tmp_path, on_bad_rows="skip")


def treated(impute: str) -> pd.DataFrame:
    """The table under a rule for missing values, by pandas."""
    table = mixed()
    if impute == "drop":
        return table.dropna()
    fills = {"size": table["size"].agg(impute), "color": table["color"].mode()[0], "is_new": table["is_new"].mode()[0]}
    return table.fillna(fills)


def encoded(table: pd.DataFrame) -> np.ndarray:
    indicators = [table["color"] == color for color in ("blue", "green", "red")]
    return np.column_stack([table["size"], *indicators, table["is_new"].astype(float)]).astype(float)


@pytest.mark.parametrize("impute", ["mean", "median", "drop"])
def test_columns_are_learned_as_from_the_table_in_memory(tmp_path: Path, impute: str) -> None:
    write_parts(tmp_path, mixed(), cuts=(100, 180), group=50)
    found, table = TrainingTable(tmp_path, "y", impute=impute).survey, treated(impute)  # type: ignore[arg-type]
    assert found.encoder.feature_names == ["size", "color=blue", "color=green", "color=red", "is_new"]
    if impute != "drop":
        assert [c.fill for c in found.encoder.columns] == [
            pytest.approx(table.loc[0, "size"]),
            table.loc[0, "color"],
            table.loc[0, "is_new"],
        ]
    assert found.bad.dropped == len(mixed()) - len(table)


@pytest.mark.parametrize("impute", ["mean", "median", "drop"])
def test_moments_are_those_of_the_encoded_table(tmp_path: Path, impute: str) -> None:
    write_parts(tmp_path, mixed(), cuts=(100, 180), group=50)
    found, table = TrainingTable(tmp_path, "y", impute=impute).survey, treated(impute)  # type: ignore[arg-type]
    x = encoded(table)
    whole = learn_scaling(x, table[["y"]].to_numpy())
    np.testing.assert_allclose(found.moments.means, np.append(whole.x_mean, whole.y_mean), atol=1e-12)
    np.testing.assert_allclose(found.moments.scales, np.append(whole.x_scale, whole.y_scale))
    np.testing.assert_allclose(found.reservoir.rows.x, x)


def test_missing_cells_are_counted_by_column(tmp_path: Path) -> None:
    write_parts(tmp_path, mixed(), cuts=(100, 180), group=50)
    assert survey(tmp_path).missing.tolist() == mixed()[["size", "color", "is_new"]].isna().sum().tolist()


@pytest.mark.parametrize("rule", ["most_frequent", "guess"])
def test_unknown_rules_are_refused(tmp_path: Path, rule: str) -> None:
    write(tmp_path / "table.parquet", frame(5))
    with pytest.raises(InvalidInputError, match="must be one of"):
        survey(tmp_path, impute=rule)


def test_categories_come_from_all_rows(tmp_path: Path) -> None:
    table = frame(1000).assign(color=["red"] * 999 + ["blue"])
    write_parts(tmp_path, table, cuts=(500,), group=100)
    assert survey(tmp_path).encoder.feature_names == ["a", "b", "color=blue", "color=red"]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["2020-01-01", "2020-01-02"] * 30, "holds dates"),
        ([f"{i % 50}.5" for i in range(60)], "numbers as text"),
        ([None] * 60, "no values at all"),
        (pd.Series([None] * 60, dtype="string"), "no values at all"),
    ],
)
def test_text_that_is_no_category_is_refused(tmp_path: Path, column: list[str], words: str) -> None:
    write(tmp_path / "table.parquet", frame(60).assign(text=column))
    with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
        survey(tmp_path)


def test_weights_count_in_moments_and_blocks(tmp_path: Path) -> None:
    table = frame(2 * BLOCK_ROWS + 10)
    table["w"] = np.random.default_rng(0).uniform(0.0, 2.0, len(table))
    table.loc[5, "w"] = 0.0
    write(tmp_path / "table.parquet", table, group=10**6)
    found = survey(tmp_path, TableColumns(("y",), weight="w"))
    assert found.encoder.feature_names == ["a", "b"]
    assert found.moments.means[0] == pytest.approx(np.average(table["a"], weights=table["w"]))
    assert found.parts[0].excluded.tolist() == [5]
    sums = [table["w"][start : start + BLOCK_ROWS].sum() for start in range(0, len(table), BLOCK_ROWS)]
    np.testing.assert_allclose(found.parts[0].block_weight, sums)


@pytest.mark.parametrize("columns", [TableColumns(("y",), weight="b"), TableColumns(("y",), noise="b")])
def test_negative_weights_and_noises_are_bad_rows(tmp_path: Path, columns: TableColumns) -> None:
    write(tmp_path / "table.parquet", frame(5))
    with pytest.raises(InvalidInputError, match="data row 2: column 'b' is negative"):
        survey(tmp_path, columns)


@pytest.mark.parametrize("columns", [TableColumns(("z",)), TableColumns(("y",), weight="z"), TableColumns(("y", "y"))])
def test_columns_that_are_not_there_or_serve_twice_are_refused(tmp_path: Path, columns: TableColumns) -> None:
    write(tmp_path / "table.parquet", frame(5))
    with pytest.raises(InvalidInputError, match=r"no column 'z'|different columns"):
        survey(tmp_path, columns)


def test_a_target_of_text_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "table.parquet", frame(5).astype({"y": str}))
    with pytest.raises(InvalidTypeError, match="'y' must hold numbers"):
        survey(tmp_path)


def test_an_unknown_way_with_bad_rows_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "table.parquet", frame(5))
    with pytest.raises(InvalidInputError, match="on_bad_rows must be"):
        survey(tmp_path, on_bad_rows="ignore")
