import numpy as np
import pytest
import torch

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import statistics
from cvgp.training import noise_learning
from cvgp.training.monitor import Watch
from cvgp.training.noise_learning import learn_input_noise, residuals_of
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


def learn(model: CVGP, source: MemorySource, **options: bool) -> noise_learning.InputNoise | None:
    found, rng = statistics(model, source.chunks(1000)), np.random.default_rng(1)
    return learn_input_noise(
        model, lambda count: residuals_of(model, found, source.sample(count, rng)), rng, Watch(), **options
    )


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
        assert found.variance[i].item() == pytest.approx(prediction.variance.item(), rel=0.05)


def test_known_noise_is_not_learned_again() -> None:
    model, source = problem(60)
    rows = source.sample(60, np.random.default_rng(0))
    found = statistics(model, source.chunks(60))
    known = torch.full((60,), 0.7, dtype=torch.float64)
    plain = residuals_of(model, found, rows)
    with_known = residuals_of(model, found, rows._replace(noise_variance=known))
    assert ((with_known.variance - plain.variance) > 0.6).all()


def test_weights_count_as_repeats() -> None:
    model, source = problem(300)
    rows = residuals_of(model, statistics(model, source.chunks(300)), source.sample(300, np.random.default_rng(0)))
    features = noise_learning.Features(torch.linspace(-2, 2, 6, dtype=torch.float64)[:, None], torch.ones(1).double())
    twice = torch.cat([torch.arange(300), torch.arange(100)])
    weight = torch.ones(300).double()
    weight[:100] = 2.0
    weighted = noise_learning._fit(features.at(rows.x), rows._replace(weight=weight), 1.0)
    repeated = noise_learning._fit(features.at(rows.x[twice]), rows.take(twice), 1.0)
    for mine, theirs in zip(weighted, repeated, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


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
