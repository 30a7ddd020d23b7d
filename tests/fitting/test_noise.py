"""Noise that depends on x, and rows re-weighted by their noise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp.data.source import MemorySource
from cvgp.fitting.compare import Residuals
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import adopt_neighbors
from cvgp.fitting.noise import NoiseFit, fit_noise
from cvgp.fitting.noise_map import NoisePrior, NoiseRecipe, fit_noise_map, relative_noise
from cvgp.fitting.solve import Solution
from cvgp.gp.kernels import square_matrix
from cvgp.gp.model import CVGP
from cvgp.gp.noise import Features, InputNoise
from cvgp.objectives import statistics
from cvgp.optim import Result, Status
from tests.fitting.problems import make_model


def problem(num_rows: int = 400) -> MemorySource:
    """A sine that is nearly without noise in the left half, and hard to see in the right half."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(num_rows, 1))
    sd = np.where(x[:, 0] < 0.0, 0.02, 1.0)
    return MemorySource(torch.tensor(x), torch.tensor(np.sin(2.0 * x[:, 0]) + sd * rng.normal(size=num_rows)))


def begin(source: MemorySource, neighbors: int = 0, *, noise: float = 0.5, size: int = 20) -> NoiseFit:
    """A fit that has not looked at its noise yet."""
    model = make_model(source, size)
    model.likelihood.noise = noise
    found = statistics(model, source.chunks(1000))
    bound = model.adopt_optimum(found).item()
    solution = Solution(model, "adam", bound, Result(Status.CONVERGED, -bound, 1), found)
    if not neighbors:
        return NoiseFit(solution)
    kept, bound = adopt_neighbors(model, source.data, neighbors)
    return NoiseFit(solution._replace(bound=bound, statistics=kept.statistics), kept)


@torch.no_grad()
def mean_at(fit: NoiseFit, x: Tensor) -> Tensor:
    model = fit.solution.model
    return model.posterior(x).mean if fit.kept is None else fit.kept.process(model).moments(x)[0][:, 0]


def error_where_quiet(fit: NoiseFit) -> float:
    x = torch.linspace(-1.8, -0.3, 30, dtype=torch.float64)[:, None]
    return (mean_at(fit, x) - torch.sin(2.0 * x[:, 0])).square().mean().sqrt().item()


@pytest.mark.parametrize("neighbors", [0, 10])
def test_quiet_rows_count_more_once_their_noise_is_known(neighbors: int) -> None:
    source = problem()
    before = begin(source, neighbors)
    after = fit_noise(before, source, Run.alone())
    assert error_where_quiet(after) < 0.5 * error_where_quiet(before)
    assert after.recipe is not None
    assert after.recipe.rounds == 1


@pytest.mark.parametrize("neighbors", [0, 10])
def test_a_known_recipe_gives_the_same_noise_without_a_choice(neighbors: int) -> None:
    source = problem()
    chosen = fit_noise(begin(source, neighbors), source, Run.alone())
    again = fit_noise(begin(source, neighbors), source, Run.alone(), recipe=chosen.recipe)
    assert chosen.noise is not None
    assert again.noise is not None
    assert not again.candidates
    torch.testing.assert_close(again.noise.variance(source.data.x), chosen.noise.variance(source.data.x))


def test_a_constant_noise_stays_constant() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(400, 1))
    source = MemorySource(torch.tensor(x), torch.tensor(np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=400)))
    assert fit_noise(begin(source, noise=0.09), source, Run.alone()).noise is None


def test_the_noise_stays_constant_when_the_time_is_up() -> None:
    source = problem()
    assert fit_noise(begin(source), source, Run.alone(1e-9)).noise is None
    always = fit_noise(begin(source), source, Run.alone(1e-9), always=True)
    assert always.noise is not None
    assert always.noise.base == 0  # and no rows are re-weighted


@torch.no_grad()
def dense_mean(model: CVGP, source: MemorySource, noise: InputNoise, x: Tensor) -> Tensor:
    """The exact GP with the noise of each row."""
    rows, n = source.data, source.num_rows
    K = square_matrix(model.kernel, torch.cat([rows.x, x]))
    S = K[:n, :n] + (model.noise + noise.beyond_base(rows.x)).diag()
    return K[n:, :n] @ torch.linalg.solve(S, rows.y)


@pytest.mark.parametrize("neighbors", [0, 200])
def test_a_re_weighted_fit_is_the_exact_gp_with_noise_per_row(neighbors: int) -> None:
    source = problem(200)
    recipe = NoiseRecipe("normal", discounts_variance=False, rounds=1)
    fit = fit_noise(begin(source, neighbors, size=30), source, Run.alone(), recipe=recipe)
    assert fit.noise is not None
    assert (fit.noise.beyond_base(source.data.x) > 0.1).any()
    x = torch.linspace(-1.8, 1.8, 9, dtype=torch.float64)[:, None]
    model = fit.solution.model
    expected = dense_mean(model, source, fit.noise, x)
    torch.testing.assert_close(mean_at(fit, x), expected, rtol=0.0, atol=2e-3 if neighbors == 0 else 1e-6)


def test_a_sample_of_many_rows_is_enough_to_try_a_noise() -> None:
    source = problem()
    few = Run.alone()._replace(heuristics=replace(Heuristics(), reweighting_rows=350))
    after = fit_noise(begin(source), source, few)
    assert error_where_quiet(after) < 0.5 * error_where_quiet(begin(source))


def residuals(num_rows: int, draw: Any, f_var: float = 0.01) -> Residuals:
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, size=(num_rows, 1))
    error = torch.tensor(draw(rng, x[:, 0]))[:, None]
    n = torch.ones(num_rows, dtype=torch.float64)
    return Residuals(torch.tensor(x), error, f_var * n, 0.0 * n, n)


def test_a_noise_map_follows_the_noise() -> None:
    rows = residuals(3000, lambda rng, x: np.exp(0.5 * x) * rng.normal(size=len(x)))
    centers = torch.linspace(-2, 2, 10, dtype=torch.float64)[:, None]
    at = Features(centers, torch.ones(1, dtype=torch.float64)).at(rows.x)
    found = fit_noise_map(at, rows, NoiseRecipe(), NoisePrior(0.3, 0.0))
    sd = (0.5 * (found.level + at @ found.gamma)).exp()
    assert (sd.log() - 0.5 * rows.x[:, 0]).abs().mean() < 0.1


@pytest.mark.parametrize("slope", [0.0, 1.1], ids=["constant", "growing"])
def test_relative_noise_is_that_of_the_rows(slope: float) -> None:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.uniform(-1.0, 1.0, size=(1000, 1)))
    error = torch.tensor(rng.normal(size=(1000, 1))) * (slope * x).exp()
    source = MemorySource(x, error[:, 0])
    rows = Residuals.of(source.data, error, torch.full((1000,), 1e-6, dtype=torch.float64))
    found = relative_noise(make_model(source, 5), rows, x, Run.alone())
    truth = (2.0 * slope * x[:, 0]).exp()
    ratio = (found / (truth * truth.reciprocal().mean())).log()
    assert ratio.abs().median() < 0.5
    if slope == 0.0:
        assert (found == 1.0).all()


def test_learned_tails_are_heavier_for_residuals_of_student_t() -> None:
    rows = residuals(3000, lambda rng, x: rng.standard_t(3, size=len(x)))
    none = rows.x[:, :0]
    normal, learned = (
        fit_noise_map(none, rows, NoiseRecipe(tails), NoisePrior(0.3, 0.0)) for tails in ("normal", "learned")
    )
    assert learned.densities(none, rows).mean() > normal.densities(none, rows).mean() + 0.05


def test_a_variance_of_f_that_is_too_large_is_discounted() -> None:
    rows = residuals(2000, lambda rng, x: 0.1 * rng.normal(size=len(x)), f_var=1.0)
    found = fit_noise_map(rows.x[:, :0], rows, NoiseRecipe(discounts_variance=True), NoisePrior(0.3, 10.0))
    plain = fit_noise_map(rows.x[:, :0], rows, NoiseRecipe(), NoisePrior(0.3, 0.0))
    none = rows.x[:, :0]
    assert found.variance_discount > 1.0
    assert found.densities(none, rows).mean() > plain.densities(none, rows).mean()


@pytest.mark.parametrize("recipe", [NoiseRecipe(), NoiseRecipe(discounts_variance=True)])
@pytest.mark.parametrize("precision", [0.3, 3.0])
def test_the_noise_map_maximizes_its_posterior(recipe: NoiseRecipe, precision: float) -> None:
    rows = residuals(300, lambda rng, x: np.exp(0.5 * x) * rng.normal(size=len(x)))
    centers = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None]
    at = Features(centers, torch.ones(1, dtype=torch.float64)).at(rows.x)
    found = fit_noise_map(at, rows, recipe, NoisePrior(precision, 1.0), tol=1e-9)

    def posterior(level: Tensor, gamma: Tensor) -> float:
        changed = found._replace(level=level, gamma=gamma)
        return (changed.densities(at, rows).sum() - 0.5 * precision * gamma.square().sum()).item()

    best = posterior(found.level, found.gamma)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        step = 0.05 * torch.randn(len(found.gamma) + 1, generator=generator, dtype=torch.float64)
        assert posterior(found.level + step[0], found.gamma + step[1:]) <= best + 1e-3
