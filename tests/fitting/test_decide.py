"""What a fit decides: printed, stored, and pinned."""

import json
from typing import Any

import numpy as np
import pytest
import torch

from cvgp.data.rows import Array, Rows
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.fitting.decide import Fit, Request, fit
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.monitor import Run
from cvgp.fitting.options import ModelOptions, TrainingOptions
from cvgp.fitting.prepare import FitData, memory_data, merge_copies
from tests.fitting.problems import make_rows

NAMES = ["outliers", "target_transform", "input_warp", "kernel", "n_coreset", "n_neighbors", "solver", "noise"]


def fitted(
    rows: Rows[Array],
    pinned: Decisions | None = None,
    run: Run | None = None,
    settings: TrainingOptions | None = None,
    **options: Any,
) -> tuple[Fit, FitData]:
    model, run, pinned = ModelOptions(**options), run or Run.alone(), pinned or Decisions()
    data = memory_data(rows, None, model, run, pinned, look_for_outliers=True)
    return fit(Request(data, model, settings or TrainingOptions(), run, pinned)), data


@torch.no_grad()
def predicted(found: Fit, data: FitData, x: Array) -> Array:
    result, at = found.result, torch.as_tensor(data.scaling.scale_x(x))
    model = result.solution.model
    mean = model.posterior(at).mean if result.kept is None else result.kept.process(model).moments(at)[0][:, 0]
    noise = torch.zeros_like(mean) if result.noise is None else result.noise.variance(at)
    return np.c_[mean.numpy(), noise.numpy()]


def outlying(rows: Rows[Array]) -> Rows[Array]:
    y = rows.y.copy()
    y[::25] += 30.0
    return rows._replace(y=y)


def uneven(rows: Rows[Array]) -> Rows[Array]:
    scale = np.where(rows.x[:, :1] > 0, 1.0, 0.01)
    return rows._replace(y=rows.y + scale * np.random.default_rng(1).normal(size=rows.y.shape))


PROBLEMS: dict[str, tuple[Rows[Array], dict[str, Any]]] = {
    "exact": (make_rows(300), {}),
    "outliers": (outlying(make_rows(400)), {}),
    "uneven noise": (uneven(make_rows(400)), {}),
    "log": (make_rows(300)._replace(y=np.exp(make_rows(300).y)), {"target_transform": "auto"}),
    "neighbors": (uneven(make_rows(1100)), {"n_neighbors": 10}),
    "coreset": (make_rows(1100), {"n_neighbors": 0, "n_coreset": 12}),
}


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.slow
def test_pinned_decisions_run_no_search_and_predict_the_same(name: str) -> None:
    rows, options = PROBLEMS[name]
    first, data = fitted(rows, **options)
    stored = Decisions.from_json(json.loads(json.dumps(first.decisions.to_json())))
    run = Run.alone()
    second, again = fitted(rows, stored, run, **options)
    x = rows.x[:50] + 0.01
    np.testing.assert_allclose(predicted(second, again, x), predicted(first, data, x), rtol=1e-10, atol=1e-10)
    searched = {row["phase"] for row in run.log.history if row["phase"] == "choose kernel"}
    assert not searched
    assert second.decisions == first.decisions


def test_decisions_are_printed_as_a_table_with_a_line_for_each() -> None:
    found, _ = fitted(make_rows(300))
    lines = str(found.decisions).splitlines()
    assert [line.split()[0] for line in lines[1:]] == NAMES
    assert [name for name, _ in found.decisions] == NAMES


def test_one_decision_can_be_pinned() -> None:
    rows = uneven(make_rows(400))
    free, _ = fitted(rows)
    assert free.result.noise is not None
    pinned, _ = fitted(rows, Decisions.pinned({"noise": Choice("constant")}))
    assert pinned.result.noise is None


def test_parameters_of_the_user_are_decisions_too() -> None:
    found, _ = fitted(make_rows(1100), n_neighbors=0, n_coreset=9, noise="constant", kernel="rbf")
    decisions = found.decisions
    assert decisions.n_coreset is not None
    assert decisions.n_coreset.taken == "9"
    assert decisions.kernel is not None
    assert decisions.kernel.taken == "rbf"
    assert [getattr(decisions, name).reason for name in ("n_coreset", "n_neighbors", "noise")] == ["as asked for"] * 3


def test_neighbors_are_not_chosen_for_a_fit_whose_training_the_user_decides() -> None:
    found, _ = fitted(make_rows(1100), settings=TrainingOptions(max_iter=5))
    assert found.result.kept is None


@pytest.mark.parametrize("num_rows", [2, 3, 4])
def test_a_few_rows_can_have_neighbors(num_rows: int) -> None:
    found, data = fitted(make_rows(num_rows), n_neighbors=3)
    assert np.isfinite(predicted(found, data, np.zeros((1, 2)))).all()


def test_neighbors_that_cannot_be_used_are_refused() -> None:
    rows = make_rows(50)
    few = Run.alone()
    few = few._replace(heuristics=type(few.heuristics)(most_neighbor_rows=20))
    with pytest.raises(InvalidInputError, match="n_neighbors=5 cannot be used"):
        fitted(rows, run=few, n_neighbors=5)


@pytest.mark.parametrize("given", [3, {"size": Choice("9")}, {"noise": "constant"}])
def test_other_decisions_are_refused(given: object) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match="decisions"):
        Decisions.pinned(given)


@pytest.mark.parametrize(
    "stored",
    [
        [],
        {"unknown": None},
        {"seed": 1.5},
        {"noise": {}},
        {"noise": {"taken": 1, "value": None, "reason": "", "candidates": {}, "seconds": 0.0}},
        {"noise": {"taken": "", "value": None, "reason": "", "candidates": {"a": [1.0]}, "seconds": 0.0}},
    ],
)
def test_damaged_decisions_are_an_error_of_the_file(stored: object) -> None:
    with pytest.raises(FileFormatError):
        Decisions.from_json(stored)


def test_copies_of_rows_are_merged_whatever_their_number_and_order() -> None:
    rows = make_rows(50)
    twice = Rows(np.r_[rows.x, rows.x], np.r_[rows.y, rows.y])
    order = np.random.default_rng(0).permutation(100)
    merged, expected = merge_copies(twice.take(order)), merge_copies(rows)
    np.testing.assert_array_equal(merged.x, expected.x)
    np.testing.assert_array_equal(merged.y, expected.y)
    assert merged.sample_weight is not None
    np.testing.assert_array_equal(merged.sample_weight, np.full(50, 2.0))
    assert expected.sample_weight is None


@pytest.mark.parametrize("is_sparse", [False, True])
def test_few_rows_of_many_columns_share_a_lengthscale_unless_few_columns_matter(is_sparse: bool) -> None:
    rng = np.random.default_rng(0)
    x, x_new = rng.normal(size=(120, 20)), rng.normal(size=(500, 20))
    weight = np.where(np.arange(20) < 2, 1.0, 0.0) if is_sparse else rng.normal(size=20) / 5.0

    def f(values: Array) -> Array:
        return np.asarray(np.sin(values @ weight) if is_sparse else values @ weight)

    y = f(x) + 0.3 * rng.normal(size=120)
    found, data = fitted(Rows(x, y[:, None]))
    kernel = found.decisions.kernel
    assert kernel is not None
    assert kernel.value["ard"] == is_sparse
    assert kernel.taken.endswith("one lengthscale") != is_sparse
    own, _ = fitted(Rows(x, y[:, None]), Decisions(kernel=kernel))
    np.testing.assert_allclose(predicted(own, data, x_new), predicted(found, data, x_new), rtol=1e-6, atol=1e-8)
