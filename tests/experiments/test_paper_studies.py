"""Every study runs with the smoke preset from the command line; its keys, tables and figures; what it computes."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student
from typer.testing import CliRunner, Result

from experiments.__main__ import app
from experiments.paper import report
from experiments.paper.claims import pooled
from experiments.paper.methods import Recipe
from experiments.paper.studies.comparison import Cell, best_stochastic
from experiments.paper.studies.complexity import exponent
from experiments.paper.studies.predictive import PAPER_RMSE
from experiments.paper.studies.synthetic import density, total_variation
from experiments.paper.study import (
    PRESETS,
    STUDIES,
    Plan,
    Preset,
    Results,
    build,
    chosen_records,
    find_study,
    product_keys,
    recipe_of,
    tuned_keys,
)
from experiments.peers.environments import ROOT
from experiments.store import RESULTS, Key, Record, Store

ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"}
GRID = Preset("grid", Recipe(steps=3), learning_rates=(0.01, 0.1), rows=50, time_limit=10.0)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["paper", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_a_study_runs_and_reports(name: str, folder: Path) -> None:
    done = run(name, "--preset", "smoke", "--threads", 1, "--store", folder, "--figures", folder / "figures")
    assert done.exit_code == 0, done.output
    results = Results(Store(folder / f"{find_study(name).store_name}.jsonl"), PRESETS["smoke"])
    assert results.failures == []
    assert {w.split(":")[0] for r in results.records for w in r.warnings} <= {"JitterWarning", "NumericalWarning"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert len({line.count(" | ") for line in lines[:3]}) == 1  # a cell with a bar in it would break the table
    files = [Path(line) for line in done.stdout.splitlines() if line.endswith((".png", ".pdf"))]
    assert {path.suffix for path in files} == {".png", ".pdf"}
    assert all(path.stat().st_size > 1000 for path in files)
    again = run(name, "--preset", "smoke", "--threads", 1, "--store", folder)
    tasks, stored = (int(word) for word in re.findall(r"\d+", again.stderr)[:2])
    assert tasks == stored > 0


def test_the_pages_are_what_the_command_writes_from_the_shipped_store() -> None:
    assert (ROOT / report.PAGE).read_text(encoding="utf-8") == report.page(RESULTS / "paper")
    assert (ROOT / report.APPENDIX).read_text(encoding="utf-8") == report.appendix(RESULTS / "paper")


@pytest.mark.slow
def test_every_figure_can_be_drawn_from_the_shipped_store() -> None:
    stores = {preset: report.results_of(RESULTS / "paper", PRESETS[preset]) for preset in report.SHOWN}
    for results in stores.values():
        for name, found in results.items():
            assert find_study(name).draw(found)


@pytest.mark.slow
def test_data_sets_methods_sizes_and_folds_can_be_chosen(tmp_path: Path) -> None:
    options = ["--datasets", "synthetic1,synthetic3", "--methods", "cvgp", "--sizes", "4,6", "--folds", "1"]
    done = run("weights", "--preset", "smoke", *options, "--jobs", "2", "--store", tmp_path)
    assert done.exit_code == 0, done.output
    cells = {(r.task["dataset"], r.task["method"], r.task["size"]) for r in Store(tmp_path / "synthetic.jsonl")}
    assert cells == {(d, "CVGP", m) for d in ("synthetic1", "synthetic3") for m in (4, 6)}


def test_data_sets_and_studies_are_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CVGP_DATA", raising=False)
    monkeypatch.setenv("CVGP_CACHE", str(tmp_path))
    song = next(line for line in run("datasets").stdout.splitlines() if line.startswith("| song"))
    for words in ("515345 x 90", "CC BY 4.0", "Bertin-Mahieux et al. 2011", "song/data.csv.gz"):
        assert words in song
    assert all(name in run("list").stdout for name in STUDIES)


# Keys


def record(key: Key, **metrics: float) -> Record:
    return Record(key, dict(metrics), ORIGIN, 0.1)


def plan(methods: tuple[str, ...] = ("CVGP", "SparseGP"), folds: int = 3) -> Plan:
    return Plan("predictive", GRID, ("synthetic1",), methods, (5,), folds)


def test_the_papers_preset_is_its_protocol() -> None:
    recipe = PRESETS["paper"].recipe
    assert (recipe.learning_rate, recipe.batch_size, recipe.dtype) == (1e-3, 512, "float32")
    assert (recipe.epochs, recipe.patience, recipe.schedule) == (100_000, 3000, "constant")
    assert PRESETS["paper"].learning_rates == (1e-3,)


def test_a_key_holds_the_whole_recipe_and_results_of_another_are_left_out(tmp_path: Path) -> None:
    key = product_keys(plan())[0] | {"learning_rate": 0.1}
    assert recipe_of(key) == Recipe(steps=3, learning_rate=0.1)
    assert build(key).recipe.learning_rate == 0.1
    store = Store(tmp_path / "predictive.jsonl")
    store.append(record(key, rmse=1.0))
    changed = Preset("grid", Recipe(steps=4), GRID.learning_rates, GRID.rows, GRID.time_limit)
    assert (len(Results(store, GRID).records), len(Results(store, changed).records)) == (1, 0)


def test_exact_gp_comes_once_whatever_the_sizes_and_not_where_it_cannot_run() -> None:
    many = Plan("predictive", GRID, ("synthetic1",), ("ExactGP", "CVGP"), (5, 6), 1)
    assert [(k["method"], k["size"]) for k in product_keys(many)] == [("ExactGP", None), ("CVGP", 5), ("CVGP", 6)]
    large = Plan("predictive", PRESETS["fair"], ("protein",), ("ExactGP", "CVGP"), (5,), 1)
    assert {k["method"] for k in tuned_keys(large, Store(Path("nowhere") / "predictive.jsonl"))} == {"CVGP"}


def test_the_first_fold_chooses_the_rate_of_the_others_by_validation_rows_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "predictive.jsonl")
    first = tuned_keys(plan(), store)
    assert [(k["method"], k["fold"], k["learning_rate"]) for k in first] == [
        ("CVGP", 0, 0.01),
        ("CVGP", 0, 0.1),
        ("SparseGP", 0, None),
        ("SparseGP", 1, None),
        ("SparseGP", 2, None),
    ]
    # The better validation score decides, although the other rate has the better test score.
    scores = {0.01: (-1.0, 0.0), 0.1: (-0.5, -9.0), None: (0.0, 0.0)}
    for key in first:
        validation, test = scores[key["learning_rate"]]  # type: ignore[index]
        store.append(record(key, validation_log_likelihood=validation, log_likelihood=test))
    second = [k for k in tuned_keys(plan(), store) if store.finished(k) is None]
    assert [(k["method"], k["fold"], k["learning_rate"]) for k in second] == [("CVGP", 1, 0.1), ("CVGP", 2, 0.1)]
    for key in second:
        store.append(record(key, log_likelihood=-9.0))
    found = chosen_records(Results(store, GRID), dataset="synthetic1", method="CVGP", size=5)
    assert [(r.task["fold"], r.task["learning_rate"]) for r in found] == [(0, 0.1), (1, 0.1), (2, 0.1)]


def test_a_claim_is_tested_by_folds_pooled_over_sets() -> None:
    one = [-0.1, -0.3, -0.1, -0.2, -0.4]
    found = pooled({"a": one})
    spread = np.sqrt((1 / 5 + 1 / 2.8) * np.var(one, ddof=1))
    assert found.effect == pytest.approx(-0.22)
    assert found.p == pytest.approx(student.cdf(-0.22 / spread, 4))
    assert pooled({"a": one, "b": one}).p < found.p < pooled({"a": [-v for v in one]}).p
    assert pooled({"a": [0.001, -0.001, 0.002]}, margin=0.02).p < 0.05 < pooled({"a": one}, margin=0.02).p
    assert np.isnan(pooled({"a": [1.0]}).p)


@pytest.mark.parametrize(
    ("same", "margin", "p"), [(-0.1, None, 0.0), (0.1, None, 1.0), (0.01, 0.02, 0.0), (0.1, 0.02, 1.0)]
)
def test_folds_that_all_agree_decide(same: float, margin: float | None, p: float) -> None:
    found = pooled({"a": [same] * 3}, margin=margin)
    assert found.p == p
    assert found.opposite == (p == 1.0)


def test_the_opposite_of_a_claim_is_told_from_no_difference() -> None:
    lower, noisy = [-0.2, -0.3, -0.25, -0.3, -0.2], [-0.3, 0.3, 0.1, -0.2, 0.2]
    assert [pooled({"a": values}).opposite for values in (lower, [-v for v in lower], noisy)] == [False, True, False]
    assert [pooled({"a": values}, margin=0.02).opposite for values in (lower, noisy)] == [True, False]


def test_hours_add_up_over_folds_and_rates_and_shared_fits_count_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "predictive.jsonl")
    for rate in GRID.learning_rates:
        key = product_keys(plan(("CVGP",)))[0] | {"learning_rate": rate}
        store.append(Record(key, {"validation_log_likelihood": 0.0, "steps": 3.0}, ORIGIN, seconds=6.0))
    study = find_study("predictive")
    known = report.not_run(tmp_path, [(study, plan(("CVGP",))), (find_study("robustness"), plan(("CVGP",)))])
    assert [(m.study, m.datasets, m.fits, m.planned, m.unknown) for m in known] == [
        ("predictive", ("synthetic1",), 2, 3, 0)
    ]
    assert known[0].hours == pytest.approx(2 * 6.0 / 3600)
    (other,) = report.not_run(tmp_path, [(study, replace(plan(("CVGP", "SVGP")), datasets=("synthetic2",)))])
    # Two rates on the first fold and one on each of the others; the pace of SVGP is unknown.
    assert (other.fits, other.unknown, other.hours) == (6, 3, pytest.approx(4 * 6.0 / 3600))


# Tables and figures


def test_exponents_are_those_of_the_larger_sizes() -> None:
    sizes = (50, 100, 200, 400, 800)
    records = [record({"size": m}, seconds=1e-9 * m**3 if m > 100 else 1e-2, parameters=10.0 * m) for m in sizes]
    assert exponent(records, "size", "seconds") == pytest.approx(3.0)
    assert exponent(records, "size", "parameters") == pytest.approx(1.0)
    assert exponent(records[:2], "size", "parameters") == pytest.approx(1.0)
    assert np.isnan(exponent(records[:1], "size", "parameters"))


def test_the_best_stochastic_system_has_the_best_mean_of_all_folds() -> None:
    def cell(method: str, *scores: float) -> Cell:
        return Cell("a", method, 50, None, [record({}, rmse=s, joint_log_likelihood=-s) for s in scores])

    found = [cell("SparseGP", 0.1, 0.1), cell("SVGP", 0.4, 0.5), cell("CVGP", 0.3, 0.4), cell("PPGPR", 0.2)]
    for name in ("rmse", "joint_log_likelihood"):
        best = best_stochastic(found, name)
        assert best is not None
        assert best.method == "CVGP"
    assert best_stochastic(found[:1], "rmse") is None


# What single studies compute


@pytest.mark.slow
def test_the_full_sigma_has_sparse_gps_bound_and_the_diagonal_less(folder: Path) -> None:
    run("optimum", "--preset", "smoke", "--store", folder)
    (record,) = Results(Store(folder / "optimum.jsonl"), PRESETS["smoke"]).records
    assert record.number("full") == pytest.approx(record.number("sparse"), abs=1e-8)
    assert record.number("equal") < record.number("diagonal") < record.number("sparse") < record.number("exact")


@pytest.mark.slow
def test_known_effects_are_found(folder: Path) -> None:
    run("features", "--preset", "smoke", "--store", folder)
    results = Results(Store(folder / "features.jsonl"), PRESETS["smoke"])
    arrays = results.arrays(results.where(dataset="generated-linear")[0])
    ratio = np.abs(arrays["mean"]) / arrays["sd"]
    assert set(np.argsort(-ratio)[:3]) == {0, 1, 2}
    assert (np.sign(arrays["mean"][:3]) == np.sign(arrays["truth"][:3])).all()


@pytest.mark.slow
def test_cvgps_parameters_grow_linearly_and_svgps_quadratically(folder: Path) -> None:
    run("complexity", "--preset", "smoke", "--store", folder)
    results = Results(Store(folder / "complexity.jsonl"), PRESETS["smoke"])

    def parameters(method: str, size: int) -> float:
        return results.where(method=method, size=size)[0].number("parameters")

    # Kernel and noise have 3; SVGP stores its factor as a square.
    assert [parameters("CVGP", m) for m in (4, 8)] == [m * (8 + 2) + 3 for m in (4, 8)]
    assert [parameters("SVGP", m) for m in (4, 8)] == [m * (8 + 1) + m * m + 3 for m in (4, 8)]
    assert [parameters("SparseGP", m) for m in (4, 8)] == [m * 8 + 3 for m in (4, 8)]
    assert all(r.number("bytes") > 0 for r in results.records)


def test_densities_of_equal_points_do_not_differ_and_distant_ones_do_wholly() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((50, 2))
    side = np.linspace(-5, 5, 60)
    where = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    p = density(points, None, where)
    assert p.sum() * (side[1] - side[0]) ** 2 == pytest.approx(1.0, abs=1e-6)
    assert total_variation(p, density(points, np.full(50, 3.0), where)) == pytest.approx(0.0, abs=1e-12)
    assert total_variation(p, density(points + 100.0, None, where)) == pytest.approx(1.0)


def test_every_system_in_the_papers_figure_is_one_of_ours() -> None:
    scope = find_study("predictive").full
    assert {method for known in PAPER_RMSE.values() for method, _ in known} <= set(scope.methods)
