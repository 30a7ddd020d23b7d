"""A small smooth problem, and a model that has yet to learn it."""

import numpy as np
import torch

from cvgp import CVGP
from cvgp.data.arrays import MemorySource
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.training.initialise import initial_coreset
from cvgp.training.monitor import Callback, FitEvent

NUM_ROWS, SIZE = 100, 8


def make_source(num_rows: int = NUM_ROWS, *, dims: int = 1, frequency: float = 1.5, seed: int = 0) -> MemorySource:
    """Rows of y = sin(frequency x_0) + noise of sd 0.1, with inputs between -2 and 2."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(num_rows, dims))
    y = np.sin(frequency * x[:, 0]) + 0.1 * rng.normal(size=num_rows)
    return MemorySource(torch.tensor(x), torch.tensor(y))


def make_model(source: MemorySource, size: int = SIZE, noise: float = 0.1) -> CVGP:
    x, y = source.data.x.numpy(), source.data.y.numpy()
    coreset = initial_coreset("kmeans", x, y, size, np.random.default_rng(0))
    return CVGP(coreset, make_kernel("rbf", x.shape[1]), likelihood=gaussian_likelihood(noise))


def rmse(model: CVGP, source: MemorySource) -> float:
    with torch.no_grad():
        error = model.posterior(source.data.x).mean - source.data.y
    return error.square().mean().sqrt().item()


def collect(events: list[FitEvent]) -> Callback:
    """A callback that keeps what it is told and never stops."""
    return lambda event: events.append(event)
