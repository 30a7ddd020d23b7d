"""Models and rows that several tests of the BoTorch adapter share."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from torch import Tensor

from cvgp import CVGPRegressor
from cvgp.adapters.botorch import CVGPModel
from cvgp.errors import CVGPWarning

DOUBLE: dict[str, Any] = {"dtype": torch.float64}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def gaussian_parts(num_dims: int = 2, outputs: tuple[int, ...] = ()) -> tuple[ScaleKernel, ConstantMean, Any]:
    """A kernel, a mean and a likelihood whose parameters all differ from their defaults."""
    batch = torch.Size(outputs)
    kernel = ScaleKernel(MaternKernel(2.5, ard_num_dims=num_dims, batch_shape=batch), batch_shape=batch).double()
    mean = ConstantMean(batch_shape=batch).double()
    likelihood = GaussianLikelihood(batch_shape=batch).double()
    with torch.no_grad():
        for parameter in (*kernel.parameters(), *mean.parameters(), *likelihood.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return kernel, mean, likelihood


@pytest.fixture
def make_model() -> Callable[..., CVGPModel]:
    def make(num_points: int = 12, outputs: int = 1, own: bool = False, **transforms: Any) -> CVGPModel:
        X = torch.rand(num_points, 2, **DOUBLE)
        y = torch.stack([torch.sin(3 * X[:, 0] + j) + X[:, 1] for j in range(outputs)], -1)
        w = 5 + 50 * torch.rand(num_points, outputs if own else 1, **DOUBLE)
        return CVGPModel(X, y, w, *gaussian_parts(2, (outputs,) if own else ()), **transforms)

    return make


@pytest.fixture(scope="session")
def regressors() -> dict[str, CVGPRegressor]:
    """Fitted estimators, by what is special about each."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 2))
    f = np.sin(2 * X[:, 0]) * X[:, 1]
    plain, uneven = f + 0.1 * rng.standard_normal(200), f + np.exp(X[:, 0] - 1) * rng.standard_normal(200)
    common: dict[str, Any] = {"n_coreset": 25, "max_iter": 30, "random_state": 0, "neighbors": 0, "noise": "constant"}
    with_neighbours = {"n_coreset": 10, "neighbors": 5, "noise": "constant", "random_state": 0}
    with pytest.warns(CVGPWarning, match="one value in all rows"):
        without_third = CVGPRegressor(**common).fit(np.c_[X, np.full(200, 3.0)], plain)
    return {
        "constant column": without_third,
        "constant noise": CVGPRegressor(**common).fit(X, 100 + 20 * plain),
        "noise of x": CVGPRegressor(**common | {"noise": "input-dependent"}).fit(X, uneven),
        "warped": CVGPRegressor(**common | {"inputs": "rank"}).fit(np.exp(X), plain),
        "two outputs": CVGPRegressor(**common).fit(X, np.stack([1000 * plain, uneven], -1)),
        "units of the data": CVGPRegressor(**common | {"standardize": False, "mean": "constant"}).fit(X, 5 + plain),
        "neighbours": CVGPRegressor(**with_neighbours).fit(X, plain),
    }


def rows(regressor: CVGPRegressor, count: int) -> tuple[Tensor, Tensor]:
    """New rows for an estimator."""
    X = torch.rand(count, regressor.n_features_in_, **DOUBLE) * 3 - 1.5
    outputs = np.reshape(regressor.predict(X.numpy()), (count, -1))
    return X, torch.tensor(outputs) + torch.rand(outputs.shape, **DOUBLE)
