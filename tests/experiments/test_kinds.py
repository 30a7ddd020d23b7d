"""The measurements of classes and counts: scores, splits, exposures of peers, and what the tables say of results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import poisson
from sklearn.metrics import log_loss
from typer.testing import CliRunner

from cvgp.errors import InvalidInputError
from experiments import kinds
from experiments.__main__ import app
from experiments.kinds import ENTRIES, GPC, LIGHTGBM, OURS, SVGP, TABLES, TABPFN, Plan
from experiments.peers.environments import PINS, ROOT, WORK_FOLDER, _are_here
from experiments.scores import BINS, calibration_error, class_scores, count_scores
from experiments.store import Metrics, Record, Store
from experiments.world import HALVES, names_of
from experiments.world import TABLES as WORLD

Array = NDArray[np.float64]
ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"}
SMALL = {"moons": TABLES["moons"]._replace(source=TABLES["moons"].source._replace(rows=120))}
RATES = {"rates": TABLES["rates-3000x4"]._replace(source=TABLES["rates-3000x4"].source._replace(rows=150))}
VIF = next(entry for entry in ENTRIES["classes"] if entry.method == "latent_vif")
SLOW = (SVGP, GPC, TABPFN)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "kinds.jsonl")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two small generated tables in place of all."""
    monkeypatch.setattr(kinds, "TABLES", SMALL | RATES)
    kinds.read.cache_clear()
    yield
    kinds.read.cache_clear()


# Scores


def drawn(rows: int, sharper: float = 1.0) -> tuple[Array, Array]:
    """Classes drawn from probabilities, and these probabilities, or more extreme ones."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=rows)
    y = (p.cumsum(1) < rng.random(rows)[:, None]).sum(1).astype(np.float64)
    return y, p**sharper / (p**sharper).sum(1, keepdims=True)


def test_log_loss_and_brier_score_are_those_of_scikit_learn() -> None:
    y, p = drawn(500)
    found = class_scores(y, {"probabilities": p})
    assert found["log_loss"] == pytest.approx(log_loss(y, p))
    assert found["brier"] == pytest.approx(float(np.mean((1 - p[np.arange(500), y.astype(int)]) ** 2 * 2)), abs=0.2)
    two = class_scores(np.minimum(y, 1.0), {"probabilities": np.column_stack([p[:, 0], 1.0 - p[:, 0]])})
    assert two["brier"] == pytest.approx(2.0 * np.mean((p[:, 0] - (y == 0)) ** 2))


def test_calibrated_probabilities_have_the_error_of_chance_and_others_a_greater_one() -> None:
    y, p = drawn(20_000)
    error, chance = calibration_error([class_scores(y, {"probabilities": p}) | {"rows_scored": 20_000.0}])
    assert error < 2.0 * chance < 0.02
    y, p = drawn(20_000, sharper=2.0)
    error, chance = calibration_error([class_scores(y, {"probabilities": p}) | {"rows_scored": 20_000.0}])
    assert error > 5.0 * chance


def test_the_calibration_error_of_several_splits_is_that_of_their_rows_together() -> None:
    y, p = drawn(900)
    together = calibration_error([class_scores(y, {"probabilities": p}) | {"rows_scored": 900.0}])
    parts = [
        class_scores(y[part], {"probabilities": p[part]}) | {"rows_scored": float(len(y[part]))}
        for part in (slice(0, 200), slice(200, 900))
    ]
    assert calibration_error(parts) == pytest.approx(together)


def test_a_known_rate_has_the_probabilities_and_intervals_of_its_poisson() -> None:
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.5, 40.0, 3000)
    y = rng.poisson(rate).astype(np.float64)
    found = count_scores(y, {"f_mean": np.log(rate), "f_var": np.zeros(3000)})
    assert found["log_probability"] == pytest.approx(float(poisson.logpmf(y, rate).mean()))
    assert found["coverage_90"] == pytest.approx(float(np.mean(np.abs(poisson.cdf(y, rate) - 0.5) < 0.47)), abs=0.05)
    uncertain = count_scores(y, {"f_mean": np.log(rate), "f_var": np.full(3000, 0.5)})
    assert uncertain["coverage_90"] > found["coverage_90"]
    assert uncertain["log_probability"] < found["log_probability"]


# Tables


def test_no_table_is_one_of_the_other_suite() -> None:
    assert not {t.source.item for t in TABLES.values()} & {
        t.item for half in HALVES for t in map(WORLD.get, names_of(half)) if t
    }


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_its_size_and_its_kind(name: str) -> None:
    table, pins = TABLES[name], (PINS / "world.txt").read_text()
    exported, installed = WORK_FOLDER / "kinds" / f"{name}.csv.gz", WORK_FOLDER / "envs" / "world" / "installed.txt"
    is_here = _are_here(pins) or (installed.exists() and installed.read_text() == pins)
    if table.source.package != "generated" and not exported.exists() and not is_here:
        pytest.skip(f"table {name!r}: {table.source.package} of experiments/peers/world.txt is not installed")
    split = kinds.make(name, 0)
    y = np.concatenate([split.rows.y, split.rows.y_test])
    assert len(y) == table.source.rows
    assert split.rows.train.shape[1] == table.source.columns
    np.testing.assert_array_equal(y, np.round(y))
    assert (split.exposure > 0).all()


def test_the_five_splits_score_each_row_once(small: None) -> None:
    splits = [kinds.make("rates", number) for number in range(5)]
    frame = kinds.read("rates")
    for found, column in (([s.rows.y_test for s in splits], "y"), ([s.exposure_test for s in splits], "time")):
        np.testing.assert_array_equal(np.sort(np.concatenate(found)), np.sort(frame[column]))
    assert "time" not in splits[0].rows.train


def test_a_condition_on_a_column_makes_two_classes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    pd.DataFrame({"x": range(20), "delay": [5.0, 25.0, np.nan, 1.0] * 5}).to_csv(path, index=False)
    late = TABLES["late"]
    source = late.source._replace(rows=15, columns=1, target="delay > 15", left_out="delay: the target")
    monkeypatch.setattr(kinds, "TABLES", {"made": late._replace(source=source)})
    monkeypatch.setattr(kinds, "exported", lambda *_: path)
    kinds.read.cache_clear()
    split = kinds.make("made", 0)
    kinds.read.cache_clear()
    assert (split.rows.y.sum(), len(split.rows.y)) == (4.0, 12)


def test_unknown_tables_and_peers_are_refused() -> None:
    for options in (["--datasets", "iris"], ["--peers", "forest"], ["--splits", "6"]):
        assert isinstance(CliRunner().invoke(app, ["kinds", "--table", *options]).exception, InvalidInputError)


# Methods


@pytest.mark.parametrize(
    "entry", {e.name: e for es in ENTRIES.values() for e in es if not e.ours}.values(), ids=lambda e: e.name
)
def test_a_peer_names_a_method_of_its_worker(entry: kinds.Entry) -> None:
    text = (PINS / f"{entry.worker}.py").read_text()
    assert f'"{entry.method}"' in text[text.index("__main__") :]


def environment_of(worker: str) -> None:
    pins, installed = (PINS / f"{worker}.txt").read_text(), WORK_FOLDER / "envs" / worker / "installed.txt"
    if not _are_here(pins) and not (installed.exists() and installed.read_text() == pins):
        pytest.skip(f"peer {worker!r}: the packages of experiments/peers/{worker}.txt are not installed")


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, e.name) for kind, entries in ENTRIES.items() for e in entries if not (e.ours or e in (*SLOW, VIF))],
)
def test_a_peer_learns_a_small_table(kind: str, name: str, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = (e for e in ENTRIES[kind] if e.name == name)
    environment_of(entry.worker)
    monkeypatch.setattr(kinds, "BUDGET", 1.0)
    table = "moons" if kind == "classes" else "rates"
    metrics = kinds._peer(entry, kind, kinds.make(table, 0), {}).metrics
    split = kinds.make(table, 0)
    if kind == "classes":
        assert (metrics["log_loss"] or 9.0) < np.log(2.0)
    else:
        constant = split.exposure_test * split.rows.y.sum() / split.exposure.sum()
        assert (metrics["log_probability"] or -9.0) > poisson.logpmf(split.rows.y_test, constant).mean() - 0.05


@pytest.mark.slow
@pytest.mark.parametrize("entry", SLOW, ids=lambda e: e.name)
def test_a_slow_classifier_learns_a_small_table(
    entry: kinds.Entry, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment_of(entry.worker)
    monkeypatch.setattr(kinds, "STEPS", 60)
    metrics = kinds._peer(entry, "classes", kinds.make("moons", 0), {"learning_rate": 0.1}).metrics
    assert (metrics["log_loss"] or 9.0) < 0.6


@pytest.mark.slow
def test_the_peer_with_inducing_points_learns_a_table_with_enough_rows_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    environment_of(VIF.worker)
    table = TABLES["moons"]
    monkeypatch.setattr(kinds, "TABLES", {"moons": table._replace(source=table.source._replace(rows=500))})
    kinds.read.cache_clear()
    metrics = kinds._peer(VIF, "classes", kinds.make("moons", 0), {}).metrics
    kinds.read.cache_clear()
    assert (metrics["log_loss"] or 9.0) < 0.5


def test_our_fit_is_run_stored_shown_and_not_run_again(tmp_path: Path, small: None) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- kinds-classes:begin --><!-- kinds-classes:end -->")
    options = ["--peers", "cvgp,logistic", "--datasets", "moons", "--splits", "1", "--write", str(page)]
    options += ["--store", str(tmp_path / "kinds.jsonl")]
    CliRunner().invoke(app, ["kinds", *options], catch_exceptions=False)
    assert [record.error for record in Store(tmp_path / "kinds.jsonl")] == ["", ""]
    text = page.read_text()
    assert "| moons | 0." in text
    again = CliRunner().invoke(app, ["kinds", *options], catch_exceptions=False)
    assert "2 tasks, 2 of them" in again.output
    assert page.read_text() == text


# Reports, from made-up results


def made_up(value: float, seconds: float = 1.0, gap: float = 0.0) -> Metrics:
    found: Metrics = {"log_loss": value, "brier": 0.2, "accuracy": 0.9, "auc": 0.9, "seconds": seconds}
    found |= {f"{name}_{k}": 0.0 for name in ("gap", "variance") for k in range(BINS)}
    return found | {"gap_0": gap, "rows_scored": 100.0}


def add(store: Store, entry: kinds.Entry, split: int, metrics: Metrics, name: str = "breast-cancer") -> None:
    for key in kinds.candidates(store, name, split, entry):
        store.append(Record(key, metrics, ORIGIN))


def line_of(store: Store, words: str) -> str:
    lines = kinds.targets(Plan(("breast-cancer",)), store).splitlines()
    (line,) = [line for line in lines if words in line]
    return line


def test_methods_are_compared_on_the_splits_that_both_have_finished(store: Store) -> None:
    add(store, OURS, 0, made_up(0.1))
    add(store, OURS, 1, made_up(0.9))
    add(store, LIGHTGBM, 0, made_up(0.2))
    assert "| 1 of 1 | - |" in line_of(store, "LightGBM")
    add(store, LIGHTGBM, 1, made_up(0.2))
    assert "| 0 of 1 | breast-cancer (-0.300) |" in line_of(store, "LightGBM")


@pytest.mark.parametrize(("entry", "words", "seconds"), [(SVGP, "SVGP", 1.1), (GPC, "GPC", 0.11)])
def test_a_better_but_slower_fit_misses_a_target_of_time(
    entry: kinds.Entry, words: str, seconds: float, store: Store
) -> None:
    add(store, entry, 0, made_up(0.2, 1.0))
    add(store, OURS, 0, made_up(0.1, 0.9 * seconds))
    assert "| 1 of 1 |" in line_of(store, words)
    add(store, OURS, 0, made_up(0.1, seconds))
    assert "| 0 of 1 |" in line_of(store, words)


@pytest.mark.parametrize(("gap", "holds"), [(2.9, "1 of 1"), (3.1, "0 of 1")])
def test_the_calibration_error_has_a_limit(gap: float, holds: str, store: Store) -> None:
    add(store, OURS, 0, made_up(0.1, gap=gap))
    assert f"| {holds} |" in line_of(store, "calibration")


def test_the_first_split_chooses_the_rate_of_the_others(store: Store) -> None:
    values = iter((0.3, 0.2, 0.4))
    for key in kinds.candidates(store, "moons", 0, SVGP):
        store.append(Record(key, made_up(next(values)), ORIGIN))
    (key,) = kinds.candidates(store, "moons", 1, SVGP)
    assert key["learning_rate"] == 0.03


@pytest.mark.parametrize("page", ["docs/classifier.md", "experiments/reports/kinds.md"])
def test_a_page_holds_what_the_command_writes(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text()
    copy = tmp_path / "page.md"
    copy.write_text(text)
    CliRunner().invoke(app, ["kinds", "--table", "--write", str(copy)], catch_exceptions=False)
    assert copy.read_text() == text
