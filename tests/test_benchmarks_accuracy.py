"""The race of accuracy: its splits, its scores, its order, and what its tables say of made-up results."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from benchmarks.__main__ import app, main
from benchmarks.accuracy import accuracy_figure, accuracy_race, accuracy_tables, accuracy_targets
from benchmarks.accuracy.entries import CORESET, ENTRIES, LIGHTGBM, OURS, RATES, Entry, choose
from benchmarks.accuracy.groups import OBSERVED, group_rows, near_copies
from benchmarks.accuracy.predictive_scores import LEVELS, predictive_scores
from benchmarks.accuracy.race_splits import held_out, race_split
from benchmarks.peers import workers
from benchmarks.peers.environments import ROOT, PeerError
from benchmarks.peers.workers import fit_in_worker
from benchmarks.runner import run_tasks
from cvgp.errors import InvalidInputError
from cvgp.metrics import coverage
from cvgp.paper.markdown import fill
from cvgp.paper.scores import marginal_scores
from cvgp.paper.splits import Split, random_split
from cvgp.paper.store import Metrics, Record, Store

Array = NDArray[np.float64]

DATASET = "waves-150x2"
SVGP = choose(["svgp"])[0]
QUANTILES = choose(["lightgbm-quantiles"])[0]
ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"} | dict.fromkeys(
    ("torch", "gpytorch", "numpy", "scikit-learn"), "1"
)
UCI = ("energy", "concrete", "airfoil", "wine", "skillcraft", "parkinsons", "elevators", "bike", "protein")
ALL = (*UCI, "keggdirected", "flights")


def make_plan(
    datasets: tuple[str, ...] = (DATASET,),
    *,
    splits: int = 1,
    kinds: tuple[str, ...] = ("random", "grouped"),
    entries: tuple[Entry, ...] = ENTRIES,
) -> accuracy_race.Plan:
    return accuracy_race.Plan(datasets, splits, kinds, entries, budget=1.0, threads=1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.jsonl")


# Groups and splits


def test_near_copies_share_a_group_and_others_do_not() -> None:
    x = np.array([[0.0, 0.0], [0.01, 0.0], [1.0, 1.0], [0.0, 0.0], [-1.0, 2.0]])
    groups = near_copies(x)
    assert groups[0] == groups[1] == groups[3]
    assert len(set(groups.tolist())) == 3


def test_near_copies_do_not_depend_on_the_units_of_columns() -> None:
    x = np.random.default_rng(0).normal(size=(200, 2))
    same = near_copies(x) == near_copies(x * [1e-3, 1e6])
    assert same.all()
    assert len(set(near_copies(x).tolist())) < 200


def test_near_copies_are_linked_through_rows_between_them() -> None:
    chain = np.column_stack([np.linspace(0.0, 1.0, 50), np.zeros(50)])
    assert len(set(near_copies(chain).tolist())) == 1
    assert len(set(near_copies(chain[::10]).tolist())) == 5


def test_observed_groups_are_told_apart_by_their_columns_alone() -> None:
    x = np.array([[1.0, 1.0, 1.0, 5.0], [1.0, 1.0, 1.0, 9.0], [1.0, 1.0, 2.0, 5.0]])
    assert group_rows("bike", x).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("name", "count"), [("energy", 192), ("concrete", 427), ("airfoil", 106), ("parkinsons", 42), ("bike", 731)]
)
def test_a_set_has_as_many_groups_as_things_were_observed(
    name: str, count: int, uci: Callable[[str], tuple[Array, Array]]
) -> None:
    x, _ = uci(name)
    assert len(set(group_rows(name, x).tolist())) == count


def test_no_group_is_on_both_sides_and_a_fifth_is_scored() -> None:
    groups = np.random.default_rng(1).integers(40, size=1000)
    scored = held_out(groups, np.random.default_rng(0))
    assert not set(groups[scored]) & set(groups[~scored])
    assert 150 <= scored.sum() <= 200


def test_a_group_that_is_larger_than_a_fifth_is_learned_from() -> None:
    groups = np.array([0] * 60 + list(range(1, 41)))
    for seed in range(5):
        scored = held_out(groups, np.random.default_rng(seed))
        assert (scored.sum(), scored[:60].sum()) == (20, 0)


def test_rows_of_which_none_can_be_scored_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="none to score"):
        held_out(np.zeros(10, dtype=np.intp), np.random.default_rng(0))


def test_random_splits_are_those_of_the_other_measurements() -> None:
    ours, theirs = race_split(DATASET, "random", 3), random_split(DATASET, 3)
    np.testing.assert_array_equal(ours.x_test, theirs.x_test)
    np.testing.assert_array_equal(ours.y, theirs.y)


def test_a_grouped_split_scores_other_rows_than_it_learns_from() -> None:
    split = race_split(DATASET, "grouped", 0)
    rows = {tuple(row) for row in split.x.tolist()}
    assert not rows & {tuple(row) for row in split.x_test.tolist()}
    assert len(split.x) + len(split.x_test) == 150
    np.testing.assert_allclose([split.y.mean(), split.y.std()], [0.0, 1.0], atol=1e-12)


# Scores


def gaussians(n: int = 3000) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(size=n), rng.uniform(0.1, 2.0, size=n)
    return mean + sd * rng.normal(size=n), mean, sd


def as_quantiles(y: Array, mean: Array, sd: Array) -> dict[str, Any]:
    from scipy.stats import norm

    levels = np.asarray(LEVELS)
    return {
        "mean": mean,
        "levels": levels,
        "quantiles": mean + norm.ppf(levels)[:, None] * sd,
        "log_density": norm.logpdf(y, mean, sd),
    }


def test_a_gaussian_has_the_scores_of_the_other_measurements() -> None:
    y, mean, sd = gaussians()
    found = predictive_scores(y, {"mean": mean, "sd": sd})
    expected = marginal_scores(y, mean, sd)
    assert {name: found[name] for name in expected} == expected
    assert found["coverage_95"] == coverage(y, mean, sd, 0.95)


def test_a_gaussian_by_its_quantiles_and_density_has_the_same_scores() -> None:
    y, mean, sd = gaussians()
    found = predictive_scores(y, as_quantiles(y, mean, sd))
    assert found == pytest.approx(predictive_scores(y, {"mean": mean, "sd": sd}), rel=1e-4)


def test_quantiles_without_a_density_have_no_likelihood_and_no_crps() -> None:
    y, mean, sd = gaussians()
    whole = as_quantiles(y, mean, sd)
    few = np.isin(np.round(LEVELS, 6), (0.025, 0.05, 0.25, 0.75, 0.95, 0.975))
    found = predictive_scores(
        y, {"mean": mean, "levels": np.asarray(LEVELS)[few], "quantiles": whole["quantiles"][few]}
    )
    assert (found["log_likelihood"], found["crps"]) == (None, None)
    assert found["coverage_50"] == pytest.approx(coverage(y, mean, sd, 0.5))


def test_thirds_are_those_of_the_narrowest_and_the_widest_intervals() -> None:
    y, mean, sd = gaussians()
    found = predictive_scores(y, {"mean": mean, "sd": sd})
    quiet, noisy = np.argsort(sd)[:1000], np.argsort(sd)[-1000:]
    assert found["coverage_90_quiet"] == coverage(y[quiet], mean[quiet], sd[quiet], 0.9)
    assert found["coverage_90_noisy"] == coverage(y[noisy], mean[noisy], sd[noisy], 0.9)


def test_intervals_of_one_width_have_no_quiet_third() -> None:
    y, mean, _ = gaussians()
    found = predictive_scores(y, {"mean": mean, "sd": np.full(len(y), 0.3)})
    assert (found["coverage_90_quiet"], found["coverage_90_noisy"]) == (None, None)


# Entries and tasks


def test_an_unknown_peer_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown peers nobody\. Choose from cvgp, "):
        choose(["cvgp", "nobody"])


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_names_a_method_of_its_worker(entry: Entry) -> None:
    text = (ROOT / "benchmarks" / "peers" / f"work_{entry.worker}.py").read_text()
    assert entry.worker in workers.WORKERS
    assert f'"{entry.method}"' in text[text.index("__main__") :] + "".join(
        line for line in text.splitlines() if "methods = {" in line
    )


@pytest.mark.parametrize("name", ["lightgbm_density", "catboost", "ngboost"])
def test_a_peers_worker_imports_nothing_of_cvgp(name: str) -> None:
    text = (ROOT / "benchmarks" / "peers" / f"work_{name}.py").read_text()
    assert "import cvgp" not in text
    assert "from cvgp" not in text


@pytest.mark.parametrize(("name", "pin"), [("catboost", "catboost==1.2.10"), ("ngboost", "ngboost==0.5.11")])
def test_every_line_of_a_peers_list_is_a_pin(name: str, pin: str) -> None:
    lines = (ROOT / "benchmarks" / "peers" / f"{name}.txt").read_text().splitlines()
    assert [line for line in lines if "==" not in line and not line.startswith("#")] == []
    assert pin in lines


def test_no_two_tasks_share_a_key(store: Store) -> None:
    plan = make_plan(ALL, splits=5)
    keys = [json.dumps(t.key, sort_keys=True) for split in range(5) for t in accuracy_race.tasks(plan, store, split)]
    assert len(set(keys)) == len(keys)


def test_a_split_runs_every_kind_and_set_and_ours_come_first(store: Store) -> None:
    plan = make_plan(("energy", "bike"), entries=(OURS, CORESET, LIGHTGBM))
    order = [(t.key["kind"], t.key["dataset"], t.key["method"]) for t in accuracy_race.tasks(plan, store, 0)]
    assert order[:4] == [
        ("random", "energy", "cvgp"),
        ("random", "energy", "cvgp-coreset"),
        ("random", "energy", "lightgbm"),
        ("random", "bike", "cvgp"),
    ]
    assert len(order) == 12


def test_the_first_split_chooses_the_rate_of_the_others(store: Store) -> None:
    plan = make_plan(kinds=("random",), entries=(SVGP,), splits=2)
    first = accuracy_race.tasks(plan, store, 0)
    assert [t.key["learning_rate"] for t in first] == list(RATES)
    for task, value in zip(first, (1.0, 0.5, 2.0), strict=True):
        store.append(Record(task.key, made_up(value), ORIGIN))
    assert [t.key["learning_rate"] for t in accuracy_race.tasks(plan, store, 1)] == [RATES[2]]


def test_seconds_grow_with_rows_beyond_those_of_the_budget() -> None:
    assert accuracy_race.seconds_allowed(30.0, 700) == 30.0
    assert accuracy_race.seconds_allowed(30.0, 100_000) == 60.0


# Fits


@pytest.mark.slow
def test_our_fit_and_an_exact_gp_are_measured_and_shown(tmp_path: Path) -> None:
    common = ["--datasets", "waves-90x2", "--splits", "1", "--budget", "1", "--threads", "1"]
    chosen = ["--kinds", "grouped", "--peers", "cvgp,sklearn-exact", "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, ["accuracy", *common, *chosen], catch_exceptions=False)
    assert "FAILED" not in result.stdout
    rows = [line.split(" | ") for line in result.stdout.splitlines() if line.startswith("| waves-90x2 | ")]
    details = {row[1]: row for row in rows if len(row) == 16}
    assert set(details) == {"cvgp", "exact GP on a sample"}
    assert "-" not in details["cvgp"]
    record = next(r for r in Store(tmp_path / "results.jsonl") if r.task["method"] == "cvgp")
    assert record.number("rows_trained") + record.number("rows_scored") == 90
    assert record.number("bytes") > 1000


def test_an_exact_gp_takes_no_more_rows_than_there_are() -> None:
    split: Split = race_split(DATASET, "random", 0)
    settings = {"method": "within_budget", "kernel": "matern32", "budget": 1.0}
    found = fit_in_worker("sklearn", settings, split, threads=1, score=predictive_scores)
    assert found.metrics["rows"] == 120
    assert found.metrics["rmse"] < 0.5  # a constant has 1


def test_a_peer_that_cannot_be_installed_is_noted_and_the_rest_go_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(worker: str) -> Path:
        raise PeerError("no wheel")

    monkeypatch.setattr(workers, "_python", fail)
    plan = make_plan(kinds=("random",), entries=(LIGHTGBM, QUANTILES))
    run_tasks(accuracy_race.tasks(plan, store, 0), store, 1, warm_up=False)
    report = accuracy_tables.report(plan, store, "random")
    assert report == "No results yet."
    assert [record.error for record in store] == ["PeerError: no wheel"] * 2


# Reports, from made-up results


def made_up(log_likelihood: float, rmse: float = 0.001, covered: float = 0.9) -> Metrics:
    found: Metrics = {"rmse": rmse, "log_likelihood": log_likelihood, "crps": rmse, "coverage": covered}
    for share, value in ((50, 0.5), (90, covered), (95, 0.95)):
        found |= {f"coverage_{share}{place}": value for place in ("", "_quiet", "_noisy")}
    return found | {"seconds": 9.0, "seconds_per_row": 1e-5, "bytes": 5e4, "rows_trained": 1e4, "rows_scored": 1e3}


@pytest.fixture
def plan() -> accuracy_race.Plan:
    return make_plan(ALL, splits=2)


@pytest.fixture
def filled(plan: accuracy_race.Plan, store: Store) -> Store:
    """Every target is met: ours is ahead of all."""
    lines = []
    for split in range(plan.splits):
        for key in (task.key for task in accuracy_race.tasks(plan, store, split)):
            metrics = made_up(6.0) if key["method"] == "cvgp" else made_up(5.0, rmse=0.002)
            lines.append(json.dumps(vars(Record(key, metrics, ORIGIN))))
    store.path.write_text("\n".join(lines) + "\n")  # at once: a store makes sure of every line by itself
    return Store(store.path)


def change(plan: accuracy_race.Plan, store: Store, dataset: str, entry: Entry, kind: str, **metrics: float) -> None:
    for split in range(plan.splits):
        record = accuracy_race.record_of(plan, store, dataset, kind, split, entry)
        assert record is not None
        store.append(Record(record.task, record.metrics | metrics, record.provenance))


def missed(plan: accuracy_race.Plan, store: Store) -> list[tuple[str, str]]:
    return [(t.what, t.measured) for t in accuracy_targets.targets(plan, store) if t.met is False]


def test_targets_that_are_all_met_say_so(plan: accuracy_race.Plan, filled: Store) -> None:
    found = list(accuracy_targets.targets(plan, filled))
    assert [t.what for t in found if not t.met] == []
    assert f"{len(found)} of {len(found)} targets are met, 0 are open." in accuracy_targets.report(plan, filled)


def test_targets_without_results_are_open(plan: accuracy_race.Plan, store: Store) -> None:
    assert {t.met for t in accuracy_targets.targets(plan, store)} == {None}


def test_being_behind_on_one_set_is_allowed_and_named(plan: accuracy_race.Plan, filled: Store) -> None:
    change(plan, filled, "wine", LIGHTGBM, "random", log_likelihood=7.0)
    found = next(t for t in accuracy_targets.targets(plan, filled) if "log-likelihood ahead" in t.what)
    assert (found.measured, found.met) == ("9 of 10; behind on wine (LightGBM)", True)


def test_being_behind_on_two_sets_of_random_splits_fails(plan: accuracy_race.Plan, filled: Store) -> None:
    for name in ("wine", "energy"):
        change(plan, filled, name, LIGHTGBM, "random", log_likelihood=7.0)
    assert [what for what, _ in missed(plan, filled)] == ["sets with mean log-likelihood ahead of every peer"]


def test_an_rmse_within_two_percent_counts_as_level(plan: accuracy_race.Plan, filled: Store) -> None:
    for name in UCI:
        change(plan, filled, name, LIGHTGBM, "grouped", rmse=0.001 / 1.019)
    assert missed(plan, filled) == []
    for name in UCI:
        change(plan, filled, name, LIGHTGBM, "grouped", rmse=0.001 / 1.021)
    assert [what for what, _ in missed(plan, filled)] == ["sets with RMSE within 2 % of the best peer, or ahead"]


def test_covering_too_much_is_a_miss(plan: accuracy_race.Plan, filled: Store) -> None:
    change(plan, filled, "flights", OURS, "grouped", coverage_90=0.96)
    assert missed(plan, filled) == [("what 90 % intervals cover, on every set", "10 of 11; not flights (96 %)")]


def test_a_slow_fit_is_a_miss_only_where_rows_are_few(plan: accuracy_race.Plan, filled: Store) -> None:
    change(plan, filled, "flights", OURS, "random", seconds=99.0, rows_trained=2e5)
    assert missed(plan, filled) == []
    change(plan, filled, "protein", OURS, "random", seconds=31.0)
    assert [measured for _, measured in missed(plan, filled)] == ["31.0 (protein)"]


def test_the_best_of_a_score_is_bold_and_gaps_are_dashes(plan: accuracy_race.Plan, filled: Store) -> None:
    change(plan, filled, "wine", LIGHTGBM, "random", rmse=0.0005)
    lines = [line for line in accuracy_tables.report(plan, filled, "random").splitlines() if line.startswith("| wine")]
    assert lines[0].split(" | ")[1:4] == ["0.0010", "0.0020", "**0.0005**"]
    assert lines[1].split(" | ")[1:3] == ["**6.000**", "5.000"]


def test_a_table_has_medians_and_ranges_over_splits(store: Store) -> None:
    plan = make_plan(("wine",), splits=3, kinds=("random",), entries=(OURS,))
    for split, value in enumerate((1.0, 3.0, 2.0)):
        (task,) = accuracy_race.tasks(plan, store, split)
        store.append(Record(task.key, made_up(value), ORIGIN))
    assert "| 2.000 (1.000 to 3.000) |" in accuracy_tables.report(plan, store, "random")


def test_missing_and_failed_fits_are_counted_and_named(plan: accuracy_race.Plan, store: Store) -> None:
    plan = make_plan(("wine",), splits=2, kinds=("random",), entries=(OURS, LIGHTGBM))
    ours, theirs = accuracy_race.tasks(plan, store, 0)
    store.append(Record(ours.key, made_up(1.0), ORIGIN))
    store.append(Record(theirs.key, {}, ORIGIN, error="PeerError: no wheel"))
    report = accuracy_tables.report(plan, store, "random")
    assert "2 of 4 fits are missing" in report
    assert "- lightgbm on wine, split 0: PeerError: no wheel" in report


def test_the_page_is_filled_with_tables_and_the_picture(
    filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "accuracy.md"
    page.write_text((ROOT / "docs" / "accuracy.md").read_text())
    options = ["--table", "--splits", "2", "--budget", "1", "--threads", "1"]
    options += ["--store", str(filled.path), "--write", str(page)]
    CliRunner().invoke(app, ["accuracy", *options], catch_exceptions=False)
    text = page.read_text()
    assert text.count("2025-01-01") == 2
    assert "](images/accuracy.png)" in text
    assert (tmp_path / "images" / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_without_results_there_is_no_picture(plan: accuracy_race.Plan, store: Store, tmp_path: Path) -> None:
    assert accuracy_figure.draw(plan, store, tmp_path / "images") == ""
    assert not (tmp_path / "images").exists()


def test_every_method_with_a_density_has_a_marker_of_its_own() -> None:
    shown = {entry.name for entry in ENTRIES} - {"cvgp", "lightgbm-quantiles"}
    assert set(accuracy_figure.STYLES) == shown
    assert len(set(accuracy_figure.STYLES.values())) == len(shown)


@pytest.mark.parametrize("place", ["targets", "picture", "random", "grouped"])
def test_the_documentation_has_a_place_for_each_table(place: str, tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    page.write_text((ROOT / "docs" / "accuracy.md").read_text())
    fill(page, f"accuracy-{place}", "a table")
    assert "a table" in page.read_text()


def test_the_documentation_names_every_set_that_is_grouped_by_what_was_observed() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text()
    assert [name for name in OBSERVED if name not in page] == []


def test_an_unknown_kind_of_split_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "accuracy", "--kinds", "sorted"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert (exit_.value.code, "Unknown kinds of split sorted" in capsys.readouterr().err) == (1, True)
