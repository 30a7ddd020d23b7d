"""What pages say about stored results in words and in tables written by hand is what the stores hold."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.accuracy import entries

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def text(page: str) -> str:
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("record", records("hard.jsonl"), ids=lambda record: record["task"]["problem"])
def test_a_hard_problem_is_learned_with_intervals_that_hold(record: dict[str, Any]) -> None:
    metrics = record["metrics"]
    assert metrics["coverage"] > 0.8
    if metrics["explained"] >= 0.5:
        assert metrics["rmse"] < 0.95 * metrics["rmse_constant"]


def test_every_stored_result_of_the_paper_is_of_the_preset_fair() -> None:
    presets = {
        r["task"]["preset"] for path in (RESULTS / "paper").glob("*.jsonl") for r in records(f"paper/{path.name}")
    }
    assert presets == {"fair"}
    assert "All results on this page are of the preset `fair`" in text("paper.md")


def test_fits_of_the_coreset_on_bike_were_all_repeated_in_double_precision() -> None:
    found = [r for r in records("paper/predictive.jsonl") if r["task"]["dataset"] == "bike"]
    repeated = {
        m: {r["metrics"]["float64"] for r in found if r["task"]["method"] == m} for m in ("CVGP", "SVGP", "PPGPR")
    }
    assert repeated == {"CVGP": {1.0}, "SVGP": {0.0}, "PPGPR": {0.0}}
    assert "On bike this happened to all 15 CVGP fits" in text("paper.md")


def test_the_cost_model_misses_as_much_of_two_workers_as_the_page_says() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    for kind, share in (("step", "17 to 27 % of a measured step"), ("evaluation", "3 to 12 % of an evaluation")):
        rows = re.findall(rf"\| an? {kind}, \d+ rows per worker \| [\d.]+ \| ([\d.]+) \| ([\d.]+) \|", page)
        missed = sorted(100 * (1 - float(model) / float(measured)) for measured, model in rows)
        assert share.startswith(f"{missed[0]:.0f} to {int(missed[-1])} %")
        assert share in text("scaling.md")


def accuracy_of(dataset: str, method: str) -> str:
    """Medians of RMSE and mean log-likelihood over random splits, as README shows them; dashes where there is none."""
    # Of a fit that was made again, the last record counts; of several learning rates or starts the best.
    by_choice = {
        (r["task"]["split"], r["task"].get("learning_rate"), r["task"].get("start")): r["metrics"]
        for r in records("accuracy.jsonl")
        if (r["task"]["dataset"], r["task"]["method"], r["task"]["kind"]) == (dataset, method, "random")
        and not r["error"]
    }
    by_split: dict[int, dict[str, float]] = {}
    for (split, _, _), found in by_choice.items():
        if split not in by_split or found["log_likelihood"] > by_split[split]["log_likelihood"]:
            by_split[split] = found
    rmse, density = ([found[name] for found in by_split.values()] for name in ("rmse", "log_likelihood"))
    return f"{median(rmse):.3f} / {median(density):.2f}" if by_split else "- / -"


def test_the_table_of_accuracy_in_readme_is_what_the_store_holds() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    methods = {entry.title: entry.name for entry in entries.ENTRIES}
    (head,) = re.findall(r"^\| data \| (.+) \|$", readme, flags=re.MULTILINE)
    columns = [methods[title] for title in head.split(" | ")]
    rows = re.findall(r"^\| (\w+) \| ([^|]+/.+) \|$", readme, flags=re.MULTILINE)
    assert len(rows) == 10
    for dataset, cells in rows:
        shown, expected = cells.split(" | "), [accuracy_of(dataset, method) for method in columns]
        assert [cell.replace("**", "").strip() for cell in shown] == expected
