from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, ScaleKernel
from gpytorch.priors import GammaPrior

import cvgp
from cvgp import CVGPRegressor
from cvgp.gp.hyperparameters import HELD_ABOVE, HELD_AROUND, is_held, registered_priors
from cvgp.training.shrinkage import hold_if_few
from cvgp.training.start import starting_kernel

D = 30


def line(num_rows: int, num_dims: int) -> tuple[np.ndarray, np.ndarray]:
    """A line in two columns, with a tenth of its spread as noise."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(num_rows, num_dims))
    return x, 2.0 * x[:, 0] - x[:, 5] + 0.22 * rng.normal(size=num_rows)


def test_intervals_hold_where_there_are_fewer_rows_than_columns() -> None:
    x, y = line(600, 130)
    model = CVGPRegressor(random_state=0).fit(x[:100], y[:100])
    mean, sd = model.predict(x[100:], return_std=True)
    assert np.mean(np.abs(y[100:] - mean) <= 1.645 * sd) > 0.8
    assert np.std(y[100:] - mean) < 0.4 * np.std(y[100:])


def test_rows_with_many_columns_do_not_teach_a_noise_of_zero() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1100, 10)) @ rng.normal(size=(10, 10))
    y = x[:, 0] + np.exp(0.3 * x[:, 1]) * (1.0 + 0.5 * rng.normal(size=1100))
    model = CVGPRegressor(random_state=0, noise="constant").fit(x[:100], y[:100])
    assert model.noise_variance_ > 1e-3 * np.var(y)


def frozen() -> Kernel:
    kernel = starting_kernel("matern32", D, ard=True)
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    return kernel


def with_a_prior() -> Kernel:
    return ScaleKernel(MaternKernel(1.5, ard_num_dims=D, lengthscale_prior=GammaPrior(3.0, 6.0)))


@pytest.mark.parametrize(
    ("kernel", "num_rows", "expected"),
    [
        (starting_kernel("matern32", D, ard=True), 2 * D, [HELD_AROUND]),
        (
            starting_kernel("matern32", D, ard=True),
            2 * D + 1,
            [HELD_ABOVE, HELD_ABOVE],
        ),  # its outputscale, and its lengthscales
        (starting_kernel("matern32", D, ard=True), 100 * D, [HELD_ABOVE, HELD_ABOVE]),
        (starting_kernel("matern32", D, ard=True), 100 * D + 1, []),
        (starting_kernel("matern32", D, ard=False), D, []),
        (starting_kernel("matern32+matern12", D, ard=True), D, []),
        (starting_kernel("matern32+matern12", D, ard=True), 3 * D, 4 * [HELD_ABOVE]),
        (starting_kernel("linear", D, ard=True), 3 * D, []),
        (frozen(), D, []),
        (with_a_prior(), D, []),
    ],
)
def test_lengthscales_are_held_where_more_are_learned_than_rows_can_tell(
    kernel: Kernel, num_rows: int, expected: list[str]
) -> None:
    held = hold_if_few(kernel, num_rows, torch.randn(D, D, dtype=torch.float64), 1.0)
    assert [name.rpartition(".")[2] for name, *_ in registered_priors(held) if "held" in name] == expected


def test_the_kernel_that_was_given_stays_as_it_is() -> None:
    kernel, x = starting_kernel("matern32", D, ard=True), torch.randn(D, D, dtype=torch.float64)
    assert is_held(hold_if_few(kernel, D, x, 1.0))
    assert not is_held(kernel)


def test_lengthscales_are_held_around_those_that_a_search_begins_at() -> None:
    x = torch.tensor(np.random.default_rng(0).normal(size=(40, D)) * np.linspace(0.1, 5.0, D))
    held = hold_if_few(starting_kernel("matern32", D, ard=True), 40, x, 1.0)
    ((_, _, prior, _),) = registered_priors(held)
    np.testing.assert_allclose(prior.mean.exp(), np.sqrt(D) * x.std(0, correction=0), rtol=1e-10)


def test_a_fitted_kernel_is_not_held_and_is_saved_without_a_warning(tmp_path: Path) -> None:
    x, y = line(40, D)
    model = CVGPRegressor(random_state=0).fit(x, y)
    assert not is_held(model.model_.kernel)
    model.save(tmp_path / "line.cvgp")
    np.testing.assert_allclose(cvgp.load(tmp_path / "line.cvgp").predict(x), model.predict(x), rtol=1e-10)


@pytest.mark.parametrize("num_dims", [D, 5])
def test_a_fit_whose_lengthscales_are_held_resumes_to_the_same_model(num_dims: int, tmp_path: Path) -> None:
    x, y = line(40, num_dims + 1)
    whole = CVGPRegressor(random_state=0).fit(x, y)
    stopping = [lambda event: event.phase == "lbfgs" and event.iteration == 3]
    CVGPRegressor(random_state=0, checkpoint_dir=tmp_path, callbacks=stopping).fit(x, y)
    resumed = CVGPRegressor(random_state=0, checkpoint_dir=tmp_path).fit(x, y)
    np.testing.assert_array_equal(resumed.predict(x), whole.predict(x))
