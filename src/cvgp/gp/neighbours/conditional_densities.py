r"""The density of each row given rows that it has no part in (§9.5).

:func:`earlier_moments` has f at each row given *all* rows before it: its neighbours directly, and the others through u.
The densities that follow are the factors of the model's marginal likelihood, and sum to its logarithm. No row has a
part in its own: what they say of the kernel, of the noise and of the use of neighbours is honest, as far as kernel and
noise were learned elsewhere. Without pseudo-points they are the conditionals p(y_i | y_N) of the kernel (Vecchia).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds.statistics import Statistics
from cvgp.gp.linalg import plus_identity, safe_cholesky
from cvgp.gp.neighbours.decorrelated import Decorrelated, OrderedRows, check_neighbours, decorrelate, gather_part
from cvgp.gp.neighbours.whitened_points import WhitenedPoints

BLOCK_ROWS = 256
"""Rows, at least, between two updates of the posterior of u."""


class RowMoments(NamedTuple):
    """Mean and variance of f at each row, in the order of the rows."""

    f_mean: Tensor  # [N, Q]
    f_var: Tensor  # [N]

    def last(self, count: int) -> "RowMoments":
        """Those of the last rows, at most so many."""
        first = max(len(self.f_var) - count, 0)
        return RowMoments(self.f_mean[first:], self.f_var[first:])


@torch.no_grad()
def earlier_moments(
    points: WhitenedPoints, data: OrderedRows, neighbours: Tensor, before: Statistics | None = None
) -> tuple[RowMoments, Statistics]:
    """F at each row given all rows before it, in O(N M^2) beyond the decorrelated rows (§9.5).

    The statistics of all rows come from the same pass.

    Parameters
    ----------
    points, data
        The kernel, and all rows.
    neighbours
        `[n, k]`: those of the last n rows, which are the rows that are asked for.
    before
        The statistics of the rows before these; needed where there are any.
    """
    start = len(data.x) - len(neighbours)
    check_neighbours(neighbours, len(data.x), start)
    total = Statistics.of_nothing(points.size, data.y.shape[1], data.x.device) if before is None else before
    found = []
    for rows, part in _in_blocks(points, data, neighbours, start):
        here = data.take(rows)
        found.append(_within_block(total, part, here))
        total = total.merge(gather_part(here, part))
    moments = RowMoments(torch.cat([f_mean for f_mean, _ in found]), torch.cat([f_var for _, f_var in found]))
    return moments, total


def _within_block(before: Statistics, part: Decorrelated, here: OrderedRows) -> RowMoments:
    """Each row of a block given u as it is known before the block, N(C^-1 b, C^-1), and given the rows before it.

    In units of their noise the rows of the block have the covariance H = I + Phi~ C^-1 Phi~^T = L_H L_H^T, and
    L_H^-1 turns them into independent innovations. Z is their covariance with f, of which row i uses those before it.
    """
    L_C = safe_cholesky(plus_identity(before.Phi), "C = I + Phi")
    root = (here.precision / (1.0 + here.precision * part.v)).sqrt()  # [n], one over the noise that is left
    F = torch.linalg.solve_triangular(L_C, part.phi.mT, upper=False)  # [M, n]
    F_weighted, target = F * root, (here.y - part.b_y) * root[:, None]  # [M, n] and [n, Q]
    m = torch.linalg.solve_triangular(L_C, before.b, upper=False)  # [M, Q], whitened mean
    L_H = safe_cholesky(plus_identity(F_weighted.mT @ F_weighted), "H = I + Phi C^-1 Phi^T")
    innovations = torch.linalg.solve_triangular(L_H, target - F_weighted.mT @ m, upper=False)  # [n, Q]
    Z = torch.linalg.solve_triangular(L_H, F_weighted.mT @ F, upper=False).triu(1)  # [n, n], rows j before columns i
    f_mean = part.b_y + F.mT @ m + Z.mT @ innovations
    f_var = part.v + (F.square().sum(0) - Z.square().sum(0)).clamp_min(0.0)
    return RowMoments(f_mean, f_var)


def log_densities(data: OrderedRows, given: RowMoments) -> Tensor:
    """Log p(y_i) `[N]` in nats, summed over outputs, where f_i has these moments; a row of weight c is c rows."""
    num_outputs = data.y.shape[1]
    rho_v = data.precision * given.f_var
    squares = (data.y - given.f_mean).square().sum(1) * data.precision / (1.0 + rho_v)
    return num_outputs * (data.log_normaliser - 0.5 * rho_v.log1p()) - 0.5 * squares


def _in_blocks(
    points: WhitenedPoints, data: OrderedRows, neighbours: Tensor, start: int
) -> Iterator[tuple[Tensor, Decorrelated]]:
    """The decorrelated rows in their order, in blocks of about M rows, so that updates cost no more than rows."""
    size = max(BLOCK_ROWS, points.size)
    held: list[tuple[Tensor, Decorrelated]] = []
    for rows, part in decorrelate(points, data, torch.arange(start, len(data.x), device=data.x.device), neighbours):
        held.append((rows, part))
        if sum(len(rows) for rows, _ in held) >= size:
            yield from _evenly(held, size)
            held = []
    if held:
        yield from _evenly(held, size)


def _evenly(held: list[tuple[Tensor, Decorrelated]], size: int) -> Iterator[tuple[Tensor, Decorrelated]]:
    """Join parts, and split them into blocks of at least `size` rows, where there are so many."""
    rows = torch.cat([rows for rows, _ in held])
    columns = [torch.cat(column) for column in zip(*(part for _, part in held), strict=True)]
    count = max(1, len(rows) // size)
    pieces = zip(rows.tensor_split(count), *(column.tensor_split(count) for column in columns), strict=True)
    return ((rows, Decorrelated(*piece)) for rows, *piece in pieces)
