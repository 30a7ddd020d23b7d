r"""How near two inputs are, as a kernel sees them (§9.4).

Two values of f are near where they are correlated: f(x) leaves the share :math:`1 - \mathrm{corr}(x, x')^2` of the
variance of f(x') unexplained. A stationary kernel falls with the distance of inputs in lengthscales, so this distance
gives the same order and is cheaper. For every other kernel the correlations are computed. Blocks are in float32: any
set of rows is a valid set of neighbours, so a rounded distance costs nothing but the order of rows that are as near.
"""

from collections.abc import Iterable, Iterator

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from cvgp.gp.kernels import cross_matrix, diagonal

GROUPS = 16
"""Columns of a block of distances are a multiple of this, where they can be."""


class Distance:
    """Squared distances in lengthscales, up to a constant of each query."""

    def __init__(self, x: Tensor, inverse_lengthscale: Tensor) -> None:
        self._scale = inverse_lengthscale.to(torch.float64)
        self._centre = (x.to(torch.float64) * self._scale).mean(0)
        self.z = self.place(x)  # [N, D], float64
        # |z|^2 - 2 q^T z is one product of (q, 1); the columns that fill up the last group are infinitely far.
        lifted = torch.cat([-2.0 * self.z, self.z.square().sum(1, keepdim=True)], 1).to(torch.float32)
        filling = lifted.new_zeros(-len(x) % GROUPS, lifted.shape[1])
        filling[:, -1] = torch.inf
        self._lifted = torch.cat([lifted, filling]).mT.contiguous()  # [D + 1, N and filling]

    def place(self, x: Tensor) -> Tensor:
        """Inputs in lengthscales from the centre of the rows."""
        return x.to(torch.float64) * self._scale - self._centre

    def blocks(self, queries: Iterable[tuple[Tensor, int]]) -> Iterator[Tensor]:
        """From each x [n, D] to as many of the first rows as are asked for, and to those that fill up the last group.

        A block lies where the one before it lay: to ask the system for new memory takes longer than to fill it.
        """
        memory = self._lifted.new_empty(0)
        for x, num_rows in queries:
            lifted = self._lifted[:, : num_rows + -num_rows % GROUPS]
            points = self.place(x).to(torch.float32)
            size = len(x) * lifted.shape[1]
            if len(memory) < size:
                memory = self._lifted.new_empty(size)
            block = memory[:size].view(len(x), -1)
            yield torch.mm(torch.cat([points, points.new_ones(len(x), 1)], 1), lifted, out=block)


class Correlation:
    """Minus the squared correlation of f, up to a factor of each query."""

    def __init__(self, x: Tensor, kernel: Kernel) -> None:
        self._kernel = kernel
        self._x = x.to(torch.float32)
        self._variance = diagonal(kernel, self._x)  # [N]

    def blocks(self, queries: Iterable[tuple[Tensor, int]]) -> Iterator[Tensor]:
        """From each x [n, D] to as many of the first rows as are asked for."""
        for x, num_rows in queries:
            K = cross_matrix(self._kernel, x.to(torch.float32), self._x[:num_rows])
            floor = torch.finfo(K.dtype).tiny  # where f is constant, it explains nothing
            yield K.square().div_(self._variance[:num_rows].clamp_min(floor)).neg_()
