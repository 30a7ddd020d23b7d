import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import LinearMean

from cvgp import CVGPRegressor
from cvgp.gp.kernels import square_matrix
from tests.flat_options import make_regressor

rng = np.random.default_rng(8)
X = rng.normal(size=(60, 2)) * [1.0, 3.0] + [0.0, 5.0]
F = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1]
Y = F - F.mean() + 0.1 * rng.normal(size=60)
UNITS = [(2.0**13, 2.0**20), (2.0**-13, 2.0**-20)]  # powers of two: no digit is lost on the way
FITS = {
    "exact": {},
    "one lengthscale": {"ard": False, "n_coreset": 12},
    "adam": {"n_coreset": 12, "solver": "adam"},
}


def fitted(x: np.ndarray = X, y: np.ndarray = Y, **options: object) -> CVGPRegressor:
    return make_regressor(**({"max_iter": 15, "random_state": 0} | options)).fit(x, y)


@pytest.mark.parametrize("kind", FITS)
@pytest.mark.parametrize(("x_unit", "y_unit"), UNITS)
def test_units_do_not_matter_without_standardising(x_unit: float, y_unit: float, kind: str) -> None:
    plain = fitted(standardize=False, **FITS[kind])
    model = fitted(x_unit * X, y_unit * Y, standardize=False, **FITS[kind])
    mean, sd = model.predict(x_unit * X, return_std=True)
    expected, expected_sd = plain.predict(X, return_std=True)
    np.testing.assert_allclose(mean / y_unit, expected, atol=1e-6)
    np.testing.assert_allclose(sd / y_unit, expected_sd, rtol=1e-6)


@pytest.mark.parametrize(("x_unit", "y_unit"), UNITS)
def test_without_standardising_centred_data_give_the_standardised_fit(x_unit: float, y_unit: float) -> None:
    standardised, plain = (
        fitted(x_unit * X, y_unit * (Y - Y.mean()), standardize=choice, max_iter=None) for choice in (True, False)
    )
    np.testing.assert_allclose(plain.predict(x_unit * X), standardised.predict(x_unit * X), atol=1e-2 * y_unit)
    np.testing.assert_allclose(plain.feature_importances_, standardised.feature_importances_, atol=0.05)


@pytest.mark.parametrize("n_coreset", ["auto", 20])
def test_a_linear_mean_learns_inputs_of_any_size(n_coreset: object) -> None:
    mean = LinearMean(2)
    mean.weights.data = torch.tensor([[0.9], [-1.3]])  # as GPyTorch might draw them
    model = fitted(1e4 * X, Y, mean=mean, standardize=False, n_coreset=n_coreset, max_iter=None)
    assert np.std(model.predict(1e4 * X) - F) < 0.2 * np.std(F)


@pytest.mark.parametrize("y_unit", [1e-6, 1e6])
def test_the_noise_of_an_own_kernel_is_in_proportion_to_the_data(y_unit: float) -> None:
    kernel = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2))
    kernel.outputscale = y_unit**2
    model = fitted(X, y_unit * Y, kernel=kernel, standardize=False, max_iter=None)
    assert np.sqrt(np.mean((model.predict(X) / y_unit - Y) ** 2)) < 0.3
    assert np.sqrt(model.noise_variance_) / y_unit < 0.3


# Outliers in X


@pytest.mark.parametrize("far", [1e6, 1e12])
@pytest.mark.parametrize("size", ["auto", 20])
def test_one_value_far_away_does_not_spoil_a_column(far: float, size: object) -> None:
    x = X.copy()
    x[5, 0] = far
    model = fitted(x, Y, n_coreset=size, max_iter=40)
    others = np.arange(len(x)) != 5
    assert np.sqrt(np.mean((model.predict(x) - F + F.mean())[others] ** 2)) < 0.2  # a constant has 1.1
    assert model.feature_importances_[0] > 0.2


@pytest.mark.parametrize("name", ["matern32", "rq", "linear", "periodic"])
@pytest.mark.parametrize("options", [{}, {"standardize": False}], ids=str)
def test_the_kernel_in_the_units_of_the_data_has_the_values_of_the_model(name: str, options: dict[str, object]) -> None:
    model = fitted(50.0 * X, 1e3 * np.sin(X[:, 0]), kernel=name, max_iter=3, **options)
    scaling = model._gp.scaling
    inner = torch.as_tensor(scaling.scale_x(50.0 * X))
    # A linear kernel of centred inputs is no linear kernel of others.
    outer = torch.as_tensor(50.0 * X - (scaling.x_mean if name == "linear" else 0.0))
    with torch.no_grad():
        expected = scaling.y_scale[0] ** 2 * square_matrix(model.model_.kernel, inner)
        torch.testing.assert_close(square_matrix(model.kernel_, outer), expected)
