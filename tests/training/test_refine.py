"""Kernel and noise from rows given their nearest others."""

from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel
from torch import Tensor

import cvgp
from cvgp.data.rows import Rows
from cvgp.gp.kernels import make_kernel
from cvgp.training import refine
from cvgp.training.monitor import Watch


def problem(n: int = 600, rate: float = 8.0) -> Rows[Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.rand(n, 2, generator=g, dtype=torch.float64) * 2 - 1
    noise = 0.1 * torch.randn(n, generator=g, dtype=torch.float64)
    return Rows(x, torch.sin(rate * x[:, 0]) + noise)


def starting_model(rows: Rows[Tensor], kernel: Any = "matern32", noise: float = 0.5) -> cvgp.CVGP:
    model = cvgp.CVGP(cvgp.Coreset(rows.x[:5], rows.y[:5], np.ones(5)), kernel)
    model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    return model


def run(model: cvgp.CVGP, rows: Rows[Tensor], time_used: float = 0.0) -> tuple[cvgp.CVGP | None, Watch]:
    watch, generator = Watch(), torch.Generator().manual_seed(1)
    refined = refine.refine_kernel(model, rows, 8, watch, generator, lambda: time_used)
    return None if refined is None else refined.model, watch


def test_the_noise_of_the_data_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 100)
    rows = problem()
    model = starting_model(rows)
    refined, watch = run(model, rows)
    assert refined is not None
    assert refined.noise.item() == pytest.approx(0.01, rel=0.5)
    assert model.noise.item() == pytest.approx(0.5)  # what was given stays as it was
    assert watch.history[-1]["phase"] == "neighbours"


def test_a_kernel_that_takes_the_function_for_noise_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 10)
    rows = problem()
    kernel = make_kernel("matern32", 2)
    kernel.outputscale = 1e-7
    refined, _ = run(starting_model(rows, kernel), rows)
    assert refined is not None
    assert refined.kernel.outputscale.item() > 0.01
    assert refined.noise.item() < 0.25


def test_the_outputscale_stays_below_a_multiple_of_the_variance_of_y(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 30)
    monkeypatch.setattr(refine, "LARGEST_OUTPUTSCALE", 2.0)
    rows = problem()
    rows = Rows(rows.x, 3.0 * rows.x[:, 0])  # a line, for which no outputscale is large enough
    refined, _ = run(starting_model(rows), rows)
    assert refined is not None
    # The last step may go beyond the limit, by no more than one step of Adam.
    assert refined.kernel.outputscale.item() < 2.5 * rows.y.var().item()


def test_a_frozen_kernel_stays() -> None:
    rows = problem(50)
    model = starting_model(rows)
    for parameter in (*model.kernel.parameters(), *model.likelihood.parameters()):
        parameter.requires_grad_(False)
    assert run(model, rows)[0] is None


def test_without_time_nothing_is_refined() -> None:
    rows = problem(50)
    assert run(starting_model(rows), rows, time_used=1.0)[0] is None


def test_a_sum_of_kernels_is_refined_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 4)
    rows = problem(60)
    model = starting_model(rows, make_kernel("rbf+linear", 2))
    assert not isinstance(model.kernel, ScaleKernel)
    refined, _ = run(model, rows)
    assert refined is not None
    assert 0.1 < refined.noise.item() < 0.5


def test_each_row_of_the_pool_is_drawn_before_one_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "BATCH", 4)
    batches = refine._draw_batches(torch.arange(30, 42), 25, refine.BATCH, torch.Generator().manual_seed(0))
    assert batches.shape == (25, 4)
    assert len(batches.unique()) == 12
    assert len(batches[:3].unique()) == 12


def test_a_search_that_gains_nothing_at_its_end_has_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "STEPS", 10)
    rows = problem()
    generous, strict = (
        refine.refine_kernel(
            starting_model(rows), rows, 8, Watch(), torch.Generator().manual_seed(1), lambda: 0.0, tol=tol
        )
        for tol in (1e3, -1e3)
    )
    assert generous is not None
    assert strict is not None
    assert generous.result.converged
    assert not strict.result.converged


def test_the_best_of_several_starts_goes_on() -> None:
    rows = problem(60)
    starts = [starting_model(rows, noise=noise) for noise in (0.1, 0.2, 0.3)]
    densities = iter([1.0, 3.0, 2.0])
    assert refine._best_start(starts, lambda start, number: (next(densities), start)) is starts[1]


@pytest.mark.parametrize(("far", "runs"), [(-1e9, 2), (1e9, 1)])
def test_steps_are_made_again_where_they_gained_much(monkeypatch: pytest.MonkeyPatch, far: float, runs: int) -> None:
    monkeypatch.setattr(refine, "STEPS", 5)
    monkeypatch.setattr(refine, "FAR_FROM_DONE", far)
    _, watch = run(starting_model(problem(60)), problem(60))
    assert sum(row["phase"] == "neighbours" for row in watch.history) == 5 * runs
