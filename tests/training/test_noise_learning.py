from typing import Any

import numpy as np
import pytest
import torch

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.gp.input_noise import Features, InputNoise
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import statistics
from cvgp.training import noise_learning
from cvgp.training.likely_noise import Recipe, likely_noise
from cvgp.training.monitor import Watch
from cvgp.training.noise_learning import choose_noise, clear_gain
from cvgp.training.residuals import Residuals, residuals_of
from tests.training.problems import make_model


def noise_sd(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.05 + 0.3 * (1.0 + np.tanh(1.5 * x)))


def problem(num_rows: int = 800, *, constant: bool = False) -> tuple[CVGP, MemorySource]:
    """A sine whose noise grows along x, or does not, and a coreset that knows the function."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(num_rows, 1))
    sd = 0.3 if constant else noise_sd(x[:, 0])
    y = np.sin(1.5 * x[:, 0]) + sd * rng.normal(size=num_rows)
    source = MemorySource(torch.tensor(x), torch.tensor(y))
    model = make_model(source, 10)
    model.adopt_optimum(statistics(model, source.chunks(num_rows)))
    return model, source


def learn(model: CVGP, source: MemorySource, **options: bool) -> InputNoise | None:
    found, rng = statistics(model, source.chunks(1000)), np.random.default_rng(1)
    left = residuals_of(model, found, source.sample(10_000, rng))
    left = left.take(left.weight > 0)
    choice = choose_noise(model, left, rng, Watch(), **options)
    return None if choice is None else choice.learn(left)


def test_noise_that_grows_is_found() -> None:
    noise = learn(*problem())
    assert noise is not None
    x = np.linspace(-1.8, 1.8, 7)
    ratio = noise.variance(torch.tensor(x[:, None])).sqrt().numpy() / noise_sd(x)
    assert (ratio > 0.5).all()
    assert (ratio < 1.6).all()


def test_constant_noise_stays_constant_unless_another_is_wanted() -> None:
    assert learn(*problem(constant=True)) is None
    noise = learn(*problem(constant=True), always=True)
    assert noise is not None
    sd = noise.variance(torch.linspace(-1.8, 1.8, 9, dtype=torch.float64)[:, None]).sqrt()
    assert (sd / 0.3 - 1.0).abs().max() < 0.35


def test_few_rows_have_constant_noise() -> None:
    assert learn(*problem(noise_learning.LEAST_ROWS - 1)) is None


def test_residuals_are_those_of_rows_left_out() -> None:
    model, source = problem(60)
    rows = source.sample(60, np.random.default_rng(0))
    found = residuals_of(model, statistics(model, source.chunks(60)), rows)
    for i in (0, 17, 59):
        others = MemorySource(*(part[torch.arange(60) != i] for part in (rows.x, rows.y)))
        alone = CVGP(model.coreset, model.kernel, likelihood=model.likelihood)
        alone.adopt_optimum(statistics(alone, others.chunks(60)))
        with torch.no_grad():
            prediction = alone.posterior(rows.x[i : i + 1])
        error = rows.y[i] - prediction.mean[0]
        assert found.square[i].item() == pytest.approx(error.item() ** 2, rel=1e-2, abs=1e-5)
        assert found.f_var[i].item() == pytest.approx(prediction.variance.item(), rel=0.05)


def test_known_noise_is_not_learned_again() -> None:
    model, source = problem(400, constant=True)
    left = residuals_of(model, statistics(model, source.chunks(400)), source.sample(400, np.random.default_rng(0)))
    nothing = left.x[:, :0]
    all_of_it = likely_noise(nothing, left, Recipe(1.0)).level.exp()
    rest = likely_noise(nothing, left._replace(known=torch.full_like(left.f_var, 0.05)), Recipe(1.0)).level.exp()
    assert all_of_it.item() == pytest.approx(0.09, rel=0.2)
    assert (all_of_it - rest).item() == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("tails", ["normal", "heavy", "learned"])
def test_weights_count_as_repeats(tails: Any) -> None:
    model, source = problem(300)
    rows = residuals_of(model, statistics(model, source.chunks(300)), source.sample(300, np.random.default_rng(0)))
    features = Features(torch.linspace(-2, 2, 6, dtype=torch.float64)[:, None], torch.ones(1).double())
    twice = torch.cat([torch.arange(300), torch.arange(100)])
    weight = torch.ones(300).double()
    weight[:100] = 2.0
    recipe = Recipe(1.0, tails)
    weighted = likely_noise(features.at(rows.x), rows._replace(weight=weight), recipe)
    repeated = likely_noise(features.at(rows.x[twice]), rows.take(twice), recipe)
    torch.testing.assert_close(weighted.level, repeated.level, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(weighted.gamma, repeated.gamma, rtol=1e-3, atol=1e-3)


def made_up(square: np.ndarray, f_var: float | np.ndarray) -> Residuals:
    n, one = len(square), torch.ones(len(square), dtype=torch.float64)
    x = torch.linspace(-1, 1, n, dtype=torch.float64)[:, None]
    return Residuals(x, torch.tensor(square)[:, None], torch.as_tensor(f_var) * one, torch.zeros_like(one), one)


def test_heavy_tails_are_found_where_residuals_have_them() -> None:
    model, _ = problem(100)
    rng = np.random.default_rng(0)
    found = {
        name: choose_noise(model, made_up(r**2, 1e-6), np.random.default_rng(1), Watch(), always=True)
        for name, r in (("normal", rng.standard_normal(800)), ("heavy", rng.standard_t(2.5, 800)))
    }
    assert {name: None if c is None else c.recipe.tails for name, c in found.items()} == {
        "normal": "normal",
        "heavy": "learned",
    }


def test_few_rows_need_no_proof_of_heavy_tails() -> None:
    model, _ = problem(100)
    residuals = np.random.default_rng(3).standard_t(2.0, 150)
    choice = choose_noise(model, made_up(residuals**2, 1e-6), np.random.default_rng(1), Watch(), always=True)
    assert choice is not None
    assert choice.recipe.tails == "learned"


def test_variance_of_f_is_doubted_where_residuals_are_far_smaller() -> None:
    model, _ = problem(100)
    rng = np.random.default_rng(0)
    f_var = np.exp(rng.uniform(-9.0, -3.0, 1500))
    left = {
        "as large": made_up(f_var * rng.standard_normal(1500) ** 2, f_var),
        "smaller": made_up(f_var**2 * rng.standard_normal(1500) ** 2, f_var),
    }
    doubts = {}
    for name, rows in left.items():
        choice = choose_noise(model, rows, np.random.default_rng(1), Watch(), always=True)
        assert choice is not None
        doubts[name] = choice.learn(rows).doubt.item()
    assert doubts["as large"] < 1e-3
    assert doubts["smaller"] > 0.1


def test_no_single_row_makes_a_gain_uncertain() -> None:
    rows = made_up(np.ones(100), 1.0)
    better = torch.full((100,), 0.5, dtype=torch.float64)
    better[0] = 500.0
    assert clear_gain(better, torch.zeros_like(better), rows)
    assert not clear_gain(torch.zeros_like(better), better, rows)


def test_rows_of_no_weight_do_not_count() -> None:
    model, source = problem(300)
    rows = source.sample(300, np.random.default_rng(0))
    weight = torch.ones(300).double()
    weight[::2] = 0.0
    weighted = MemorySource(rows.x, torch.where(weight > 0, rows.y, 100.0), weight)
    kept = MemorySource(rows.x[1::2], rows.y[1::2])
    assert isinstance(weighted.sample(300, np.random.default_rng(0)), Rows)
    first, second = (learn(model, one, always=True) for one in (weighted, kept))
    assert first is not None
    assert second is not None
    x = torch.linspace(-1.5, 1.5, 5, dtype=torch.float64)[:, None]
    torch.testing.assert_close(first.variance(x), second.variance(x), rtol=0.3, atol=0.0)


@pytest.mark.parametrize(("limit", "tried"), [(None, 14), (1.0, 3)])
def test_fewer_noises_are_tried_where_time_is_short(
    limit: float | None, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, calls, held_out = 0.0, list[int](), noise_learning._held_out

    def slow(*values: Any) -> torch.Tensor:
        nonlocal now
        now += 1.0
        calls.append(1)
        return held_out(*values)

    monkeypatch.setattr(noise_learning, "_held_out", slow)
    model, source = problem(300)
    rng = np.random.default_rng(1)
    left = residuals_of(model, statistics(model, source.chunks(1000)), source.sample(300, rng))
    assert choose_noise(model, left, rng, Watch(limit, clock=lambda: now), always=True) is not None
    assert len(calls) == tried
