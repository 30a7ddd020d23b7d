"""f at new points: the global part of a coreset, and the nearest rows for what it leaves (§9.3, §9.6)."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import check_finite, check_inputs, diagonal
from cvgp.gp.neighbours.decorrelated import (
    Decorrelated,
    LocalRows,
    OrderedRows,
    given_neighbours,
    in_batches,
    localise,
)
from cvgp.gp.neighbours.global_part import GlobalPart, moments
from cvgp.gp.neighbours.search import RowIndex
from cvgp.gp.neighbours.whitened_points import WhitenedPoints
from cvgp.gp.prediction import normal

PART_BYTES = 100_000_000
"""Features of the new points and of the rows near them, at most, that are held at a time."""

NEW_NOISE = 1e-10
"""Noise variance of f at new points that others are conditioned on, as a share of the prior variance."""


class JointMoments(NamedTuple):
    """The joint posterior of f at some points."""

    f_mean: Tensor  # [n, Q]
    f_covariance: Tensor  # [n, n]


class Consulted(NamedTuple):
    """What the mean of f at some points is made of: b^T y_N of the nearest rows, and what the coreset adds."""

    near: Tensor  # [n, k], rows of the data
    b: Tensor  # [n, k], the weight of each
    coreset_part: Tensor  # [n, Q]


class NeighbourProcess:
    """The posterior of f under the model with neighbours; zero prior mean, float64.

    Parameters
    ----------
    points
        The kernel, and pseudo-inputs that were whitened with it.
    data
        The training rows.
    u
        The posterior of the global part, from the statistics of the same rows given their neighbours.
    num_neighbours
        How many nearest rows a prediction consults.
    """

    def __init__(self, points: WhitenedPoints, data: OrderedRows, u: GlobalPart, num_neighbours: int) -> None:
        if num_neighbours < 0:
            raise InvalidInputError(f"num_neighbours must be at least 0; got {num_neighbours}.")
        self.points, self.data, self.u = points, data, u
        self.num_neighbours = num_neighbours
        self.index = RowIndex(points.kernel, data.x)

    @torch.no_grad()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `[n, Q]` and variance `[n]` of f at x `[n, D]`, each point given its nearest rows and u alone."""
        x = self._checked(x)
        bytes_per_point = 8 * max(self.points.size, x.shape[1]) * (self.num_neighbours + 1)
        parts = x.split(max(1, PART_BYTES // bytes_per_point))
        found = [self._moments_of_part(part) for part in parts]
        return torch.cat([f_mean for f_mean, _ in found]), torch.cat([f_var for _, f_var in found])

    def _moments_of_part(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = [moments(part, self.u) for part in self._given_nearest(x, self.index.nearest(x, self.num_neighbours))]
        return torch.cat([f_mean for f_mean, _ in found]), torch.cat([f_var for _, f_var in found])

    def _given_nearest(self, x: Tensor, near: Tensor) -> Iterator[Decorrelated]:
        """The points x `[n, D]` given their nearest rows `[n, k]`, batch by batch."""
        touched, places = torch.unique(near, return_inverse=True)
        data = _followed_by(self.data.take(touched), x, noise=None)
        local = LocalRows(touched, len(touched) + torch.arange(len(x), device=x.device), places)
        return (part for _, part in in_batches(self.points, data, self.points.features(data.x), local))

    @torch.no_grad()
    def consulted(self, x: Tensor) -> Consulted:
        """Which rows the mean at a few points x `[n, D]` rests on, and how much of it is the coreset's."""
        x = self._checked(x)
        near = self.index.nearest(x, self.num_neighbours)
        parts = list(self._given_nearest(x, near))
        return Consulted(near, torch.cat([p.b for p in parts]), torch.cat([p.phi @ self.u.mean for p in parts]))

    @torch.no_grad()
    def joint(self, x: Tensor) -> JointMoments:
        """The joint posterior of f at x `[n, D]`: each point given the rows and the points before it that are nearest.

        It is not the product of what :meth:`moments` says: points of x are neighbours of each other too.
        """
        x = self._checked(x)
        part, A = self._chain(x)
        F = part.phi @ self.u.root  # [n, M]
        half = torch.linalg.solve_triangular(A, torch.cat([F, part.v.sqrt().diag()], 1), upper=False)  # [n, M + n]
        f_mean = torch.linalg.solve_triangular(A, part.b_y + part.phi @ self.u.mean, upper=False)
        return JointMoments(f_mean, half @ half.mT)

    @torch.no_grad()
    def sample(self, x: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draws `[S, n, Q]` from :meth:`joint`, without its covariance matrix: of u first, and then point by point."""
        x = self._checked(x)
        part, A = self._chain(x)
        M, num_outputs = self.u.mean.shape
        size = num_samples * num_outputs
        u = self.u.root @ normal((M, size), generator, x) + self.u.mean.repeat(1, num_samples)  # [M, S Q]
        innovations = part.v.sqrt()[:, None] * normal((len(x), size), generator, x)
        right = part.b_y.repeat(1, num_samples) + part.phi @ u + innovations  # [n, S Q]
        f: Tensor = torch.linalg.solve_triangular(A, right, upper=False)
        return f.reshape(len(x), num_samples, num_outputs).movedim(0, 1)

    def _chain(self, x: Tensor) -> tuple[Decorrelated, Tensor]:
        """The points after the data, with A [n, n] such that A f = b^T y_N + phi^T u + N(0, v) (§9.6).

        Row i of A is one on the diagonal, and minus the weights of the points of x that are neighbours of point i.
        """
        n, N = len(x), len(self.data.x)
        # Copies among the points leave no variance. A noise of 1e-10 keeps their precision finite, and nobody sees it.
        prior_variance = diagonal(self.points.kernel, x)
        data = _followed_by(self.data, x, noise=NEW_NOISE * prior_variance.clamp_min(torch.finfo(x.dtype).eps))
        near = RowIndex(self.points.kernel, data.x).earlier(self.num_neighbours, start=N)  # [n, k]
        local = localise(torch.arange(N, N + n, device=x.device), near)
        touched = data.take(local.touched)
        Psi = self.points.features(touched.x)
        part = given_neighbours(self.points, touched, Psi, local)
        A = torch.eye(n, dtype=x.dtype, device=x.device)
        is_new = near >= N
        A[is_new.nonzero()[:, 0], near[is_new] - N] = -part.b[is_new]
        return part, A

    def _checked(self, x: Tensor) -> Tensor:
        check_inputs(x, self.data.x)
        check_finite("x", x)
        if x.ndim != 2 or len(x) == 0:
            raise InvalidInputError(f"x must be [n, D] with at least one row; got {tuple(x.shape)}.")
        return x.to(torch.float64)


def _followed_by(data: OrderedRows, x: Tensor, noise: Tensor | None) -> OrderedRows:
    """The rows, and after them new points whose output is f and whose value is counted in no sum.

    Without a noise no point is conditioned on them.
    """
    nothing = x.new_zeros(len(x))
    precision = nothing if noise is None else noise.reciprocal()
    return OrderedRows(
        torch.cat([data.x, x]),
        torch.cat([data.y, x.new_zeros(len(x), data.y.shape[1])]),
        torch.cat([data.precision, precision]),
        torch.cat([data.log_normaliser, nothing]),
    )
