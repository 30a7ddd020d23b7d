"""What is learned from a table: kinds, categories, and what fills gaps."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgp.data.columns import Column
from cvgp.data.schema import Schema
from cvgp.data.tables import learned_columns
from cvgp.data.tables import training_table as table_module
from cvgp.data.tables.arrow_cells import MAX_INDICATORS
from cvgp.data.tables.reservoir import Reservoir
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import InvalidInputError, InvalidTypeError
from tests.data.tables.tables import frame, learn, write, write_parts
from tests.parallel.groups import ThreadGroup, run_in_threads

COLORS = ["red", "blue", "red", "green"]
SIZES = [1.0, 2.0, 2.0, 7.0]
FLAGS = [True, False, True, True]
PRICES = [10, 20, 30, 40]
TABLE = pd.DataFrame({"size": SIZES, "price": PRICES, "color": ["red", "blue", "red", "blue"], "sold": FLAGS})
HOLES = TABLE.assign(
    size=[1.5, np.nan, 3.5, 4.5],
    color=["red", None, "red", None],
    sold=pd.Series([True, False, True, None], dtype="boolean"),
)


def learned(cells: object, impute: str | None = None) -> Column:
    column = pd.Series(cells)
    table = pd.DataFrame({"a": column, "y": np.arange(len(column), dtype=float)})
    return learn(table, "y", impute).columns[0]  # type: ignore[arg-type]


def test_features_are_named_in_the_order_of_the_table() -> None:
    assert learn(TABLE, "price").feature_names == ("size", "color=blue", "color=red", "sold")


def test_categories_are_learned_in_order() -> None:
    assert learned(COLORS) == Column("a", "categorical", ("blue", "green", "red"), typical=(1.0, 1.0, 2.0))


def test_categories_do_not_depend_on_the_order_of_rows() -> None:
    assert learned(COLORS[::-1]) == learned(COLORS)


def test_a_category_that_is_declared_but_absent_is_not_learned() -> None:
    assert learned(pd.Categorical(["a", "b", "a"], categories=["a", "b", "c"])).categories == ("a", "b")


@pytest.mark.parametrize("cells", [[3, 3, 3], ["a", "a", "a"], [True] * 3])
def test_a_constant_column_is_learned(cells: list) -> None:
    assert len(learned(cells).feature_names) == 1


@pytest.mark.parametrize(("count", "kind"), [(MAX_INDICATORS, "categorical"), (MAX_INDICATORS + 1, "levels")])
def test_few_categories_are_indicators_and_many_are_levels(count: int, kind: str) -> None:
    column = learned([f"name {i:03}" for i in range(count)] * 2)
    assert (column.kind, len(column.categories)) == (kind, count)


@pytest.mark.parametrize("dtype", ["float64", "str", "category", "Int64"])
def test_a_column_without_values_is_refused(dtype: str) -> None:
    with pytest.raises(InvalidInputError, match=r"Column 'a' holds no values .*leave it out"):
        learned(pd.Series([None, None], dtype=dtype))


def test_a_different_text_in_every_row_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'a' holds a different text in every row.*only names the rows"):
        learned(["u", "v", "w"])


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_learning_does_not_depend_on_the_types_of_pandas(backend: str) -> None:
    assert learn(HOLES.convert_dtypes(dtype_backend=backend), "price", "mean") == learn(HOLES, "price", "mean")


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "parquet", "feather"])
@pytest.mark.parametrize("impute", ["mean", "median", "drop"])
def test_learning_does_not_depend_on_the_kind_of_file(tmp_path: Path, ending: str, impute: str) -> None:
    table = pd.concat([HOLES, HOLES], ignore_index=True)  # one row is complete, and a text in every row is refused
    path = write(tmp_path / f"a.{ending}", table)
    found = TrainingTable(path, "price", impute=impute)  # type: ignore[arg-type]
    assert found.schema == learn(table, "price", impute)  # type: ignore[arg-type]


# What fills gaps.


@pytest.mark.parametrize(("impute", "fill"), [("median", 2.0), ("mean", 3.0)])
def test_numbers_are_filled_by_the_rule(impute: str, fill: float) -> None:
    assert learned(SIZES, impute).fill == fill


@pytest.mark.parametrize("impute", ["median", "mean"])
@pytest.mark.parametrize(("cells", "fill"), [(COLORS, "red"), (FLAGS, True)], ids=["text", "boolean"])
def test_anything_else_is_filled_with_the_most_frequent(cells: list, fill: object, impute: str) -> None:
    assert learned(cells, impute).fill == fill


@pytest.mark.parametrize(("cells", "fill"), [(["b", "a", "b", "a"], "a"), ([True, False], False)])
def test_the_fill_is_the_first_of_equally_frequent_values(cells: list, fill: object) -> None:
    assert learned(cells, "mean").fill == fill


def test_equally_frequent_values_of_many_files_are_equal(tmp_path: Path) -> None:
    table = frame(999).assign(color=["red", "blue", "green"] * 333)
    write_parts(tmp_path, table, cuts=(7, 100, 501), group=13)
    schema = TrainingTable(tmp_path, "y", impute="mean").schema
    assert schema is not None
    assert schema.columns[-1].fill == "blue"


@pytest.mark.parametrize(("impute", "fill"), [("mean", 3.0), ("median", 2.0)])
def test_missing_values_do_not_count_for_the_fill(impute: str, fill: float) -> None:
    assert learned([1.0, np.nan, 2.0, 6.0], impute).fill == fill


@pytest.mark.parametrize("impute", [None, "drop"])
@pytest.mark.parametrize("cells", [SIZES, COLORS, FLAGS], ids=["numeric", "categorical", "boolean"])
def test_without_a_rule_there_is_no_fill(cells: list, impute: str | None) -> None:
    assert learned(cells, impute).fill is None


def test_rows_are_filled_by_the_rule(tmp_path: Path) -> None:
    table = TrainingTable(write(tmp_path / "a.parquet", HOLES), "price", impute="median")
    np.testing.assert_array_equal(table.load().x, [[1.5, 1, 1], [3.5, 1, 0], [3.5, 1, 1], [4.5, 1, 1]])


def gappy(num_rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.exponential(size=num_rows), "b": rng.normal(size=num_rows) ** 3, "y": 1.0})
    table.loc[rng.random(num_rows) < 0.2, "a"] = np.nan
    table.loc[::100, "y"] = np.nan
    return table


@pytest.mark.parametrize("kept", [10, 10**6])
def test_medians_of_a_table_that_fits_in_memory_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """However many rows are kept as a sample; rows that do not count, do not."""
    monkeypatch.setattr(Reservoir.__init__, "__defaults__", (kept,))
    write_parts(tmp_path, gappy(30_000), cuts=(10_000,), group=7_000)
    table = TrainingTable(tmp_path, "y", impute="median", on_bad_rows="skip")
    good = gappy(30_000).dropna(subset="y")
    assert [column.fill for column in table.survey.encoder.columns] == good[["a", "b"]].median().tolist()


def test_medians_of_a_larger_table_are_those_of_the_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(Reservoir.__init__, "__defaults__", (5_000,))
    monkeypatch.setattr(learned_columns, "RESERVOIR_ROWS", 5_000)
    write_parts(tmp_path, gappy(30_000), cuts=(10_000,), group=7_000)
    table = TrainingTable(tmp_path, "y", impute="median", on_bad_rows="skip")
    found = np.array([column.fill for column in table.survey.encoder.columns])
    assert not np.array_equal(found, gappy(30_000)[["a", "b"]].median())
    np.testing.assert_allclose(found, gappy(30_000)[["a", "b"]].median(), atol=0.05)


def test_a_column_without_a_value_in_the_sample_is_filled_with_its_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(Reservoir.__init__, "__defaults__", (5,))
    rare = np.where(np.arange(30_000) < 2, [1.0, 3.0] * 15_000, np.nan)
    write(tmp_path / "a.parquet", frame(30_000).assign(a=rare))
    table = TrainingTable(tmp_path, "y", impute="median")
    assert np.isnan(rare[table.survey.reservoir.where[:, 1]]).all()
    assert table.survey.encoder.columns[0].fill == 2.0


@pytest.mark.parametrize("rule", ["most_frequent", "guess"])
def test_an_unknown_rule_is_refused(rule: str) -> None:
    with pytest.raises(InvalidInputError, match=r"must be one of \('mean', 'median', 'drop'\) or None"):
        learn(TABLE, "price", rule)  # type: ignore[arg-type]


# Rows that are left out.


def test_dropped_rows_are_counted() -> None:
    assert learn(HOLES.assign(price=[None, 20, 30, 40]), "price", "drop").n_dropped == 3


def test_dropping_leaves_the_complete_rows(tmp_path: Path) -> None:
    holes = TABLE.assign(size=[np.nan, 2.5, 3.5, 4.5], price=[10, 20, None, 40])
    rows = TrainingTable(write(tmp_path / "a.parquet", holes), "price", impute="drop").load()
    np.testing.assert_array_equal(np.hstack([rows.x, rows.y]), [[2.5, 1, 0, 20], [4.5, 1, 1, 40]])


@pytest.mark.parametrize("options", [{"impute": "drop"}, {"on_bad_rows": "skip"}])
@pytest.mark.parametrize("limit", [10**9, 0], ids=["loaded", "in parts"])
def test_categories_of_rows_that_are_left_out_are_not_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], limit: int
) -> None:
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", limit)
    gap = None if "impute" in options else np.inf
    holes = TABLE.assign(color=["red", "red", "red", "blue"], size=[1, 2, 3, gap])
    table = TrainingTable(write(tmp_path / "a.parquet", holes), "price", **options)  # type: ignore[arg-type]
    assert table.feature_names == ["size", "color=red", "sold"]
    (chunk,) = table.source(table.scaling).chunks(10)
    np.testing.assert_array_equal(chunk.x, table.scaling.scale_x(table.load().x))
    np.testing.assert_array_equal(table.load().x[:, 1], [1, 1, 1])


def test_a_table_without_a_complete_row_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"No row .* is left to learn from; 4 rows with missing values"):
        learn(TABLE.assign(size=[1, None, None, 2], price=[None, 1, 2, None]), "price", "drop")


# Tables that cannot be used.


def test_a_target_that_does_not_exist_is_named_beside_the_columns() -> None:
    with pytest.raises(InvalidInputError, match=r"no column 'cost', or several; choose from \['size', 'price'"):
        learn(TABLE, "cost")


def test_a_table_without_features_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least one beside"):
        learn(TABLE[["price"]], "price")


@pytest.mark.parametrize("impute", [None, "median", "mean"])
def test_a_missing_target_is_an_error_unless_rows_are_dropped(impute: str | None) -> None:
    with pytest.raises(InvalidInputError, match=r"data row 2: column 'price' is missing.*on_bad_rows='skip'"):
        learn(TABLE.assign(price=[1, None, None, 4]), "price", impute)  # type: ignore[arg-type]


def test_text_in_the_target_of_a_text_file_is_refused_by_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", TABLE.assign(price=["1", "cheap", "3", "4"]))
    with pytest.raises(InvalidInputError, match=r"a\.csv, data row 2: column 'price' is infinite or not a number"):
        TrainingTable(path, "price")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_dates_in_a_file_are_refused(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", TABLE.assign(when=pd.date_range("2020", periods=4)))
    with pytest.raises(InvalidTypeError, match=r"Column 'when' holds dates.*dates='features'.*days since"):
        TrainingTable(path, "price")


def test_features_of_the_same_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two features the same name"):
        learn(TABLE.assign(**{"color=red": 1.0}), "price")


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1),
        st.one_of(
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
            st.lists(st.booleans(), min_size=4, max_size=4),
            st.tuples(st.text(), st.text()).map(lambda pair: [f"{text} x" for text in pair] * 2),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_the_schema_of_any_table_survives_json(table: dict[str, list]) -> None:
    schema = learn(pd.DataFrame(table).assign(target=[1, 2, 3, 4]), "target", "median")
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


# Many processes.


def test_processes_fill_gaps_with_the_same_medians(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 0)
    write_parts(tmp_path, gappy(30_000), cuts=(5_000, 25_000), group=5_000)

    def fills(group: ThreadGroup) -> list[object]:
        table = TrainingTable(tmp_path, "y", impute="median", on_bad_rows="skip", group=group)
        return [column.fill for column in table.survey.encoder.columns]

    good = gappy(30_000).dropna(subset="y")  # all rows are kept, so that the medians are those of all
    assert run_in_threads(2, fills) == [good[["a", "b"]].median().tolist()] * 2


def test_processes_agree_that_text_spells_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong cell makes text of a column, and only one process finds many different texts in it."""
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 0)
    for number, texts in enumerate((["1", "2", "oops"] * 50, [*map(str, range(150)), "oops"])):
        write(tmp_path / f"{number}.csv", pd.DataFrame({"a": texts, "y": 1.0}))

    def learned_kind(group: ThreadGroup) -> tuple[str, int]:
        table = TrainingTable(tmp_path, "y", on_bad_rows="skip", group=group)
        return table.survey.encoder.columns[0].kind, table.survey.bad.skipped

    assert run_in_threads(2, learned_kind) == [("numeric", 51)] * 2
