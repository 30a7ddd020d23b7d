"""What is learned from a table: kinds, categories, effects, and what fills gaps."""

import datetime
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgp import read_table
from cvgp.data.scaling import learn_scaling
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.tables import stream
from cvgp.tables.apply import load_rows
from cvgp.tables.columns import MAX_INDICATORS, Column, Schema
from cvgp.tables.table import TrainingTable, as_flag, names_in
from tests.parallel.groups import ThreadGroup, run_in_threads
from tests.tables.helpers import frame, learn, learned, put, write, write_parts

COLORS = ["red", "blue", "red", "green"]
SIZES = [1.0, 2.0, 2.0, 7.0]
FLAGS = [True, False, True, True]
TABLE = pd.DataFrame({"size": SIZES, "price": [10, 20, 30, 40], "color": ["red", "blue", "red", "blue"], "sold": FLAGS})
HOLES = TABLE.assign(
    size=[1.5, np.nan, 3.5, 4.5],
    color=["red", None, "red", None],
    sold=pd.Series([True, False, True, None], dtype="boolean"),
)
N = 40
NOTHING = {
    "id": np.arange(N),
    "name": [f"person {i}" for i in range(N)],
    "country": ["AT"] * N,
    "zero": np.zeros(N),
    "off": [False] * N,
}


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is too large to be loaded, and has many blocks."""
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(stream, "BLOCK_ROWS", 64)


def column_of(cells: object, impute: Any = None) -> Column:
    series = pd.Series(cells)
    return learn(pd.DataFrame({"a": series, "y": np.arange(len(series), dtype=float)}), "y", impute).columns[0]


# Columns.


def test_categories_are_learned_in_order_whatever_the_order_of_rows() -> None:
    assert column_of(COLORS) == Column("a", "categorical", ("blue", "green", "red"), typical=(1.0, 1.0, 2.0))
    assert column_of(COLORS[::-1]) == column_of(COLORS)
    assert column_of(pd.Categorical(["a", "b", "a"], categories=["a", "b", "c"])).categories == ("a", "b")


@pytest.mark.parametrize(("count", "kind"), [(MAX_INDICATORS, "categorical"), (MAX_INDICATORS + 1, "levels")])
def test_few_categories_are_indicators_and_many_are_levels(count: int, kind: str) -> None:
    column = column_of([f"name {i:03}" for i in range(count)] * 2)
    assert (column.kind, len(column.categories)) == (kind, count)


def test_ordered_categories_are_positions(tmp_path: Path) -> None:
    sizes = pd.Categorical(["low", "high", "mid", "low"], categories=["low", "mid", "high"], ordered=True)
    table = learned(pd.DataFrame({"size": sizes, "y": [1.0, 2.0, 3.0, 4.0]}))
    assert table.load().x[:, 0].tolist() == [0.0, 2.0, 1.0, 0.0]
    for number, order in enumerate((["low", "high"], ["high", "low"])):
        other = pd.Categorical(["low", "high"] * 2, categories=order, ordered=True)
        pd.DataFrame({"size": other, "y": 1.0}).to_feather(tmp_path / f"{number}.feather")
    with pytest.raises(InvalidInputError, match="ordered categories of column 'size' differ between parts"):
        learned(tmp_path)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["u", "v", "w"], r"a different text in every row.*only names the rows"),
        ([f"{i % 50}.5" for i in range(60)], "numbers as text"),
        ([datetime.time(1), datetime.time(2)], "times of day"),
        (["10:30", "11:45", "10:30"], "times of day"),
        ([datetime.timedelta(1)] * 2, "durations"),
    ],
)
def test_what_cannot_be_a_feature_is_refused(cells: Any, words: str) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match=f"Column 'a'.*{words}"):
        column_of(cells)


def test_all_columns_that_cannot_be_used_are_in_one_error(tmp_path: Path) -> None:
    columns = {"long": [datetime.timedelta(1)] * N, "longer": [datetime.timedelta(2)] * N}
    rows = pd.DataFrame({"x": np.arange(N) % 7, **columns, "y": 1.0 * np.arange(N)})
    with pytest.raises(CVGPError, match="2 columns cannot be used") as caught:
        learned(write(tmp_path / "a.parquet", rows))
    assert str(caught.value).endswith("--drop long,longer (in Python: read_table(..., drop=['long', 'longer'])).")


@pytest.mark.parametrize("values", [np.nan, None, "text"], ids=["numbers", "nothing", "text"])
@pytest.mark.parametrize("impute", [None, "mean"])
def test_a_column_without_values_is_left_out_with_a_warning(tmp_path: Path, values: Any, impute: Any) -> None:
    empty = pd.Series([None] * N, dtype="str") if values == "text" else values
    rows = pd.DataFrame({"x": np.arange(N) % 7, "void": empty, "y": 1.0 * np.arange(N)})
    path = write(tmp_path / "a.parquet", rows)
    with pytest.warns(CVGPWarning, match=r"Left out.*'void' \(no values\)\.$"):
        assert [column.name for column in learned(path, impute=impute).schema.columns] == ["x"]
    with pytest.raises(InvalidInputError, match=r"'void' holds no values(.|\n)*--drop void"):
        learned(path, impute=impute, always_keep=["void"])


@pytest.mark.parametrize("ending", ["csv", "tsv.gz", "parquet", "feather"])
@pytest.mark.parametrize("impute", [None, "mean", "drop"])
def test_learning_does_not_depend_on_the_kind_of_file(tmp_path: Path, ending: str, impute: str | None) -> None:
    rows = pd.concat([HOLES, HOLES], ignore_index=True)  # one row is complete, and a text in every row is refused
    assert learned(write(tmp_path / f"a.{ending}", rows), "price", impute=impute).schema == learn(rows, "price", impute)


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1).filter(str.strip),
        st.one_of(
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
            st.lists(st.booleans(), min_size=4, max_size=4),
            st.tuples(st.text(), st.text()).map(lambda pair: [f"{text} x" for text in pair] * 2),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_the_schema_of_any_table_survives_json(table: dict[str, list[Any]]) -> None:
    schema = learn(pd.DataFrame(table).assign(target=[1, 2, 3, 4]), "target", "median")
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


# Gaps.


@pytest.mark.parametrize("impute", ["mean", "median", "drop"])
def test_rows_are_those_that_pandas_makes_under_the_rule(tmp_path: Path, impute: str) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"size": rng.normal(size=300), "color": rng.choice(["red", "blue"], 300), "y": rng.normal(size=300)}
    )
    rows.loc[::7, "size"], rows.loc[::11, "color"] = np.nan, None
    write_parts(tmp_path, rows, cuts=(100, 180), group=50)
    by_pandas = (
        rows.dropna()
        if impute == "drop"
        else rows.fillna({"size": rows["size"].agg(impute), "color": rows["color"].mode()[0]})
    )
    x = np.column_stack([by_pandas["size"], by_pandas["color"] == "blue", by_pandas["color"] == "red"]).astype(float)
    table = learned(tmp_path, impute=impute)
    np.testing.assert_allclose(table.load().x, x)
    assert table.bad.dropped == len(rows) - len(by_pandas)
    whole = learn_scaling(x, by_pandas[["y"]].to_numpy())
    for mine, theirs in zip(table.scaling()[:4], whole[:4], strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)


@pytest.mark.parametrize("options", [{"impute": "drop"}, {"on_bad_rows": "skip"}])
@pytest.mark.parametrize("limit", [10**9, 0], ids=["loaded", "in parts"])
def test_categories_of_rows_that_are_left_out_are_not_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], limit: int
) -> None:
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", limit)
    holes = TABLE.assign(color=["red", "red", "red", "blue"], size=[1, 2, 3, None if "impute" in options else np.inf])
    table = learned(write(tmp_path / "a.parquet", holes), "price", **options)
    assert table.feature_names == ["size", "color=red", "sold"]
    (chunk,) = table.source(table.scaling()).chunks(10)
    np.testing.assert_array_equal(chunk.x, table.scaling().scale_x(table.load().x))


# Bad rows.


@pytest.mark.parametrize(("column", "value"), [("b", np.inf), ("y", -np.inf)])
def test_a_bad_row_is_named_by_file_and_row_or_left_out_on_request(tmp_path: Path, column: str, value: float) -> None:
    rows = frame()
    rows.loc[[31_234, 39_999], column] = value
    write_parts(tmp_path, rows)  # the third file begins at row 22,000
    with pytest.raises(InvalidInputError, match=rf"part-2\.parquet, data row 9235: column '{column}' is .*18000"):
        learned(tmp_path)
    table = learned(tmp_path, on_bad_rows="skip")
    assert (table.num_rows, table.bad.skipped) == (len(rows) - 2, 2)
    assert "part-2.parquet, data row 9235" in table.bad.summary()
    assert table.moments.means[0] == pytest.approx(rows["a"].drop([31_234, 39_999]).mean())


def test_weights_count_and_negative_ones_are_bad() -> None:
    rows = frame(100).assign(w=np.linspace(0.0, 2.0, 100))
    table = learned(rows, sample_weight="w")
    assert table.feature_names == ["a", "b"]
    assert table.num_rows == 99  # a row of weight zero does not count
    assert table.moments.means[0] == pytest.approx(np.average(rows["a"], weights=rows["w"]))
    with pytest.raises(InvalidInputError, match="data row 2: column 'b' is negative"):
        learned(frame(5), noise_variance="b")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "cost"}, r"no column 'cost', or several; it has size, price"),
        ({"sample_weight": "z"}, "no column 'z'"),
        ({"target": ["price", "price"]}, "different columns"),
        ({"target": 3}, "a column or a list of columns"),
        ({"sample_weight": [1.0]}, "names of its columns"),
        ({"impute": "guess"}, r"must be one of \('mean', 'median', 'drop'\) or None"),
        ({"on_bad_rows": "ignore"}, "on_bad_rows must be"),
        ({"dates": "expand"}, "dates must be"),
        ({"drop": ["sise"]}, "did you mean 'size'"),
        ({"drop": 3}, "drop is a list of names"),
        ({"features": ["price"]}, "'price'.*which is the target"),
        ({"drop": "size", "always_keep": "size"}, "which is asked for"),
        ({"sep": ";"}, "sep can be said of text tables"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
        learned(TABLE, **{"target": "price", **options})


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (TABLE[["price"]], {}, "at least one beside"),
        (TABLE.assign(price=[1, np.inf, None, 4]), {}, r"data row 2: column 'price' is infinite.*on_bad_rows='skip'"),
        (TABLE.assign(price="x"), {}, "'price' must hold numbers"),
        (TABLE.assign(**{"color=red": 1.0}), {}, "two features the same name"),
        (TABLE.assign(size=np.inf), {"on_bad_rows": "skip"}, "No row .* is left"),
        (TABLE.assign(size=[1, None, None, 2], price=[None, 1, 2, None]), {"impute": "drop"}, "4 rows with missing"),
    ],
)
def test_tables_that_cannot_be_learned_from_are_refused(rows: pd.DataFrame, options: Any, words: str) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
        _ = learned(rows, "price", **options).schema


# Columns that tell nothing.


def telling(**columns: Any) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.standard_normal(N), **columns, "y": rng.standard_normal(N)})


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_that_tell_nothing_are_left_out_with_one_line(tmp_path: Path, ending: str) -> None:
    with pytest.warns(CVGPWarning) as caught:
        table = learned(write(tmp_path / f"a.{ending}", telling(**NOTHING)))
    assert (table.feature_names, table.load().x.shape) == (["x"], (N, 1))
    (warning,) = caught
    assert all(repr(name) in str(warning.message) for name in NOTHING)
    assert table.schema.unused == tuple(NOTHING)


@pytest.mark.parametrize("option", ["always_keep", "features", "drop"])
def test_columns_that_are_asked_for_or_dropped_need_no_word(option: str) -> None:
    rows = telling(id=NOTHING["id"], country=NOTHING["country"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = learned(rows, **{option: ["id", "country"]})
    expected = {"always_keep": ["x", "id", "country=AT"], "features": ["id", "country=AT"], "drop": ["x"]}
    assert table.feature_names == expected[option]


@pytest.mark.parametrize(
    "column",
    [
        {"year": 1980 + np.arange(N)},
        {"a": np.where(np.arange(N) % 2, 1.0, np.nan)},
        {"a": [f"level {i % 30}" for i in range(N)]},
    ],
    ids=["years that count up", "a constant with gaps", "categories"],
)
def test_columns_that_may_tell_something_stay(column: dict[str, Any]) -> None:
    assert [own.name for own in learned(telling(**column)).schema.columns] == ["x", *column]


def test_row_labels_that_pandas_wrote_into_a_csv_are_left_out_or_refused(tmp_path: Path) -> None:
    telling().to_csv(tmp_path / "a.csv")
    with pytest.warns(CVGPWarning, match="'' \\(numbers the rows\\)"):
        assert learned(tmp_path / "a.csv").feature_names == ["x"]
    with pytest.raises(InvalidInputError, match=r"has no name.*index=False"):
        learned(put(tmp_path, ",size\n1.5,1\n2,2\n"), "size")


def test_ids_of_a_table_in_parts_are_counted_over_all(in_parts: None) -> None:
    rows = pd.DataFrame({"x": np.arange(25_000) % 11, "a": [f"id {i}" for i in range(25_000)], "y": 1.0})
    with pytest.warns(CVGPWarning, match="'a' \\(a different text in nearly every row\\)"):
        assert learned(rows).feature_names == ["x"]


@pytest.mark.parametrize("names", [["a"], ["a b", "c"], ["a,b", 'say "x"'], ["é", "it's"]])
def test_a_flag_that_is_pasted_gives_the_names(names: list[str]) -> None:
    import shlex

    option, value = shlex.split(as_flag("drop", names))
    assert (option, names_in(value)) == ("--drop", names)


# Levels, gaps and dates together.

NUM_LEVELS = 40


def mixed(num_rows: int = 1200, seed: int = 0) -> pd.DataFrame:
    """An effect of each of 40 cities, a slope in a, gaps everywhere, and dates of a year."""
    rng = np.random.default_rng(seed)
    city = rng.integers(NUM_LEVELS, size=num_rows)
    effect = np.random.default_rng(7).normal(size=NUM_LEVELS)
    a = rng.normal(size=num_rows)
    hours = rng.integers(0, 366 * 24, num_rows)
    rows = pd.DataFrame(
        {
            "a": a,
            "city": [f"c{i:02}" for i in city],
            "color": rng.choice(["blue", "red"], num_rows),
            "when": [datetime.datetime(2021, 1, 1) + datetime.timedelta(hours=int(h)) for h in hours],
            "y": 2.0 * a + effect[city] + 0.3 * rng.normal(size=num_rows),
        }
    )
    for step, name in ((9, "a"), (11, "city"), (13, "color"), (17, "when")):
        rows.loc[::step, name] = None
    return rows


@pytest.fixture(scope="module")
def table() -> TrainingTable:
    return learned(mixed())


def feature(table: TrainingTable, name: str) -> np.ndarray:
    return table.load().x[:, table.feature_names.index(name)]


def test_gaps_are_marked_filled_with_the_median_and_counted(table: TrainingTable) -> None:
    rows, gaps = mixed(), mixed()["a"].isna()
    np.testing.assert_array_equal(feature(table, "a is missing"), gaps)
    np.testing.assert_allclose(feature(table, "a")[gaps], rows["a"].median())
    np.testing.assert_array_equal(feature(table, "color is missing"), rows["color"].isna())
    assert not feature(table, "color=blue")[rows["color"].isna()].any()
    expected = rows.drop(columns="y").isna().sum()
    assert {column.name: column.n_missing for column in table.schema.columns} == expected.to_dict()


def test_effects_of_levels_are_near_the_truth(table: TrainingTable) -> None:
    effect = np.random.default_rng(7).normal(size=NUM_LEVELS)
    found = np.array(table.schema.columns[1].effects)[:NUM_LEVELS, 0]
    assert np.corrcoef(found, effect)[0, 1] > 0.97
    assert np.polyfit(found, effect, 1)[0] == pytest.approx(1.0, abs=0.1)


def test_a_table_in_parts_has_the_features_and_moments_of_one_in_memory(
    table: TrainingTable, tmp_path: Path, in_parts: None
) -> None:
    write_parts(tmp_path, mixed(), cuts=(), group=200)
    parts = learned(tmp_path)
    assert not parts.fits_in_memory
    assert "read in parts" in parts.describe()
    assert parts.schema.feature_names == table.schema.feature_names
    for mine, theirs in zip(parts.schema.columns, table.schema.columns, strict=True):
        assert (mine.fill, mine.typical) == (theirs.fill, theirs.typical)
        np.testing.assert_allclose(mine.effects, theirs.effects)
    np.testing.assert_allclose(parts.moments.means, table.moments.means)
    np.testing.assert_allclose(parts.moments.scales, table.moments.scales)
    chunks = [chunk.x for chunk in parts.source(parts.scaling()).chunks(100)]
    np.testing.assert_allclose(np.concatenate(chunks), parts.scaling().scale_x(table.load().x))


# Processes.


def test_processes_learn_what_one_alone_does(tmp_path: Path, in_parts: None) -> None:
    write_parts(tmp_path, mixed(), cuts=(300, 700), group=100)

    def in_group(group: ThreadGroup) -> tuple[Schema, int]:
        found = read_table(tmp_path, "y").learn(group)
        return found.schema, found.rows.store.num_rows

    alone = learned(tmp_path).schema
    (one, first), (two, second) = run_in_threads(2, in_group)
    assert one == two
    assert (first + second, first > 0, second > 0) == (1200, True, True)
    np.testing.assert_allclose(np.array(one.columns[1].effects), np.array(alone.columns[1].effects), atol=1e-9)
    assert [own.fill for own in one.columns] == [own.fill for own in alone.columns]


# The same encoding again.


def test_an_encoding_is_a_value_that_is_applied_to_other_rows(table: TrainingTable, tmp_path: Path) -> None:
    new = mixed(300, seed=1).assign(city=lambda t: t["city"].replace("c01", "never seen"))
    schema = Schema.from_json(json.loads(json.dumps(table.schema.to_json())))
    again = read_table(new, "y").apply(schema)
    with pytest.warns(CVGPWarning, match="'city'"):
        inputs, y = load_rows(new, schema)
    np.testing.assert_allclose(again.load().x, inputs.x)
    np.testing.assert_allclose(again.load().y, y)
    assert again.schema == schema


def test_fit_may_name_the_target_once() -> None:
    opened = read_table(TABLE, "price")
    assert opened.with_target(None) is opened.with_target("price") is opened
    with pytest.raises(InvalidInputError, match="choose one"):
        opened.with_target("size")
    with pytest.raises(InvalidInputError, match="no target"):
        read_table(TABLE).with_target(None)
    assert opened.learn() is opened.learn()
