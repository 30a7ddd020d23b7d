from collections.abc import Callable

import numpy as np
import pytest
import torch
from gpytorch.kernels import CosineKernel, Kernel, RBFKernel

from cvgp import CVGP, Coreset
from cvgp.data.scaling import Scaling
from cvgp.estimators import units as scaled
from cvgp.estimators.units import ScaledGP
from cvgp.gp.kernels import make_kernel

M, D = 6, 2
rng = np.random.default_rng(2)
X = rng.normal(size=(11, D)) * [10.0, 0.1] + [100.0, 5.0]
SCALING = Scaling(np.array([100.0, 5.0]), np.array([10.0, 0.1]), np.array([-3.0]), np.array([50.0]))
SCALING2 = SCALING._replace(y_mean=np.array([-3.0, 8.0]), y_scale=np.array([50.0, 0.2]))


def ard_rbf() -> Kernel:
    kernel = make_kernel("rbf", D)
    kernel.base_kernel.lengthscale = torch.tensor([0.5, 2.0], dtype=torch.float64)
    return kernel


def make_gp(
    outputs: tuple[int, ...] = (), kernel: Callable[[], Kernel] = ard_rbf, dtype: torch.dtype = torch.float64
) -> ScaledGP:
    draws = np.random.default_rng(4)
    coreset = Coreset(draws.normal(size=(M, D)), draws.normal(size=(M, *outputs)), draws.uniform(1.0, 5.0, size=M))
    return ScaledGP(CVGP(coreset, kernel()), SCALING2 if outputs else SCALING, dtype)


def test_mean_is_the_models_in_the_users_units() -> None:
    gp = make_gp()
    with torch.no_grad():
        expected = gp.model.posterior(torch.tensor((X - [100.0, 5.0]) / [10.0, 0.1])).mean.numpy() * 50.0 - 3.0
    np.testing.assert_allclose(gp.mean(X), expected[:, None], rtol=1e-9)


def test_each_output_has_its_own_unit() -> None:
    gp = make_gp((2,))
    with torch.no_grad():
        own = gp.model.posterior(torch.tensor((X - [100.0, 5.0]) / [10.0, 0.1])).mean.numpy()
    np.testing.assert_allclose(gp.mean(X), own * [50.0, 0.2] + [-3.0, 8.0], rtol=1e-9)


def test_variance_has_the_unit_of_y_squared() -> None:
    gp = make_gp((2,))
    with torch.no_grad():
        own = gp.model.posterior(torch.tensor((X - [100.0, 5.0]) / [10.0, 0.1])).variance.numpy()
    np.testing.assert_allclose(gp.mean_and_variance(X)[1], own[:, None] * [2500.0, 0.04], rtol=1e-9)


def test_mean_beside_the_variance_is_the_mean() -> None:
    np.testing.assert_array_equal(make_gp().mean_and_variance(X)[0], make_gp().mean(X))


def test_covariance_has_the_variance_on_its_diagonal() -> None:
    gp = make_gp()
    np.testing.assert_allclose(gp.covariance(X)[:, :, 0].diagonal(), gp.mean_and_variance(X)[1][:, 0], rtol=1e-9)


@pytest.mark.parametrize("rows", [1, 4, 11])
def test_predictions_do_not_depend_on_the_chunks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mean, variance = make_gp().mean_and_variance(X)
    monkeypatch.setattr(scaled, "CHUNK_ROWS", rows)
    chunked_mean, chunked_variance = make_gp().mean_and_variance(X)
    np.testing.assert_allclose(chunked_mean, mean, rtol=1e-9)
    np.testing.assert_allclose(chunked_variance, variance, rtol=1e-10)


def test_no_more_than_a_chunk_is_predicted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled, "CHUNK_ROWS", 4)
    gp = make_gp()
    sizes: list[int] = []
    process = gp.process
    gp.process = lambda x: sizes.append(len(x)) or process(x)  # type: ignore[assignment,func-returns-value,misc,return-value]
    gp.mean(X)
    gp.mean_and_variance(X)
    assert sizes == [4, 4, 3] * 2


def test_predictions_are_float64_whatever_the_precision_inside() -> None:
    gp = make_gp(dtype=torch.float32)
    assert gp.mean(X).dtype == np.float64
    np.testing.assert_allclose(gp.mean(X), make_gp().mean(X), rtol=1e-3, atol=1e-3)


def test_noise_has_the_unit_of_each_output_squared() -> None:
    gp = make_gp((2,))
    np.testing.assert_allclose(gp.noise_variance, gp.model.noise.item() * np.array([2500.0, 0.04]))


def test_coreset_is_in_the_users_units() -> None:
    gp = make_gp()
    own, users = gp.model.coreset, gp.coreset
    np.testing.assert_allclose(users.X, own.X * [10.0, 0.1] + [100.0, 5.0])
    np.testing.assert_allclose(users.y, own.y * 50.0 - 3.0)
    np.testing.assert_array_equal(users.beta, own.beta)


def test_coreset_keeps_the_shape_of_its_outputs() -> None:
    assert make_gp((2,)).coreset.y.shape == (M, 2)


def test_lengthscales_are_in_the_users_units() -> None:
    np.testing.assert_allclose(make_gp().lengthscales, [5.0, 0.2])


def test_shared_lengthscale_is_given_for_each_column() -> None:
    gp = make_gp(kernel=lambda: make_kernel("rbf", D, ard=False))  # whose lengthscale begins at one
    np.testing.assert_allclose(gp.lengthscales, [10.0, 0.1])


@pytest.mark.parametrize("name", ["lengthscales"])
def test_kernel_without_one_set_of_lengthscales_has_no(name: str) -> None:
    gp = make_gp(kernel=lambda: (RBFKernel() + CosineKernel()).double())
    assert getattr(gp, name) is None
