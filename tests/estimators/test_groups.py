"""Fits that are told which rows belong together: every choice leaves whole groups out, intervals hold for new ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone

from cvgp import CVGPRegressor, TrainingOptions, load, read_table
from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.fitting.compare import Scores, cluster_weight, compare, folds_of, members
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import in_random_order
from cvgp.fitting.prepare import choose_target
from cvgp.fitting.sample import learn_correlation, two_parts, weigh_clusters
from cvgp.tables import stream
from tests.tables.helpers import write_parts


def persons(count: int, each: int, seed: int, effect: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of persons, who have typical inputs and an effect of their own."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(count), each)
    X = rng.normal(size=(count, 3))[person] + 0.3 * rng.normal(size=(len(person), 3))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + effect * rng.normal(size=count)[person] + 0.2 * rng.normal(size=len(person))
    return X, y, person


def coverage(model: CVGPRegressor, X: np.ndarray, y: np.ndarray) -> float:
    low, high = model.predict_interval(X, level=0.9).T
    return float(np.mean((low <= y) & (y <= high)))


@pytest.mark.parametrize(
    ("count", "each"),
    [(40, 6), pytest.param(60, 25, marks=pytest.mark.slow), pytest.param(120, 20, marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_intervals_hold_for_new_groups(count: int, each: int) -> None:
    X, y, person = persons(count, each, seed=0)
    X_new, y_new, _ = persons(200, 5, seed=1)
    model = CVGPRegressor(random_state=0).fit(X, y, groups=person)
    unaware = CVGPRegressor(random_state=0).fit(X, y)
    assert 0.85 <= coverage(model, X_new, y_new) <= 0.98
    assert coverage(unaware, X_new, y_new) < 0.85
    densities = [one.log_predictive_density(X_new, y_new).mean() for one in (model, unaware)]
    assert densities[0] > densities[1] + 0.1


def test_a_column_of_a_frame_names_the_groups_and_is_no_input(tmp_path: object) -> None:
    X, y, person = persons(30, 6, seed=0)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(person=[f"P{number}" for number in person])
    model = CVGPRegressor(random_state=0).fit(frame, y, groups="person")
    same = CVGPRegressor(random_state=0).fit(frame.drop(columns="person"), y, groups=frame["person"])
    assert model.n_features_in_ == 3
    np.testing.assert_allclose(model.predict(frame[["a", "b", "c"]]), same.predict(frame[["a", "b", "c"]]))


@pytest.mark.slow
def test_a_fit_with_groups_and_neighbours_is_saved_without_the_groups(tmp_path: "pytest.TempPathFactory") -> None:
    X, y, person = persons(80, 10, seed=0, effect=0.0)
    model = CVGPRegressor(20, n_neighbors=10, random_state=0).fit(X, y, groups=person)
    path = tmp_path / "persons.cvgp"  # type: ignore[operator]
    model.save(path)
    np.testing.assert_array_equal(load(path).predict_interval(X[:20]), model.predict_interval(X[:20]))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(60), "different labels"),
        (np.arange(59), "59 labels"),
        ([None, *range(59)], "missing"),
        ("person", "column"),
    ],
)
def test_groups_that_cannot_be_used_are_refused(groups: object, message: str) -> None:
    X, y, _ = persons(10, 6, seed=0)
    with pytest.raises(InvalidInputError, match=message):
        CVGPRegressor(random_state=0).fit(X, y, groups=groups)


def clustered(sizes: list[int]) -> Rows[torch.Tensor]:
    cluster = torch.repeat_interleave(torch.arange(float(len(sizes))), torch.tensor(sizes)).to(torch.float64)
    x = torch.arange(float(len(cluster)), dtype=torch.float64)[:, None]
    return Rows(x, x[:, 0], None, None, cluster)


def test_parts_share_no_group() -> None:
    rows = clustered([1, 40, 7, 7, 20, 3, 90])
    for seed in range(20):
        first, second = two_parts(rows, 50, 60, np.random.default_rng(seed))
        assert first.cluster is not None
        assert second.cluster is not None
        assert not set(first.cluster.tolist()) & set(second.cluster.tolist())
        assert 0 < len(first.x) <= 50
        assert 0 < len(second.x) <= 60


def test_groups_stay_together_in_a_random_order_and_count_equally() -> None:
    rows = clustered([5, 1, 9])
    ordered = in_random_order(rows, 0)
    assert ordered.cluster is not None
    assert len(ordered.cluster.unique_consecutive()) == 3
    weight = cluster_weight(rows)
    assert isinstance(weight, torch.Tensor)
    totals = [weight[group].sum().item() for group in members(rows)]
    assert totals == pytest.approx([5.0] * 3)


def test_the_standard_error_of_a_comparison_is_that_of_groups() -> None:
    cluster = torch.arange(100.0).repeat_interleave(10)
    gain = torch.randn(100, generator=torch.Generator().manual_seed(0), dtype=torch.float64).repeat_interleave(10)
    nothing, ones = torch.zeros(1000, dtype=torch.float64), torch.ones(1000, dtype=torch.float64)
    by_group, by_row = (
        compare(Scores(gain, nothing, ones, labels), Scores(nothing, nothing, ones)).gain_error
        for labels in (cluster, None)
    )
    assert by_group == pytest.approx(gain.std().item() / 10.0, rel=0.05)
    assert by_row < by_group / 2.5


def test_folds_share_no_group() -> None:
    rows = clustered([5, 1, 9, 4])
    folds = folds_of(rows, 2, np.random.default_rng(0))
    assert all(len(folds[group].unique()) == 1 for group in members(rows))
    assert len(folds.unique()) == 2


def test_a_sample_of_whole_groups_has_all_their_rows() -> None:
    rows = clustered([5, 1, 9, 4, 30, 12])
    sample = MemorySource(*rows).whole_clusters(4, np.random.default_rng(0))
    sizes = dict(zip(*(values.tolist() for values in rows.cluster.unique(return_counts=True)), strict=True))  # type: ignore[union-attr]
    found = dict(zip(*(values.tolist() for values in sample.cluster.unique(return_counts=True)), strict=True))  # type: ignore[union-attr]
    assert found.items() <= sizes.items()
    assert 0 < len(sample.x) <= 42


def test_rows_count_less_where_their_group_has_an_effect_of_its_own() -> None:
    X, y, person = persons(60, 10, seed=0, effect=1.0)
    rows = Rows(X, y[:, None], None, None, person.astype(float))
    weighted = weigh_clusters(rows, learn_correlation(rows, Run.alone()))
    assert weighted.sample_weight is not None
    assert weighted.sample_weight.sum() < 0.3 * len(X)


def test_a_column_of_a_file_names_the_groups(tmp_path: Path) -> None:
    X, y, person = persons(40, 8, seed=0)
    frame = pd.DataFrame({"a": X[:, 0], "person": [f"P{number}" for number in person], "y": y})
    frame.loc[3, "y"] = np.nan
    frame.to_csv(tmp_path / "rows.csv", index=False)
    kept = frame.drop(index=3)
    same = CVGPRegressor(random_state=0).fit(kept[["a"]], kept["y"], groups=kept["person"])
    table = read_table(tmp_path / "rows.csv", "y", groups="person", on_bad_rows="skip")
    model = CVGPRegressor(random_state=0).fit(table)
    np.testing.assert_allclose(model.predict_interval(kept[["a"]]), same.predict_interval(kept[["a"]]), rtol=1e-6)
    assert list(model.feature_names_in_) == ["a"]
    assert "groups" in model.decisions_.audit.reason


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table is small enough to be loaded."""
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)


def write_persons(folder: Path, X: np.ndarray, y: np.ndarray, person: np.ndarray) -> pd.DataFrame:
    """Rows of persons as files, among which each of them is spread."""
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=y, person=[f"P{number}" for number in person])
    write_parts(folder, frame.sample(frac=1.0, random_state=0), cuts=(len(X) // 3,))
    return frame


@pytest.mark.slow
def test_groups_of_a_table_in_parts_are_left_out_as_in_memory(tmp_path: Path, in_parts: None) -> None:
    frame, (X_new, y_new, _) = write_persons(tmp_path, *persons(80, 15, seed=0)), persons(200, 5, seed=1)
    new = pd.DataFrame(X_new, columns=["a", "b", "c"])
    model = CVGPRegressor(20, n_neighbors=0, random_state=0)
    loaded = clone(model).fit(frame.drop(columns="person"), "y", groups=frame["person"])
    model.fit(tmp_path, "y", groups="person")
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.n_rows_ == pytest.approx(loaded.n_rows_, rel=0.3)  # by the design effect
    assert model.n_rows_ < 0.5 * len(X_new)
    assert 0.85 <= coverage(model, new, y_new) <= 0.98
    densities = [one.log_predictive_density(new, y_new).mean() for one in (model, loaded)]
    assert densities[0] == pytest.approx(densities[1], abs=0.05)
    assert "groups" in model.decisions_.audit.reason


@pytest.mark.parametrize(
    ("count", "each", "options", "message"),
    [
        (4, 50, {}, "4 different labels"),
        (6, 3000, {}, "one of 3000 rows"),
        (40, 20, {"training": TrainingOptions(early_stopping=True)}, "early_stopping with groups"),
    ],
)
def test_groups_of_a_table_in_parts_that_cannot_be_used_are_refused(
    tmp_path: Path, in_parts: None, count: int, each: int, options: dict[str, object], message: str
) -> None:
    write_persons(tmp_path, *persons(count, each, seed=0))
    with pytest.raises(InvalidInputError, match=message):
        CVGPRegressor(random_state=0, **options).fit(tmp_path, "y", groups="person")


def test_a_row_without_a_group_is_a_bad_row(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,person,y\n" + "".join(f"{i},p{i % 9},{i}\n" for i in range(40)) + "7,,7\n")
    with pytest.raises(InvalidInputError, match="data row 41: column 'person' is missing"):
        CVGPRegressor().fit(tmp_path / "rows.csv", "y", groups="person")


@pytest.mark.parametrize(("count", "each", "taken"), [(30, 10, "identity"), (250, 2, "log")])
def test_a_few_groups_say_too_little_about_a_transform_of_y(count: int, each: int, taken: str) -> None:
    X, y, person = persons(count, each, seed=0)
    rows = Rows(X, np.exp(2.0 * y)[:, None], None, None, person)
    chosen, _ = choose_target(rows, Run.alone())
    assert chosen.name == taken
