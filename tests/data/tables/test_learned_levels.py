"""What a table with levels, gaps and dates becomes."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cvgp.data import columns as columns_module
from cvgp.data.tables import first_pass
from cvgp.data.tables import training_table as table_module
from cvgp.data.tables.by_schema import load_rows
from cvgp.data.tables.in_memory import dataset_of
from cvgp.data.tables.reservoir import Reservoir
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import InvalidInputError
from tests.data.tables.tables import write_parts
from tests.parallel.groups import ThreadGroup, run_in_threads

NUM_LEVELS = 40


def mixed(num_rows: int = 1200, seed: int = 0) -> pd.DataFrame:
    """An effect of each of 40 cities, a slope in a, gaps everywhere, and dates of a year."""
    rng = np.random.default_rng(seed)
    city = rng.integers(NUM_LEVELS, size=num_rows)
    effect = np.random.default_rng(7).normal(size=NUM_LEVELS)
    a = rng.normal(size=num_rows)
    hours = rng.integers(0, 366 * 24, num_rows)
    table = pd.DataFrame(
        {
            "a": a,
            "city": [f"c{i:02}" for i in city],
            "color": rng.choice(["blue", "red"], num_rows),
            "when": [datetime.datetime(2021, 1, 1) + datetime.timedelta(hours=int(h)) for h in hours],
            "y": 2.0 * a + effect[city] + 0.3 * rng.normal(size=num_rows),
        }
    )
    table.loc[::9, "a"] = np.nan
    table.loc[::11, "city"] = None
    table.loc[::13, "color"] = None
    table.loc[::17, "when"] = pd.NaT
    return table


def opened(place: object, **options: object) -> TrainingTable:
    return TrainingTable(place, "y", dates="features", **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def table() -> TrainingTable:
    return opened(dataset_of(mixed()))


def feature(table: TrainingTable, name: str) -> np.ndarray:
    return table.load().x[:, table.feature_names.index(name)]


def test_gaps_are_marked_and_filled_with_the_median(table: TrainingTable) -> None:
    gaps = mixed()["a"].isna()
    np.testing.assert_array_equal(feature(table, "a is missing"), gaps)
    np.testing.assert_allclose(feature(table, "a")[gaps], mixed()["a"].median())


def test_missing_text_is_a_category_of_its_own(table: TrainingTable) -> None:
    np.testing.assert_array_equal(feature(table, "color is missing"), mixed()["color"].isna())
    marked = mixed()["color"].isna().to_numpy()
    assert not feature(table, "color=blue")[marked].any()


def test_gaps_are_counted_in_the_schema(table: TrainingTable) -> None:
    expected = mixed().drop(columns="y").isna().sum()
    assert {column.name: column.n_missing for column in table.schema.columns} == expected.to_dict()


def test_effects_of_levels_are_near_the_truth(table: TrainingTable) -> None:
    effect = np.random.default_rng(7).normal(size=NUM_LEVELS)
    found = np.array(table.schema.columns[1].effects)[:NUM_LEVELS, 0]
    assert np.corrcoef(found, effect)[0, 1] > 0.97
    assert np.polyfit(found, effect, 1)[0] == pytest.approx(1.0, abs=0.1)


def test_dates_have_the_parts_that_vary(table: TrainingTable) -> None:
    assert table.schema.columns[3].parts == ("trend", "season", "weekday", "hour")


def test_new_rows_have_the_features_of_a_well_known_training_row() -> None:
    few = mixed().assign(city=lambda t: t["city"].where(t["city"].isna(), "c" + (t.index % 12).astype(str)))
    table = opened(dataset_of(few))
    inputs, _ = load_rows(dataset_of(few), table.schema)
    np.testing.assert_allclose(inputs.x, table.load().x)


def test_a_table_in_parts_has_the_features_and_moments_of_one_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = opened(dataset_of(mixed()))
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 0)
    write_parts(tmp_path, mixed(), cuts=(), group=200)
    parts = opened(tmp_path)
    assert parts.schema == whole.schema
    np.testing.assert_allclose(parts.survey.moments.means, whole.survey.moments.means)
    np.testing.assert_allclose(parts.survey.moments.scales, whole.survey.moments.scales)
    chunks = [chunk.x for chunk in parts.source(parts.scaling).chunks(100)]
    np.testing.assert_allclose(np.concatenate(chunks), parts.scaling.scale_x(whole.load().x))


def test_a_sample_of_the_rows_leaves_counts_and_effects_to_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = opened(dataset_of(mixed()))
    monkeypatch.setattr(Reservoir.__init__, "__defaults__", (400,))
    write_parts(tmp_path, mixed(), cuts=(), group=200)
    sampled = opened(tmp_path)
    assert len(sampled.sample().x) == 400
    assert [c.n_missing for c in sampled.schema.columns] == [c.n_missing for c in whole.schema.columns]
    first, second = (np.array(t.schema.columns[1].effects) for t in (sampled, whole))
    np.testing.assert_allclose(first[:, 0], second[:, 0], atol=0.1)  # the line before them is that of the sample
    assert sampled.load().x.shape == whole.load().x.shape


def test_processes_learn_the_same_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 0)
    write_parts(tmp_path, mixed(), cuts=(300, 700), group=100)

    def schema(group: ThreadGroup) -> object:
        return opened(tmp_path, group=group).schema

    alone = opened(tmp_path).schema
    one, two = run_in_threads(2, schema)
    assert one == two
    first, second = (np.array(found.columns[1].effects) for found in (one, alone))  # type: ignore[attr-defined]
    np.testing.assert_allclose(first, second, atol=1e-9)


def test_levels_beyond_the_most_frequent_count_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (columns_module, first_pass):
        monkeypatch.setattr(module, "MAX_LEVELS", 15)
    table = opened(dataset_of(mixed()))
    assert len(table.schema.columns[1].categories) == 15
    assert np.isfinite(table.load().x).all()


def test_rules_for_missing_values_mark_no_gaps() -> None:
    table = opened(dataset_of(mixed()), impute="median")
    assert not [name for name in table.feature_names if "missing" in name]
    assert np.isfinite(table.load().x).all()


def test_ordered_categories_are_positions() -> None:
    sizes = pd.Categorical(["low", "high", "mid", "low"], categories=["low", "mid", "high"], ordered=True)
    table = TrainingTable(dataset_of(pd.DataFrame({"size": sizes, "y": [1.0, 2.0, 3.0, 4.0]})), "y")
    assert table.load().x[:, 0].tolist() == [0.0, 2.0, 1.0, 0.0]


def test_ordered_categories_that_differ_between_files_are_refused(tmp_path: Path) -> None:
    for number, order in enumerate((["low", "high"], ["high", "low"])):
        sizes = pd.Categorical(["low", "high"] * 2, categories=order, ordered=True)
        pd.DataFrame({"size": sizes, "y": 1.0}).to_feather(tmp_path / f"{number}.feather")
    with pytest.raises(InvalidInputError, match="ordered categories of column 'size' differ between parts"):
        TrainingTable(tmp_path, "y")
