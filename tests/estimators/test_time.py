"""Fits that are told when rows were observed: the end of the series is held out in every choice."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import cvgp.fitting.kernel
import cvgp.fitting.prepare
import cvgp.fitting.size
from cvgp import CVGPClassifier, CVGPRegressor, Heuristics, TrainingOptions, load, read_table
from cvgp.data.rows import Rows, in_stretches
from cvgp.errors import CVGPError, InvalidInputError
from cvgp.estimators.audit import draw_audit
from cvgp.fitting.neighbors import in_random_order
from cvgp.fitting.sample import draw_halves, two_parts
from cvgp.tables import stream


def drifting(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A slow random walk, observed in random order, and an input that matters."""
    rng = np.random.default_rng(seed)
    time = np.arange(float(count))
    walk = np.cumsum(rng.normal(size=count)) * 0.1
    x = rng.normal(size=count)
    order = rng.permutation(count)
    y = np.exp(0.3 * (walk + np.sin(x) + 0.2 * rng.normal(size=count)))
    return np.column_stack([time, x])[order], y[order], time[order]


def rows_of(count: int, ties: int = 1) -> Rows[np.ndarray]:
    X, y, time = drifting(count)
    return in_stretches(Rows(X, y[:, None], time=np.floor(time / ties)))


def quick(**options: Any) -> CVGPRegressor:
    return CVGPRegressor(random_state=0, training=TrainingOptions(max_iter=20), **options)


@pytest.mark.parametrize("ties", [1, 7, 50])
def test_stretches_follow_each_other_and_do_not_cut_through_a_time(ties: int) -> None:
    rows = rows_of(400, ties)
    order = np.argsort(rows.time, kind="stable")
    assert (np.diff(rows.cluster[order]) >= 0.0).all()
    for time in np.unique(rows.time):
        assert len(np.unique(rows.cluster[rows.time == time])) == 1
    assert np.unique(rows.cluster, return_counts=True)[1].max() <= max(20, ties) + ties


@pytest.mark.parametrize("first_is_later", [False, True])
def test_the_part_that_judges_is_later(first_is_later: bool) -> None:
    first, second = two_parts(rows_of(400), 100, 300, np.random.default_rng(0), first_is_later=first_is_later)
    early, late = (second, first) if first_is_later else (first, second)
    assert early.time.max() < late.time.min()
    assert (len(first.x), len(second.x)) == (100, 300)


def test_a_sample_is_judged_by_the_latest_quarter() -> None:
    learning, judging = draw_halves(rows_of(400), 250, np.random.default_rng(0))
    assert sorted(judging.time) == list(range(300, 400))
    assert len(learning.x) == 250
    assert learning.time.max() < 300


def test_the_audit_is_of_the_latest_tenth() -> None:
    rest, audited = draw_audit(rows_of(400), Heuristics(), np.random.default_rng(0))
    assert audited is not None
    assert sorted(audited.time) == list(range(360, 400))
    assert sorted(rest.time) == list(range(360))


def test_neighbors_come_from_earlier_stretches() -> None:
    rows = rows_of(400).map(torch.as_tensor)
    ordered = in_random_order(rows, 3)
    assert (ordered.cluster.diff() >= 0.0).all()
    assert not (ordered.time.diff() >= 0.0).all()


@pytest.fixture
def splits(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[float, float]]]:
    """For each function that compares: the last time that was learned from, and the first that judged."""
    found: dict[str, list[tuple[float, float]]] = {}

    def watch(module: Any, name: str, learning: int, judging: int) -> None:
        original = getattr(module, name)

        def watched(*args: Any, **options: Any) -> Any:
            a, b = args[learning], args[judging]
            assert b is not None, f"{name} leaves rows out one by one"
            found.setdefault(name, []).append((float(a.time.max()), float(b.time.min())))
            return original(*args, **options)

        monkeypatch.setattr(module, name, watched)

    watch(cvgp.fitting.prepare, "learn_sample", 0, 1)
    watch(cvgp.fitting.kernel, "learn_exact", 1, 2)
    watch(cvgp.fitting.size, "size_curve", 1, 2)
    return found


@pytest.mark.parametrize("options", [{}, {"training__heuristics": Heuristics(exact_seconds=0)}])
def test_choices_are_judged_by_rows_that_are_later_than_those_they_learn_from(
    splits: dict[str, list[tuple[float, float]]], options: dict[str, Any]
) -> None:
    X, y, time = drifting(240)
    model = quick(n_neighbors=0, noise="constant").set_params(**options).fit(X, y, time=time)
    assert set(splits) >= {"learn_sample", "learn_exact"}
    assert ("size_curve" in splits) == bool(options)
    assert model.decisions_.target_transform.candidates
    for name, pairs in splits.items():
        for last, first in pairs:
            assert last < first, name


def test_the_audit_reports_the_latest_rows() -> None:
    X, y, time = drifting(300)
    model = quick(n_coreset=20).fit(X, y, time=time)
    assert "latest rows (30 of them)" in model.decisions_.audit.reason
    residuals = model._gp.calibration.residuals
    assert len(residuals) == 60
    np.testing.assert_allclose(residuals, -residuals[::-1])  # which side the next rows err to is not known


def test_few_rows_calibrate_nothing() -> None:
    X, y, time = drifting(120)
    model = quick().fit(X, y, time=time)
    assert model._gp.calibration is None
    assert "too few" in model.decisions_.audit.reason


@pytest.mark.parametrize("unit", ["number", "date", "text"])
def test_an_array_a_column_and_a_table_give_the_same_model(unit: str, tmp_path: Path) -> None:
    X, y, time = drifting(220)
    stamps = pd.Timestamp("1960-01-01") + pd.to_timedelta(time, "D")  # before 1970, so that days are below zero
    when: Any = {"number": time, "date": stamps, "text": stamps.strftime("%Y-%m-%d")}[unit]
    frame = pd.DataFrame({"when": when, "x": X[:, 1], "y": y})
    frame.to_csv(tmp_path / "a.csv", index=False)
    models = [
        quick(n_coreset=20).fit(frame, "y", time="when"),
        quick(n_coreset=20).fit(frame, "y", time=stamps if unit != "number" else time),
        quick(n_coreset=20).fit(frame[["when", "x"]], y, time="when"),
        quick(n_coreset=20).fit(read_table(tmp_path / "a.csv", "y", time="when")),
    ]
    first = models[0].predict(frame)
    assert "when" in models[0].feature_names_in_
    for model in models:
        assert "latest" in model.decisions_.audit.reason
        np.testing.assert_allclose(model.predict(frame), first, rtol=1e-6)


def test_a_time_that_is_dropped_still_orders_the_rows() -> None:
    X, y, time = drifting(220)
    frame = pd.DataFrame({"when": time, "x": X[:, 1], "y": y})
    model = quick(n_coreset=20).fit(read_table(frame, "y", time="when", drop="when"))
    assert model.feature_names_in_.tolist() == ["x"]
    assert "latest" in model.decisions_.audit.reason


@pytest.mark.parametrize("options", [{}, {"n_coreset": 20, "n_neighbors": 10}, {"n_coreset": 20, "n_neighbors": 0}])
def test_a_saved_model_predicts_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    X, y, time = drifting(220)
    model = quick(**options).fit(X, y, time=time)
    model.save(tmp_path / "m.cvgp")
    again = load(tmp_path / "m.cvgp")
    np.testing.assert_allclose(again.predict_interval(X[:9]), model.predict_interval(X[:9]), rtol=1e-9)
    assert again.condition(X[:5] + 1.0, y[:5]).predict(X[:2]).shape == (2,)


def test_early_stopping_watches_the_latest_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from cvgp.estimators.inputs import hold_out

    options = TrainingOptions(early_stopping=True, validation_fraction=0.2)
    train, held_out = hold_out(rows_of(400), options, np.random.default_rng(0))
    assert held_out is not None
    assert train.time.max() < held_out.time.min()


@pytest.mark.parametrize("likelihood", ["poisson", "classes"])
def test_counts_and_classes_have_a_time(likelihood: str) -> None:
    X, y, time = drifting(220)
    if likelihood == "classes":
        model: Any = CVGPClassifier(random_state=0).fit(X, y > np.median(y), time=time)
        assert model.score(X, y > np.median(y)) > 0.7
    else:
        counts = np.random.default_rng(0).poisson(y)
        model = CVGPRegressor(likelihood=likelihood, random_state=0).fit(X, counts, time=time)
        assert np.isfinite(model.left_out_log_density_)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (np.zeros(60), "1 different value"),
        (np.arange(59), "59 values"),
        (np.where(np.arange(60) == 3, np.nan, 0.0), "missing or infinite"),
        (["monday"] * 60, "dates or numbers"),
        ([{}] * 60, "dates or numbers"),
        ("when", "Give a DataFrame"),
    ],
)
def test_times_that_cannot_be_used_are_refused(time: Any, message: str) -> None:
    X, y, _ = drifting(60)
    with pytest.raises(CVGPError, match=message):
        CVGPRegressor().fit(X, y, time=time)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["spring", "fall"] * 30, "'spring', but a time must be a date"),
        (["2024-05-06"] * 59 + [None], "'when' is missing"),
        ([True, False] * 30, "must hold dates"),
        ([None] * 60, "empty"),
    ],
)
def test_columns_that_are_no_time_are_refused(cells: Any, message: str) -> None:
    X, y, _ = drifting(60)
    frame = pd.DataFrame({"when": cells, "x": X[:, 1], "y": y})
    with pytest.raises(CVGPError, match=message):
        CVGPRegressor().fit(frame, "y", time="when")
    with pytest.raises(InvalidInputError, match="no column 'day'"):
        CVGPRegressor().fit(frame[["x", "y"]], "y", time="day")


def test_groups_and_time_are_not_given_together() -> None:
    X, y, time = drifting(60)
    with pytest.raises(InvalidInputError, match="by groups or by time"):
        CVGPRegressor().fit(X, y, time=time, groups=np.arange(60) // 6)
    with pytest.raises(InvalidInputError, match="by groups or by time"):
        read_table(pd.DataFrame({"a": time, "b": time, "y": y}), "y", time="a", groups="b")


def test_a_table_larger_than_memory_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, y, time = drifting(60)
    pd.DataFrame({"when": time, "x": X[:, 1], "y": y}).to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    with pytest.raises(InvalidInputError, match="in the memory of one process"):
        CVGPRegressor().fit(tmp_path / "a.csv", "y", time="when")
