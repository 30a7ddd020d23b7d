"""Small problems for tests of fitting."""

import numpy as np
import torch

from cvgp import CVGP
from cvgp.data.rows import Array, Rows
from cvgp.data.source import MemorySource
from cvgp.fitting.size import initial_coreset
from cvgp.gp.kernels import gaussian_likelihood, make_kernel


def make_source(num_rows: int = 100, *, dims: int = 1, frequency: float = 1.5, seed: int = 0) -> MemorySource:
    """Rows of y = sin(frequency x_0) + noise of sd 0.1, with inputs between -2 and 2."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(num_rows, dims))
    y = np.sin(frequency * x[:, 0]) + 0.1 * rng.normal(size=num_rows)
    return MemorySource(torch.tensor(x), torch.tensor(y))


def make_model(source: MemorySource, size: int = 8, noise: float = 0.1) -> CVGP:
    x, y = source.data.x.numpy(), source.data.y.numpy()
    kernel = make_kernel("rbf", x.shape[1])
    coreset = initial_coreset("kmeans", x, y, size, np.random.default_rng(0), kernel=kernel)
    return CVGP(coreset, kernel, likelihood=gaussian_likelihood(noise))


def make_rows(num_rows: int = 600, *, dims: int = 2, noise: float = 0.1, seed: int = 0) -> Rows[Array]:
    """Rows in the user's units: a smooth function of the first column."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(num_rows, dims))
    y = np.sin(2.0 * x[:, :1]) + noise * rng.normal(size=(num_rows, 1))
    return Rows(x, y)


def rmse(model: CVGP, source: MemorySource) -> float:
    with torch.no_grad():
        error = model.posterior(source.data.x).mean - source.data.y
    return error.square().mean().sqrt().item()
