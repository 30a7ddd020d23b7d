"""Every experiment runs with the smoke preset from the command line, and its table and figures come from the store."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from cvgp.cli import app
from cvgp.cli.paper import SEVERAL
from cvgp.cli.several_values import join_values
from cvgp.paper.experiments import EXPERIMENTS, Results, find_experiment
from cvgp.paper.experiments.density2d import density, total_variation
from cvgp.paper.experiments.predictive import PAPER_RMSE
from cvgp.paper.experiments.stability import FAILED, smallest_jitter
from cvgp.paper.protocol import PRESETS
from cvgp.paper.store import Store

pytestmark = pytest.mark.slow  # each smoke run takes seconds


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["paper", *map(str, arguments)], prog_name="cvgp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_and_reports(name: str, folder: Path) -> None:
    done = run("run", name, "--preset", "smoke", "--threads", 1, "--store", folder)
    assert done.exit_code == 0, done.output
    results = Results(Store(folder / f"{name}.jsonl"), PRESETS["smoke"])
    assert results.failures == []
    assert {w.split(":")[0] for r in results.records for w in r.warnings} <= {"JitterWarning", "NumericalWarning"}

    table = run("table", name, "--preset", "smoke", "--store", folder)
    lines = [line for line in table.stdout.splitlines() if line.startswith("|")]
    assert len(lines) > 2, table.output
    columns = {line.count(" | ") for line in lines[:3]}
    assert len(columns) == 1  # a cell with a bar in it would break the table

    drawn = run("figure", name, "--preset", "smoke", "--store", folder, "--out", folder / "figures")
    files = [Path(line) for line in drawn.stdout.split()]
    assert {path.suffix for path in files} == {".png", ".pdf"}
    assert all(path.stat().st_size > 1000 for path in files)


def test_a_second_run_skips_everything(folder: Path) -> None:
    first = run("run", "weights", "--preset", "smoke", "--store", folder)
    again = run("run", "weights", "--preset", "smoke", "--store", folder)
    assert first.exit_code == again.exit_code == 0
    assert re.search(r"^0 tasks run, 0 of them failed, 2 in ", again.stderr, flags=re.MULTILINE)


def test_the_options_of_the_issue_are_understood(tmp_path: Path) -> None:
    options = ["--datasets", "synthetic1", "synthetic3", "--methods", "cvgp", "--sizes", "4", "6", "--folds", "1"]
    done = run("run", "weights", "--preset", "smoke", *options, "--jobs", "2", "--store", tmp_path)
    assert done.exit_code == 0, done.output
    cells = {(r.task["dataset"], r.task["method"], r.task["size"]) for r in Store(tmp_path / "weights.jsonl")}
    assert cells == {(d, "CVGP", m) for d in ("synthetic1", "synthetic3") for m in (4, 6)}


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["gaps", "--sizes", "50", "100", "200", "--jobs", "1"], ["gaps", "--sizes", "50,100,200", "--jobs", "1"]),
        (["--sizes", "50,100", "--methods", "a", "b"], ["--sizes", "50,100", "--methods", "a,b"]),
        (["gaps", "--preset", "fair"], ["gaps", "--preset", "fair"]),
        (["--sizes"], ["--sizes"]),
    ],
)
def test_values_up_to_the_next_option_are_joined(words: list[str], joined: list[str]) -> None:
    assert join_values(words, SEVERAL, lambda word: True) == joined


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing"], "Unknown experiment"),
        (["run", "gaps", "--preset", "nothing"], "Unknown preset"),
        (["run", "gaps", "--datasets", "nothing"], "Unknown data set"),
        (["run", "gaps", "--methods", "nothing"], "Unknown method"),
        (["run", "gaps", "--sizes", "many"], "not a number of points"),
        (["table", "gaps", "--store", "nowhere"], "cvgp paper run gaps"),
        (["figure", "gaps", "--store", "nowhere"], "cvgp paper run gaps"),
    ],
)
def test_wrong_use_ends_in_a_sentence(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


def test_data_sets_are_listed_with_size_place_licence_and_citation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CVGP_DATA", raising=False)
    monkeypatch.setenv("CVGP_CACHE", str(tmp_path))
    lines = run("datasets").stdout.splitlines()
    song = next(line for line in lines if line.startswith("song"))
    assert "515345 x 90" in song
    assert "CC BY 4.0" in song
    assert "Bertin-Mahieux et al. 2011" in song
    assert "song/data.csv.gz" in song
    assert next(line for line in lines if line.startswith("synthetic4")).split()[1:4] == ["1000", "x", "2"]


@pytest.mark.parametrize("command", ["list", "datasets", "run", "table", "figure"])
def test_every_command_has_help(command: str) -> None:
    assert f"Usage: cvgp paper {command}" in run(command, "--help").stdout


def test_experiments_are_listed() -> None:
    listed = run("list").stdout
    assert all(name in listed for name in EXPERIMENTS)


# What single experiments compute


def test_the_full_sigma_has_sparse_gps_bound_and_the_diagonal_less(folder: Path) -> None:
    run("run", "optimum", "--preset", "smoke", "--store", folder)
    (record,) = Results(Store(folder / "optimum.jsonl"), PRESETS["smoke"]).records
    assert record.number("full") == pytest.approx(record.number("sparse"), abs=1e-8)
    assert record.number("equal") < record.number("diagonal") < record.number("sparse") < record.number("exact")


def test_known_effects_are_found(folder: Path) -> None:
    run("run", "features", "--preset", "smoke", "--store", folder)
    results = Results(Store(folder / "features.jsonl"), PRESETS["smoke"])
    arrays = results.arrays(results.where(dataset="generated-linear")[0])
    ratio = np.abs(arrays["mean"]) / arrays["sd"]
    assert set(np.argsort(-ratio)[:3]) == {0, 1, 2}
    assert (np.sign(arrays["mean"][:3]) == np.sign(arrays["truth"][:3])).all()


def test_cvgps_parameters_grow_linearly_and_svgps_quadratically(folder: Path) -> None:
    run("run", "complexity", "--preset", "smoke", "--store", folder)
    results = Results(Store(folder / "complexity.jsonl"), PRESETS["smoke"])

    def parameters(method: str, size: int) -> float:
        return results.where(method=method, size=size)[0].number("parameters")

    # Kernel and noise have 3; SVGP stores its factor as a square.
    assert [parameters("CVGP", m) for m in (4, 8)] == [m * (8 + 2) + 3 for m in (4, 8)]
    assert [parameters("SVGP", m) for m in (4, 8)] == [m * (8 + 1) + m * m + 3 for m in (4, 8)]
    assert [parameters("SparseGP", m) for m in (4, 8)] == [m * 8 + 3 for m in (4, 8)]
    assert all(r.number("bytes") > 0 for r in results.records)


def test_the_smallest_jitter_of_a_singular_matrix() -> None:
    singular = torch.ones(3, 3, dtype=torch.float64)
    assert smallest_jitter(torch.eye(3, dtype=torch.float64)) == 0.0
    assert 0.0 < smallest_jitter(singular) <= 1e-7
    assert smallest_jitter(-torch.eye(3, dtype=torch.float64)) == FAILED


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
    defaults = find_experiment("predictive").defaults(PRESETS["fair"])
    assert {method for known in PAPER_RMSE.values() for method, _ in known} <= set(defaults.methods)
