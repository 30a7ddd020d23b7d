r"""f at new points: the global trend of a coreset, corrected by the nearest rows (§9.3, §9.6).

The trend is :math:`\psi^T u` with :math:`u \sim N(0, I)` a priori. Under the model
:math:`p(u | y) = N(C^{-1} b, C^{-1})` with :math:`C = I + \Phi`. A coreset has the same mean, and a covariance that M
weights can express: :math:`I - L_K^T A L_K`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.statistics import Statistics
from cvgp.gp.kernels import check_finite, check_inputs, cross_matrix, square_matrix
from cvgp.gp.linalg import inverse_lower, plus_identity, safe_cholesky, symmetrize
from cvgp.gp.neighbours.conditionals import (
    LocalRows,
    OrderedRows,
    VecchiaRows,
    WhitenedPoints,
    in_batches,
)
from cvgp.gp.neighbours.search import RowIndex


class InducingPosterior(NamedTuple):
    """q(u) = N(mean, root root^T); all float64."""

    mean: Tensor  # [M, Q]
    root: Tensor  # [M, M]


def inducing_posterior(statistics: Statistics) -> InducingPosterior:
    """The posterior of u under the model, from the statistics of Vecchia rows."""
    root = inverse_lower(safe_cholesky(plus_identity(statistics.Phi), "C = I + Phi")).mT
    return InducingPosterior(root @ (root.mT @ statistics.b), root)


def inducing_prior(points: WhitenedPoints, num_outputs: int) -> InducingPosterior:
    """The prior N(0, I) of u, which is empty without pseudo-inputs."""
    M = points.size
    return InducingPosterior(points.L_K_inv.new_zeros(M, num_outputs), plus_identity(points.L_K_inv.new_zeros(M, M)))


def moments(part: VecchiaRows, u: InducingPosterior) -> tuple[Tensor, Tensor]:
    """Mean phi^T m + eta^T y_N `[n, Q]` and variance v + phi^T S phi `[n]` of f, with u integrated out (§9.3)."""
    return part.eta_y + part.phi @ u.mean, part.v + (part.phi @ u.root).square().sum(1)


PART_BYTES = 100_000_000
"""Features of the new points and of the rows near them, at most, that are held at a time."""


class NeighbourProcess:
    """The posterior of f under the model with neighbours; zero prior mean, float64.

    Parameters
    ----------
    points
        The kernel, and pseudo-inputs that were whitened with it.
    data
        The training rows.
    u
        The posterior of u, from the statistics of the same rows given their neighbours.
    num_neighbours
        How many nearest rows a prediction consults.
    """

    def __init__(self, points: WhitenedPoints, data: OrderedRows, u: InducingPosterior, num_neighbours: int) -> None:
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

    def _given_nearest(self, x: Tensor, near: Tensor) -> Iterator[VecchiaRows]:
        """The points x `[n, D]` given their nearest rows `[n, k]`, batch by batch."""
        touched, places = torch.unique(near, return_inverse=True)
        data = _followed_by(self.data.take(touched), x)
        local = LocalRows(touched, len(touched) + torch.arange(len(x), device=x.device), places)
        return (part for _, part in in_batches(self.points, data, self.points.features(data.x), local))

    @torch.no_grad()
    def covariance(self, x: Tensor) -> Tensor:
        r"""Joint covariance of f `[n, n]` at x `[n, D]`, whose diagonal is the variance of :meth:`moments` (§9.6).

        Point i is predicted by :math:`\eta_i^T y_N + \phi_i^T u` from its own nearest rows. The errors of these
        predictions are linear in f and y, so that their covariance follows from the kernel, whichever rows two points
        share, and does not depend on the order of the points. The cost is that of the kernel matrix among all rows
        that are near some point.
        """
        x = self._checked(x)
        near = self.index.nearest(x, self.num_neighbours)
        touched, places = torch.unique(near, return_inverse=True)
        parts = list(self._given_nearest(x, near))
        eta, phi, v = (torch.cat(values) for values in zip(*((p.eta, p.phi, p.v) for p in parts), strict=True))
        K = square_matrix(self.points.kernel, x) + self._from_rows(x, eta, touched, places)
        F = phi @ self.u.root  # [n, M]
        f_cov = K - phi @ phi.mT + F @ F.mT
        f_cov.diagonal().copy_(v + F.square().sum(1))
        return f_cov

    def _from_rows(self, x: Tensor, eta: Tensor, touched: Tensor, places: Tensor) -> Tensor:
        """The nearest rows' part of the covariance of f: W (K_NN + 1 / rho) W^T - W K_Nx - K_xN W^T [n, n].

        W [n, T] holds the weights eta of each point's neighbours, as places among the rows that are touched.
        """
        n, T = len(x), len(touched)
        data, points = self.data.take(touched), torch.arange(n, device=x.device)[:, None].expand_as(places)
        noise = torch.where(data.precision > 0, data.precision.reciprocal(), 0.0)  # a row without weight has eta = 0
        entries = torch.stack([points.reshape(-1), places.reshape(-1)])
        W = torch.sparse_coo_tensor(entries, eta.reshape(-1), (n, T), check_invariants=False)
        total = x.new_zeros(n, n)
        size = max(1, PART_BYTES // (8 * max(T, 1)))
        for start in range(0, T, size):
            later = torch.arange(start, T, device=x.device)  # this block of rows, and those after it
            block = later[:size]
            K = cross_matrix(self.points.kernel, torch.cat([data.x[later], x]), data.x[block])
            K[len(block) :] *= 2.0  # each block below the diagonal counts for its mirror image too
            W_block, W_later = W.index_select(1, block).to_dense(), W.index_select(1, later)
            total += (torch.sparse.mm(W_later, K[:-n]) - K[-n:] + noise[block] * W_block) @ W_block.mT
        return symmetrize(total)

    def _checked(self, x: Tensor) -> Tensor:
        check_inputs(x, self.data.x)
        check_finite("x", x)
        if x.ndim != 2 or len(x) == 0:
            raise InvalidInputError(f"x must be [n, D] with at least one row; got {tuple(x.shape)}.")
        return x.to(torch.float64)


def _followed_by(data: OrderedRows, x: Tensor) -> OrderedRows:
    """The rows, followed by new points of precision zero, on which no point is conditioned."""
    nothing = x.new_zeros(len(x))
    return OrderedRows(
        torch.cat([data.x, x]),
        torch.cat([data.y, x.new_zeros(len(x), data.y.shape[1])]),
        torch.cat([data.precision, nothing]),
        torch.cat([data.log_normalizer, nothing]),
    )
