"""The code on the page about GPyTorch runs from top to bottom, and its table says no more than the results hold."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "gpytorch.md").read_text(encoding="utf-8")
RECORDS = [json.loads(line) for line in (ROOT / "experiments" / "results" / "gpytorch.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What the blocks leave, one after the other in one namespace."""
    found: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "gpytorch.md", "exec"), found)
    return found


def test_the_trained_model_has_learned_the_function(names: dict[str, Any]) -> None:
    x = torch.linspace(0.5, 5.5, 20)[:, None]
    with torch.no_grad():
        assert (names["model"](x).mean - torch.sin(x[:, 0])).abs().max() < 0.15


def test_the_conditioned_model_has_seen_the_new_rows(names: dict[str, Any]) -> None:
    x = torch.tensor([[8.0]])
    with torch.no_grad():
        assert abs(names["after"](x).mean.item() - 2.0) < 0.1 < abs(names["model"](x).mean.item() - 2.0)


def test_the_model_of_the_regressor_predicts_what_the_regressor_predicts(names: dict[str, Any]) -> None:
    expected = names["regressor"].predict([[1.0], [2.0]])
    np.testing.assert_allclose(names["mean"].detach().numpy(), expected, atol=1e-6)


def test_a_step_is_at_least_one_and_a_half_times_faster_in_the_stored_results() -> None:
    ratios = [record["metrics"]["ratio"] for record in RECORDS if record["task"]["what"] == "step"]
    assert min(ratios) >= 1.5


def test_the_bound_with_the_sites_solved_is_above_that_of_svgp_on_every_stored_set() -> None:
    best: dict[tuple[str, str], float] = defaultdict(lambda: -np.inf)
    for record in RECORDS:
        if record["task"]["what"] == "bound":
            task, metrics = record["task"], record["metrics"]
            key = task["dataset"], task["method"]
            best[key] = max(best[key], metrics.get("solved_bound", metrics["bound"]))
    datasets = {dataset for dataset, _ in best}
    assert len(datasets) == 5
    assert all(best[dataset, "coreset"] >= best[dataset, "svgp"] for dataset in datasets)
