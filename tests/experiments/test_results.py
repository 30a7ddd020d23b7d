"""What pages say about stored results in words and in tables written by hand is what the stores hold."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from experiments import race

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"


def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("record", records("hard.jsonl"), ids=lambda record: record["task"]["problem"])
def test_a_hard_problem_is_learned_with_intervals_that_hold(record: dict[str, Any]) -> None:
    metrics = record["metrics"]
    assert metrics["coverage"] > 0.8
    if metrics["explained"] >= 0.5:
        assert metrics["rmse"] < 0.95 * metrics["rmse_constant"]


def shown(dataset: str, methods: list[str]) -> list[str]:
    """RMSE and mean log-likelihood as README shows them: medians over the random splits that all methods share."""
    # Of a fit that was made again, the last record counts; of several learning rates or starts the best.
    found: dict[tuple[str, int], dict[tuple[Any, Any], dict[str, float]]] = {}
    for r in records("race.jsonl"):
        task = r["task"]
        if (task["dataset"], task["kind"]) == (dataset, "random") and not r["error"]:
            choice = task.get("learning_rate"), task.get("start")
            found.setdefault((task["method"], task["split"]), {})[choice] = r["metrics"]
    best = {key: max(rivals.values(), key=lambda m: m["log_likelihood"]) for key, rivals in found.items()}
    splits = {method: {n for m, n in best if m == method} for method, _ in best}
    shared = set.intersection(*splits.values())
    cells = []
    for method in methods:
        values = [best[method, n] for n in shared if (method, n) in best]
        rmse, density = ([v[name] for v in values] for name in ("rmse", "log_likelihood"))
        cells.append(f"{median(rmse):.3f} / {median(density):.2f}" if values else "- / -")
    return cells


def test_the_table_of_accuracy_in_readme_is_what_the_store_holds() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    methods = {entry.title: entry.name for entry in race.ENTRIES}
    (head,) = re.findall(r"^\| data \| (.+) \|$", readme, flags=re.MULTILINE)
    rows = re.findall(r"^\| (\w+) \| ([^|]+/.+) \|$", readme, flags=re.MULTILINE)
    assert len(rows) == 10
    for dataset, cells in rows:
        found = [cell.replace("**", "").strip() for cell in cells.split(" | ")]
        assert found == shown(dataset, [methods[title] for title in head.split(" | ")])


@pytest.mark.parametrize(
    ("metric", "words"), [("log_likelihood", "mean log-likelihood ahead of"), ("rmse", "RMSE ahead")]
)
def test_the_counts_in_readme_are_of_shared_splits(metric: str, words: str) -> None:
    """Counted here from the store: of split 0, which every method has."""
    first: dict[str, dict[str, float]] = {}
    sign = 1.0 if metric == "log_likelihood" else -1.0
    best: dict[tuple[str, str], dict[str, float]] = {}
    latest = {json.dumps(r["task"], sort_keys=True): r for r in records("race.jsonl")}
    for r in latest.values():
        task, metrics = r["task"], r["metrics"]
        if (task["kind"], task["split"]) == ("random", 0) and not r["error"] and task["dataset"] in race.DATASETS:
            key = task["dataset"], task["method"]
            if key not in best or metrics["log_likelihood"] > best[key]["log_likelihood"]:
                best[key] = metrics
    for (dataset, method), metrics in best.items():
        first.setdefault(dataset, {})[method] = sign * metrics[metric]
    good = 0
    for by_method in first.values():
        rival = max(value for method, value in by_method.items() if not method.startswith("cvgp"))
        good += by_method["cvgp"] > rival if metric == "log_likelihood" else by_method["cvgp"] >= race.CLOSE * rival
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| {words}.*\| on {good} of {len(first)} data sets \|", readme, flags=re.MULTILINE)
