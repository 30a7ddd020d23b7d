"""The suite of tables that resemble the world: its splits, its measurements and its targets, on tables made here."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cvgp.errors import FileFormatError, InvalidInputError
from experiments import tables, world
from experiments.__main__ import app
from experiments.data import FLIGHTS, UCI
from experiments.peers.environments import PINS, ROOT, WORK_FOLDER, _are_here
from experiments.race import OURS, Plan, choose
from experiments.store import Record, Store
from experiments.world import LINE, TABLES, Table

(LIGHTGBM,) = choose(["lightgbm"])
ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"}


def frame_of(rows: int) -> pd.DataFrame:
    frame, y, _ = tables.PROBLEMS["mixed"](rows, 0)
    return frame.assign(y=y)


def table_of(rows: int, groups: str = "", time: str = "", left_out: str = "", columns: int = 5) -> Table:
    return Table(
        "made", "up", rows, columns, "y", tuple(groups.split()), tuple(time.split()), left_out, "it is made up"
    )


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> dict[str, Table]:
    """Four tables made here, in place of those of the packages, all in the first half."""
    made = {
        "random": table_of(100),
        "groups": table_of(100, groups="city color", left_out="city, color: names the group", columns=3),
        "time": table_of(1200, time="when"),
        "large": table_of(1200),
    }
    monkeypatch.setattr(world, "TABLES", made)
    monkeypatch.setattr(world, "half_of", lambda name: "first")
    monkeypatch.setattr(world, "read", lambda name: frame_of(made[name].rows))
    return made


# The tables


def test_every_table_is_in_one_half_and_both_halves_have_some() -> None:
    first, second = (world.names_of(half) for half in world.HALVES)
    assert sorted(first + second) == sorted(TABLES)
    assert min(len(first), len(second)) > len(TABLES) / 4


def test_no_table_is_one_that_choices_are_made_on() -> None:
    assert not set(TABLES) & {*UCI, FLIGHTS, *tables.PROBLEMS}


def test_the_suite_has_tables_of_every_size_and_kind_of_split() -> None:
    rows = [table.rows for table in TABLES.values()]
    assert len(rows) >= 25
    assert (min(rows) < 50, max(rows) > 300_000) == (True, True)
    assert {table.split.split()[0] for table in TABLES.values()} == {"random", "whole", "the"}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_a_package_has_its_size_and_can_be_encoded_for_every_method(name: str) -> None:
    table, pins = TABLES[name], (PINS / "world.txt").read_text()
    exported, installed = WORK_FOLDER / "world" / f"{name}.csv.gz", WORK_FOLDER / "envs" / "world" / "installed.txt"
    if not (exported.exists() or _are_here(pins) or (installed.exists() and installed.read_text() == pins)):
        pytest.skip(f"table {name!r}: {table.package} of experiments/peers/world.txt is not installed")
    split = world.make(name, 0)
    assert split.train.shape[1] == table.columns
    assert 0 < len(split.y_test) <= 0.25 * table.rows
    assert np.isfinite(tables.rows_for_line(split).x_test).all()
    assert tables.rows_for_trees(split)[0].x.shape[1] >= table.columns


def test_a_table_of_another_size_is_refused(suite: dict[str, Table]) -> None:
    with pytest.raises(FileFormatError, match="100 rows with a target and 5 columns"):
        world.inputs(suite["random"], frame_of(99))


# Splits


def test_a_row_without_a_target_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("x,y\n1,2\n3,\n5,6\n")
    monkeypatch.setattr(world, "exported", lambda *_: path)
    monkeypatch.setattr(world, "TABLES", {"gaps": table_of(2)})
    assert world.read("gaps")["y"].tolist() == [2.0, 6.0]


@pytest.mark.parametrize("name", ["random", "groups"])
def test_the_five_splits_of_a_small_table_score_each_row_once(name: str, suite: dict[str, Table]) -> None:
    splits = [world.make(name, number) for number in range(suite[name].splits)]
    assert len(splits) == 5
    np.testing.assert_array_equal(np.sort(np.concatenate([split.y_test for split in splits])), np.sort(frame_of(100).y))
    assert all(len(split.y) + len(split.y_test) == 100 for split in splits)


def test_a_split_is_the_same_each_time(suite: dict[str, Table]) -> None:
    first, second = world.make("random", 2), world.make("random", 2)
    pd.testing.assert_frame_equal(first.test, second.test)


def test_no_group_is_on_both_sides(suite: dict[str, Table]) -> None:
    split = world.make("groups", 1)
    group = frame_of(100).set_index("y")[["city", "color"]].apply(tuple, axis=1)
    assert not {group[y] for y in split.y} & {group[y] for y in split.y_test}
    assert list(split.train.columns) == ["a", "b", "when"]


def test_in_time_order_at_most_the_last_fifth_is_scored(suite: dict[str, Table]) -> None:
    split = world.make("time", 0)
    assert split.train["when"].max() < split.test["when"].min()
    assert 0.15 * 1200 < len(split.y_test) <= 0.2 * 1200


def test_a_large_table_has_one_split_and_no_more_scored_rows_than_a_race(
    suite: dict[str, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "MOST_SCORED", 50)
    assert suite["large"].splits == 1
    split = world.make("large", 0)
    assert (len(split.y), len(split.y_test)) == (960, 50)


# From the command line


@pytest.mark.slow
def test_the_suite_is_run_stored_shown_and_not_run_again(
    tmp_path: Path, suite: dict[str, Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "TABLES", {"groups": suite["groups"]})
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- world-tables:begin --><!-- world-tables:end --><!-- world-first:begin --><!-- world-first:end -->"
    )
    options = [
        "--suite",
        "world",
        "--peers",
        "cvgp,line",
        "--store",
        str(tmp_path / "world.jsonl"),
        "--write",
        str(page),
    ]
    CliRunner().invoke(app, ["race", *options], catch_exceptions=False)
    store = Store(tmp_path / "world.jsonl")
    assert [record.error for record in store] == [""] * 10
    ours = next(record for record in store if record.task["method"] == "cvgp")
    assert ours.number("rows_trained") + ours.number("rows_scored") == 100
    assert ours.number("width_50") < ours.number("width_90") < ours.number("width_95")
    text = page.read_text()
    assert "| groups | first | made up | y | whole groups of city, color |" in text
    assert [text.count(f"| groups | {title} |") for title in ("cvgp", "Bayesian ridge")] == [1, 1]
    again = CliRunner().invoke(app, ["race", *options], catch_exceptions=False)
    assert "10 tasks, 10 of them" in again.output
    assert page.read_text() == text


@pytest.mark.parametrize(
    "options",
    [["--suite", "moon"], ["--suite", "world", "--datasets", "wine"], ["--suite", "world", "--half", "third"]],
)
def test_what_the_suite_does_not_have_is_refused(options: list[str]) -> None:
    assert isinstance(CliRunner().invoke(app, ["race", "--table", *options]).exception, InvalidInputError)


def test_a_peer_that_the_suite_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="svgp"):
        world.entries_of(["cvgp", "svgp"])


@pytest.mark.parametrize("half", world.HALVES)
def test_the_page_holds_what_the_command_writes(half: str, tmp_path: Path) -> None:
    page, text = tmp_path / "world.md", (ROOT / "experiments" / "reports" / "world.md").read_text()
    page.write_text(text)
    options = ["--suite", "world", "--half", half, "--table", "--write", str(page)]
    CliRunner().invoke(app, ["race", *options], catch_exceptions=False)
    assert page.read_text() == text


# Targets, from made-up results


def report_of(store: Store, name: str, ours: dict[str, float | None] | None, **theirs: float) -> list[str]:
    """The lines of the report after our result (None: it failed) and that of each peer."""
    plan = Plan((name,), entries=world.ENTRIES)
    usual = dict.fromkeys(world.SHOWN, 0.9) | {"rmse": 0.5, "log_likelihood": -1.0, "rows_scored": 100.0}
    for entry, change in ((OURS, ours), (LIGHTGBM, theirs), (LINE, {})):
        for key in world._keys(plan, name, entry):
            failed = {"metrics": {}, "error": "it broke"} if change is None else {"metrics": usual | change}
            store.append(Record(key, provenance=ORIGIN, **failed))  # type: ignore[arg-type]
    return world.report(plan, store).splitlines()


def line_of(report: list[str], *words: str) -> str:
    (line,) = [line for line in report if line.startswith("| ") and all(word in line for word in words)]
    return line


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "world.jsonl")


@pytest.mark.parametrize(
    ("coverage", "rows", "holds"),
    [(0.86, 300.0, "1 of 1"), (0.84, 300.0, "0 of 1"), (0.96, 300.0, "0 of 1"), (0.84, 200.0, "0 of 0")],
)
def test_coverage_is_judged_where_enough_rows_are_scored(
    coverage: float, rows: float, holds: str, store: Store, suite: dict[str, Table]
) -> None:
    report = report_of(store, "large", {"coverage_90": coverage, "rows_scored": rows})
    assert f"| {holds} |" in line_of(report, "90 % intervals")


def test_the_rows_of_all_splits_count_together(store: Store, suite: dict[str, Table]) -> None:
    assert "| 1 of 1 |" in line_of(report_of(store, "random", {"coverage_90": 0.9}), "90 % intervals")


@pytest.mark.parametrize(("gain", "holds"), [(0.049, "1 of 1"), (0.051, "0 of 1")])
def test_a_peer_may_be_a_little_ahead_in_log_likelihood(
    gain: float, holds: str, store: Store, suite: dict[str, Table]
) -> None:
    report = report_of(store, "large", {}, log_likelihood=-1.0 + gain)
    assert f"| {holds} |" in line_of(report, "LightGBM", "nats")
    assert "| 1 of 1 |" in line_of(report, "Bayesian ridge", "nats")


@pytest.mark.parametrize(("ratio", "holds"), [(1.049, "1 of 1"), (1.051, "0 of 1")])
def test_a_peer_may_be_a_little_ahead_in_rmse(ratio: float, holds: str, store: Store, suite: dict[str, Table]) -> None:
    assert f"| {holds} |" in line_of(report_of(store, "large", {}, rmse=0.5 / ratio), "RMSE", "LightGBM")


def test_a_density_that_is_zero_breaks_the_target(store: Store, suite: dict[str, Table]) -> None:
    assert "| 0 of 1 |" in line_of(report_of(store, "large", {"log_likelihood": None}), "LightGBM", "nats")


def test_a_fit_that_failed_breaks_every_target_and_is_named(store: Store, suite: dict[str, Table]) -> None:
    report = report_of(store, "large", None)
    assert "| 0 of 1 | large (failed) |" in line_of(report, "90 % intervals")
    assert "- cvgp on large, split 0: it broke" in report


def test_a_density_of_zero_is_stored_as_none_beside_the_other_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    split = tables.make("mixed", 60, 10, 0)

    def impossible(model: object, x: object, y: np.ndarray) -> dict[str, np.ndarray]:
        levels = np.asarray(tables.LEVELS)
        return {
            "mean": y,
            "levels": levels,
            "quantiles": np.tile(levels[:, None], len(y)),
            "log_density": np.where(np.arange(len(y)) == 0, -np.inf, 0.0),
        }

    monkeypatch.setattr(world, "predictive", impossible)
    metrics = world._ours(split, None).metrics
    assert (metrics["log_likelihood"], metrics["rmse"]) == (None, 0.0)
