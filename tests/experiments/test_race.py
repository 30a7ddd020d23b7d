"""The race: scores, the order of its tasks, and what its tables and counts say of made-up results."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm
from typer.testing import CliRunner

from cvgp.metrics import coverage
from experiments import race, race_report
from experiments.__main__ import app
from experiments.peers import workers
from experiments.peers.environments import ROOT, PeerError
from experiments.race import ENTRIES, OURS, RATES, Entry, Plan, choose, count_ahead
from experiments.runner import run_tasks
from experiments.scores import LEVELS, marginal_scores, predictive_scores
from experiments.store import Metrics, Record, Store

Array = NDArray[np.float64]
LIGHTGBM, SVGP = choose(["lightgbm", "svgp"])
ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.jsonl")


# Scores


def gaussians(n: int = 3000) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=n), rng.uniform(0.1, 2.0, size=n)
    return mean + sd * rng.normal(size=n), mean, sd


def test_a_gaussian_has_the_scores_of_the_other_measurements() -> None:
    y, mean, sd = gaussians()
    found = predictive_scores(y, {"mean": mean, "sd": sd})
    expected = marginal_scores(y, mean, sd)
    assert {name: found[name] for name in expected} == expected
    assert found["coverage_95"] == coverage(y, mean, sd, 0.95)
    quiet, noisy = np.argsort(sd)[:1000], np.argsort(sd)[-1000:]
    assert found["coverage_90_quiet"] == coverage(y[quiet], mean[quiet], sd[quiet], 0.9)
    assert found["coverage_90_noisy"] == coverage(y[noisy], mean[noisy], sd[noisy], 0.9)


def test_a_gaussian_by_its_quantiles_and_density_has_the_same_scores() -> None:
    y, mean, sd = gaussians()
    levels = np.asarray(LEVELS)
    quantiles = mean + norm.ppf(levels)[:, None] * sd
    arrays = {"mean": mean, "levels": levels, "quantiles": quantiles, "log_density": norm.logpdf(y, mean, sd)}
    assert predictive_scores(y, arrays) == pytest.approx(predictive_scores(y, {"mean": mean, "sd": sd}), rel=1e-4)


def test_intervals_of_one_width_have_no_quiet_third() -> None:
    y, mean, _ = gaussians()
    found = predictive_scores(y, {"mean": mean, "sd": np.full(len(y), 0.3)})
    assert (found["coverage_90_quiet"], found["coverage_90_noisy"]) == (None, None)


# Tasks


def test_no_two_tasks_share_a_key_and_ours_come_first(store: Store) -> None:
    found = [task.key for task in race.tasks(Plan(("energy", "bike")), store)]
    assert len({json.dumps(key, sort_keys=True) for key in found}) == len(found)
    assert [(k["split"], k["kind"], k["dataset"], k["method"]) for k in found[:2]] == [
        (0, "random", "energy", "cvgp"),
        (0, "random", "energy", "cvgp-coreset"),
    ]


def test_the_first_split_chooses_the_rate_of_the_others(store: Store) -> None:
    plan = Plan(("wine",), 2, ("random",), (SVGP,))
    first = race.tasks(plan, store)
    assert [(t.key["split"], t.key["learning_rate"]) for t in first] == [(0, rate) for rate in RATES]
    for task, value in zip(first, (1.0, 0.5, 2.0), strict=True):
        store.append(Record(task.key, made_up(value), ORIGIN))
    assert [t.key["learning_rate"] for t in race.tasks(plan, store) if t.key["split"] == 1] == [RATES[2]]


def test_seconds_grow_with_rows_beyond_those_of_the_budget() -> None:
    assert (race.seconds_allowed(30.0, 700), race.seconds_allowed(30.0, 100_000)) == (30.0, 60.0)


@pytest.mark.parametrize("start", ["plain", "ours"])
def test_a_start_of_a_peer_has_finite_positive_scales(start: str) -> None:
    x = np.random.default_rng(0).normal(size=(80, 3))
    found = race.plain_start(x, 10, 0) if start == "plain" else race._our_start(x, np.sin(x[:, 0]))
    assert found["inducing"].shape[1] == 3
    assert all((found[name] > 0).all() for name in ("lengthscales", "outputscale", "noise"))


@pytest.mark.slow
def test_our_fit_and_an_exact_gp_are_measured_and_shown(tmp_path: Path) -> None:
    common = ["--datasets", "waves-90x2", "--splits", "1", "--budget", "1", "--kinds", "grouped"]
    chosen = ["--peers", "cvgp,sklearn-exact", "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, ["race", *common, *chosen], catch_exceptions=False)
    rows = [line.split(" | ") for line in result.stdout.splitlines() if line.startswith("| waves-90x2 | ")]
    details = {row[1]: row for row in rows if len(row) == 16}
    assert set(details) == {"cvgp", "exact GP on a sample"}
    assert "-" not in details["cvgp"]
    record = next(r for r in Store(tmp_path / "results.jsonl") if r.task["method"] == "cvgp")
    assert record.number("rows_trained") + record.number("rows_scored") == 90


def test_a_peer_that_cannot_be_installed_is_recorded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(worker: str) -> Path:
        raise PeerError("no wheel")

    monkeypatch.setattr(workers, "_python", fail)
    plan = Plan(("waves-150x2",), 1, ("random",), (LIGHTGBM,))
    run_tasks(lambda: race.tasks(plan, store), store, threads=1)
    assert race_report.tables(plan, store, "random") == "No results yet."
    assert [record.error for record in store] == ["PeerError: no wheel"]


# Reports, from made-up results


def made_up(log_likelihood: float, rmse: float = 0.001) -> Metrics:
    found: Metrics = {"rmse": rmse, "log_likelihood": log_likelihood, "crps": rmse, "coverage": 0.9}
    found |= {f"coverage_{share}{place}": 0.9 for share in (50, 90, 95) for place in ("", "_quiet", "_noisy")}
    return found | {"seconds": 9.0, "seconds_per_row": 1e-5, "bytes": 5e4, "rows_trained": 1e4, "rows_scored": 1e3}


def add(plan: Plan, store: Store, dataset: str, entry: Entry, splits: list[int], *values: Any) -> None:
    for split in splits:
        for key in race.candidates(plan, store, dataset, "random", split, entry):
            store.append(Record(key, made_up(*values), ORIGIN))


def test_only_splits_that_all_methods_share_are_counted(store: Store) -> None:
    """Ours is better on the one split that SVGP has, and far worse on those that it does not have."""
    plan = Plan(("wine", "bike"), 3, ("random",))
    for dataset in plan.datasets:
        add(plan, store, dataset, OURS, [0], 2.0)
        add(plan, store, dataset, OURS, [1, 2], -5.0)
        add(plan, store, dataset, LIGHTGBM, [0, 1, 2], 1.5)
        add(plan, store, dataset, SVGP, [0], 1.0)
    assert count_ahead(plan, store, "random", "log_likelihood") == (2, 2, [])
    add(plan, store, "wine", SVGP, [0], 2.5)
    assert count_ahead(plan, store, "random", "log_likelihood") == (1, 2, ["wine (SVGP)"])
    assert "| wine | 0.001 / 2.00 |" in race_report.summary(plan, store, "random").replace("**", "")


@pytest.mark.parametrize(("ratio", "good"), [(1.019, 1), (1.021, 0)])
def test_an_rmse_within_two_percent_counts_as_level(ratio: float, good: int, store: Store) -> None:
    plan = Plan(("wine",), 1, ("random",))
    add(plan, store, "wine", OURS, [0], 1.0, 0.1 * ratio)
    add(plan, store, "wine", LIGHTGBM, [0], 1.0, 0.1)
    assert count_ahead(plan, store, "random", "rmse", close=race.CLOSE).good == good
    assert count_ahead(plan, store, "random", "log_likelihood").good == 0  # level is not ahead


def test_tables_have_medians_ranges_gaps_and_failures(store: Store) -> None:
    plan = Plan(("wine",), 3, ("random",), (OURS, LIGHTGBM))
    for split, value in enumerate((1.0, 3.0, 2.0)):
        add(plan, store, "wine", OURS, [split], value)
    (key,) = race.candidates(plan, store, "wine", "random", 0, LIGHTGBM)
    store.append(Record(key, {}, ORIGIN, error="PeerError: no wheel"))
    report = race_report.tables(plan, store, "random")
    assert "| 2.000 (1.000 to 3.000) |" in report
    assert "| wine | **2.000** | - |" in report
    assert "2 of 6 fits are missing" in report
    assert "- lightgbm on wine, split 0: PeerError: no wheel" in report


@pytest.mark.parametrize("folder", ["docs", "experiments/reports"])
def test_a_page_holds_what_the_command_writes(folder: str, tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    text = (ROOT / folder / "accuracy.md").read_text()
    page.write_text(text)
    CliRunner().invoke(app, ["race", "--table", "--write", str(page)], catch_exceptions=False)
    assert page.read_text() == text
    assert (tmp_path / "images" / race_report.PICTURE).exists() == ("race-picture" in text)


def test_every_method_with_a_density_has_a_marker_of_its_own() -> None:
    assert set(race_report.STYLES) == {entry.name for entry in ENTRIES} - {"cvgp"}
    assert len(set(race_report.STYLES.values())) == len(race_report.STYLES)
