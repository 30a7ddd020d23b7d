import json
from pathlib import Path

from tests.cli.conftest import Run, make_table


def test_report_writes_a_page_and_prints_the_scores(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    result = run("report", model, table, "--out", tmp_path / "report.html")
    assert result.exit_code == 0, result.stderr
    assert "this model" in result.stdout
    assert result.stdout.strip().endswith("report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_scores_are_those_of_evaluate(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(40, seed=1).to_csv(tmp_path / "test.csv", index=False)
    make_table(60).to_csv(tmp_path / "train.csv", index=False)
    arguments = ("--train", tmp_path / "train.csv", "--out", tmp_path / "r.html", "--json")
    found = json.loads(run("report", model, tmp_path / "test.csv", *arguments).stdout)["scores"]
    expected = json.loads(run("evaluate", model, tmp_path / "test.csv", "--json").stdout)["scores"]
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) == {"boosting"}


def test_another_ending_than_html_is_refused_before_the_work(
    run: Run, model: Path, table: Path, tmp_path: Path
) -> None:
    result = run("report", model, table, "--out", tmp_path / "report.txt")
    assert (result.exit_code, ".html" in result.stderr) == (2, True)
