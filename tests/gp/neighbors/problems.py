"""Small problems with neighbors: rows, pseudo-inputs and a kernel, as tensors and as dense NumPy matrices."""

from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from cvgp.gp.bounds import whitener
from cvgp.gp.kernels import make_kernel, square_matrix
from cvgp.gp.vecchia import (
    OrderedRows,
    RowMoments,
    WhitenedPoints,
    no_points,
    order_rows,
)
from tests import reference as ref


@dataclass(frozen=True)
class Problem:
    kernel: Kernel
    X_c: Tensor
    x: Tensor
    y: Tensor
    noise: Tensor
    sample_weight: Tensor | None = None

    @property
    def points(self) -> WhitenedPoints:
        if len(self.X_c) == 0:
            return no_points(self.kernel, self.x)
        return WhitenedPoints(self.kernel, self.X_c, whitener(square_matrix(self.kernel, self.X_c)))

    @property
    def data(self) -> OrderedRows:
        return order_rows(self.x, self.y, self.noise, sample_weight=self.sample_weight)

    @property
    def effective_noise(self) -> ref.Noise:
        weight = 1.0 if self.sample_weight is None else self.sample_weight
        return (self.noise / weight).numpy()

    def covariance(self, x: Tensor | None = None) -> ref.Array:
        with torch.no_grad():
            return square_matrix(self.kernel, self.x if x is None else x).numpy()

    def features(self, x: Tensor | None = None) -> ref.Array:
        with torch.no_grad():
            return self.points.features(self.x if x is None else x).numpy()

    def model(self, neighbors: Tensor) -> ref.Array:
        """Covariance of all outputs under the model."""
        return ref.neighbor_model(self.covariance(), self.features(), self.effective_noise, as_lists(neighbors))


def make_problem(
    *,
    N: int = 14,
    M: int = 4,
    D: int = 2,
    outputs: int | None = None,
    kernel: str = "matern32",
    noise: float | list[float] = 0.3,
    weights: bool = False,
    seed: int = 3,
) -> Problem:
    rng = np.random.default_rng(seed)
    made = make_kernel(kernel, D)
    if kernel != "linear":
        for part in getattr(made.base_kernel, "kernels", [made.base_kernel]):
            part.lengthscale = torch.linspace(0.7, 1.6, D, dtype=torch.float64)[None]
        made.outputscale = torch.tensor(1.4, dtype=torch.float64)
    columns = () if outputs is None else (outputs,)
    x, X_c, y = rng.normal(size=(N, D)), rng.normal(size=(M, D)), rng.normal(size=(N, *columns))
    weight = torch.tensor(rng.integers(1, 4, size=N).astype(float)) if weights else None
    tensors = (torch.tensor(values, dtype=torch.float64) for values in (X_c, x, y, noise))
    return Problem(made, *tensors, weight)


def all_before(N: int) -> Tensor:
    """Every row before each row, and -1 in the place of the others."""
    rows = torch.arange(N)
    return torch.where(rows < rows[:, None], rows, -1)


def some_before(N: int, k: int, seed: int = 0) -> Tensor:
    """Up to k random rows before each row."""
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(i)[:k] for i in range(N)]
    return torch.tensor(np.array([np.pad(c, (0, k - len(c)), constant_values=-1) for c in chosen]), dtype=torch.int64)


def as_lists(neighbors: Tensor) -> list[list[int]]:
    return [[j for j in line if j >= 0] for line in neighbors.tolist()]


def log_densities(data: OrderedRows, given: RowMoments) -> Tensor:
    """Log p(y_i) `[N]` in nats, summed over outputs, where f_i has these moments; a row of weight c is c rows."""
    num_outputs = data.y.shape[1]
    rho_v = data.precision * given.f_var
    squares = (data.y - given.f_mean).square().sum(1) * data.precision / (1.0 + rho_v)
    return num_outputs * (data.log_normalizer - 0.5 * rho_v.log1p()) - 0.5 * squares
