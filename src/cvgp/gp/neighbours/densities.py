r"""The density of each row given other rows: to judge a model (§9.5) and to learn kernel and noise (§9.7).

:func:`sequential_moments` gives f at each row given *all* rows before it: its neighbours directly, the others through
u. The densities that follow are the factors of the model's marginal likelihood. No row contributes to its own density,
so they judge the kernel, the noise and the use of neighbours fairly, if kernel and noise were learned elsewhere.
Without pseudo-points they are the kernel's conditionals p(y_i | y_N) (Vecchia).

:func:`expected_log_density` is the objective. With a fixed q(u) = N(m, S), in coordinates of unit prior covariance, the
bound on the log marginal likelihood is

.. math:: \sum_i E_q \log N(y_i \mid \phi_i^T u + \eta_i^T y_N, \; v_i + 1/\rho_i) - KL(q(u) \,\|\, p(u)).

The KL depends on neither kernel nor noise. The sum is over rows, so a uniform sample of rows, scaled by N over its
size, estimates it without bias. At the posterior of u its gradient is that of the log marginal likelihood.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds.statistics import Statistics
from cvgp.gp.linalg import plus_identity, safe_cholesky
from cvgp.gp.neighbours.conditionals import (
    LocalRows,
    OrderedRows,
    VecchiaRows,
    WhitenedPoints,
    block_statistics,
    check_neighbours,
    vecchia_blocks,
    vecchia_rows,
)
from cvgp.gp.neighbours.prediction import InducingPosterior

BLOCK_ROWS = 256
"""Fewest rows between two updates of the posterior of u."""


class RowMoments(NamedTuple):
    """Mean and variance of f at each row, in the order of the rows."""

    f_mean: Tensor  # [N, Q]
    f_var: Tensor  # [N]

    def last(self, count: int) -> "RowMoments":
        """The moments of the last `count` rows, or of all if there are fewer."""
        first = max(len(self.f_var) - count, 0)
        return RowMoments(self.f_mean[first:], self.f_var[first:])


@torch.no_grad()
def sequential_moments(
    points: WhitenedPoints, data: OrderedRows, neighbours: Tensor, before: Statistics | None = None
) -> tuple[RowMoments, Statistics]:
    """Moments of f at each row given all rows before it, in O(N M^2) beyond the conditionals (§9.5).

    The statistics of all rows come from the same pass.

    Parameters
    ----------
    points, data
        The kernel, and all rows.
    neighbours
        Neighbours `[n, k]` of the last n rows, whose moments are returned.
    before
        The statistics of the rows before these, if there are any.
    """
    start = len(data.x) - len(neighbours)
    check_neighbours(neighbours, len(data.x), start)
    total = Statistics.zeros(points.size, data.y.shape[1], data.x.device) if before is None else before
    found = []
    for rows, part in _in_blocks(points, data, neighbours, start):
        here = data.take(rows)
        found.append(_within_block(total, part, here))
        total = total.merge(block_statistics(here, part))
    moments = RowMoments(torch.cat([f_mean for f_mean, _ in found]), torch.cat([f_var for _, f_var in found]))
    return moments, total


def _within_block(before: Statistics, part: VecchiaRows, here: OrderedRows) -> RowMoments:
    """Each row of a block given u as it is known before the block, N(C^-1 b, C^-1), and given the rows before it.

    In units of their noise the rows of the block have the covariance H = I + Phi~ C^-1 Phi~^T = L_H L_H^T, and
    L_H^-1 turns them into independent innovations. Z is their covariance with f, of which row i uses those before it.
    """
    L_C = safe_cholesky(plus_identity(before.Phi), "C = I + Phi")
    root = (here.precision / (1.0 + here.precision * part.v)).sqrt()  # [n], one over the remaining noise
    F = torch.linalg.solve_triangular(L_C, part.phi.mT, upper=False)  # [M, n]
    F_weighted, target = F * root, (here.y - part.eta_y) * root[:, None]  # [M, n] and [n, Q]
    m = torch.linalg.solve_triangular(L_C, before.b, upper=False)  # [M, Q], whitened mean
    L_H = safe_cholesky(plus_identity(F_weighted.mT @ F_weighted), "H = I + Phi C^-1 Phi^T")
    innovations = torch.linalg.solve_triangular(L_H, target - F_weighted.mT @ m, upper=False)  # [n, Q]
    Z = torch.linalg.solve_triangular(L_H, F_weighted.mT @ F, upper=False).triu(1)  # [n, n], rows j before columns i
    f_mean = part.eta_y + F.mT @ m + Z.mT @ innovations
    f_var = part.v + (F.square().sum(0) - Z.square().sum(0)).clamp_min(0.0)
    return RowMoments(f_mean, f_var)


def _in_blocks(
    points: WhitenedPoints, data: OrderedRows, neighbours: Tensor, start: int
) -> Iterator[tuple[Tensor, VecchiaRows]]:
    """The Vecchia rows in order, in blocks of about M rows, so that updates cost no more than rows."""
    size = max(BLOCK_ROWS, points.size)
    held: list[tuple[Tensor, VecchiaRows]] = []
    for rows, part in vecchia_blocks(points, data, torch.arange(start, len(data.x), device=data.x.device), neighbours):
        held.append((rows, part))
        if sum(len(rows) for rows, _ in held) >= size:
            yield from _evenly(held, size)
            held = []
    if held:
        yield from _evenly(held, size)


def _evenly(held: list[tuple[Tensor, VecchiaRows]], size: int) -> Iterator[tuple[Tensor, VecchiaRows]]:
    """Join parts, and split them into blocks of at least `size` rows where possible."""
    rows = torch.cat([rows for rows, _ in held])
    columns = [torch.cat(column) for column in zip(*(part for _, part in held), strict=True)]
    count = max(1, len(rows) // size)
    pieces = zip(rows.tensor_split(count), *(column.tensor_split(count) for column in columns), strict=True)
    return ((rows, VecchiaRows(*piece)) for rows, *piece in pieces)


def expected_log_density(points: WhitenedPoints, data: OrderedRows, local: LocalRows, u: InducingPosterior) -> Tensor:
    """Sum of E_q log p(y_i | y_N, u) over some rows, in nats; differentiable in kernel and noise.

    Parameters
    ----------
    points
        The kernel, and pseudo-inputs that were whitened with it.
    data
        All rows involved, with the present noise.
    local
        The rows to sum over and their neighbours: earlier rows, or any others for a composite likelihood.
    u
        The posterior of u, held fixed.
    """
    part = vecchia_rows(points, data, points.features(data.x), local)
    here = data.take(local.rows)
    num_outputs = here.y.shape[1]
    rho_v = here.precision * part.v
    f_mean = part.eta_y + part.phi @ u.mean  # [n, Q]
    f_var = (part.phi @ u.root).square().sum(1)  # [n], from u alone
    squares = (here.y - f_mean).square().sum(1) + num_outputs * f_var
    normalizer = num_outputs * (here.log_normalizer - 0.5 * rho_v.log1p())
    return (normalizer - 0.5 * here.precision / (1.0 + rho_v) * squares).sum()
