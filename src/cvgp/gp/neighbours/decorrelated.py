r"""Rows without what their neighbours say of them: features, outputs and noise that are independent given u (§9.1).

The coreset's features :math:`\psi = L_K^{-1} k_c(x)` carry the global part :math:`\psi^T u` of f, with
:math:`u \sim N(0, I)`. What it leaves has the covariance :math:`C = k - \psi^T \psi`. With the weights b and the
variance v of :func:`~cvgp.gp.neighbours.conditionals.condition_on_neighbours`, row i is

.. math:: y_i - b_i^T y_N \sim N(\phi_i^T u, \; v_i + 1 / \rho_i), \qquad \phi_i = \psi_i - \Psi_N^T b_i,

a row with features :math:`\phi_i` and more noise. So the sums over rows are the
:class:`~cvgp.gp.bounds.statistics.Statistics` of any other rows, and the best coreset follows from them as it always
does. No variance is left unexplained: in these sums `kk` is the trace of `Phi`, and the bound with a full covariance
(:func:`cvgp.gp.bounds.solve_titsias`) is the model's log marginal likelihood.
"""

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.statistics import Statistics, gather_whitened, weigh
from cvgp.gp.kernels import cross_matrix
from cvgp.gp.neighbours.conditionals import condition_on_neighbours
from cvgp.gp.neighbours.whitened_points import WhitenedPoints

TABLE_BYTES = 1_000_000_000
"""Features of all rows that a block of rows and its neighbours touch, at most."""

BATCH_BYTES = 16_000_000
"""Features that are gathered at a time: few batches, between which threads meet. On one thread 4 to 32 million
differed by no more than repeated runs did."""


class OrderedRows(NamedTuple):
    """Rows in the order in which each is conditioned on rows before it; all float64."""

    x: Tensor  # [N, D]
    y: Tensor  # [N, Q], the prior mean subtracted
    precision: Tensor  # [N], sample weight over noise variance
    log_normaliser: Tensor  # [N], -1/2 sample weight times log(2 pi noise)

    def take(self, rows: Tensor) -> "OrderedRows":
        """Some of the rows."""
        return OrderedRows(*(values[rows] for values in self))


def order_rows(x: Tensor, y: Tensor, noise: Tensor, *, sample_weight: Tensor | None = None) -> OrderedRows:
    """Rows as the conditionals need them; they stay in the order in which they come.

    A row that counts c times is one row with the noise s / c: N(y | f, s)^c is N(y | f, s / c) times a constant, which
    the log normaliser holds.

    Parameters
    ----------
    x, y
        Inputs `[N, D]`, and outputs `[N]` or `[N, Q]` with the prior mean subtracted.
    noise
        Noise variance, `[]` or `[N]`.
    sample_weight
        How often each row counts `[N]`; once if it is None.
    """
    if x.ndim != 2 or y.ndim not in (1, 2) or len(y) != len(x):
        raise InvalidInputError(f"x must be [N, D] and y [N] or [N, Q]; got {tuple(x.shape)} and {tuple(y.shape)}.")
    x, y, noise = (t.to(torch.float64) for t in (x, y.reshape(len(y), -1), noise))
    precision = weigh(noise, x[:, 0], sample_weight=sample_weight).precision  # which checks both
    count = torch.ones_like(precision) if sample_weight is None else sample_weight.to(torch.float64)
    return OrderedRows(x, y, precision, -0.5 * count * (2.0 * torch.pi * noise).log())


class LocalRows(NamedTuple):
    """Some rows with their neighbours, as places in the list of all rows that they touch."""

    touched: Tensor  # [T], rows of the data
    rows: Tensor  # [n], places in `touched`
    neighbours: Tensor  # [n, k], places in `touched`, or -1


def localise(rows: Tensor, neighbours: Tensor) -> LocalRows:
    """What rows `[n]` with their neighbours `[n, k]` (-1: none) need of the data, each row once."""
    absent = neighbours < 0
    together = torch.cat([neighbours, rows[:, None]], 1)  # [n, k + 1]
    # Where there is no neighbour the row itself stands, so that no other row is touched.
    touched, places = torch.unique(torch.where(together < 0, rows[:, None], together), return_inverse=True)
    return LocalRows(touched, places[:, -1], places[:, :-1].masked_fill(absent, -1))


class Decorrelated(NamedTuple):
    """f at some rows given u and the outputs of their neighbours: N(phi^T u + b^T y_N, v)."""

    b: Tensor  # [n, k]
    b_y: Tensor  # [n, Q], b^T y_N
    phi: Tensor  # [n, M]
    v: Tensor  # [n]


def given_neighbours(points: WhitenedPoints, data: OrderedRows, Psi: Tensor, local: LocalRows) -> Decorrelated:
    """Decorrelate some rows, differentiably (§9.1).

    Parameters
    ----------
    points
        The kernel.
    data, Psi
        The rows that are touched, and their features `[T, M]`.
    local
        Which rows, and their neighbours, as places among these.
    """
    together = torch.cat([local.neighbours.clamp_min(0), local.rows[:, None]], 1)  # [n, k + 1]
    Psi_N = _take(Psi, together)  # [n, k + 1, M]
    C = points.among(_take(data.x, together)) - Psi_N @ Psi_N.mT  # [n, k + 1, k + 1]
    present = local.neighbours >= 0
    b, v = condition_on_neighbours(C, torch.where(present, data.precision[together[:, :-1]], 0.0))
    b_Psi = (b[:, None, :] @ Psi_N[:, :-1])[:, 0]  # [n, M]
    b_y = (b[:, None, :] @ _take(data.y, together[:, :-1]))[:, 0]  # [n, Q]
    return Decorrelated(b, b_y, Psi_N[:, -1] - b_Psi, v)


def decorrelate(
    points: WhitenedPoints, data: OrderedRows, rows: Tensor, neighbours: Tensor
) -> Iterator[tuple[Tensor, Decorrelated]]:
    """Decorrelate rows part by part, in the order of `rows`; yields the rows of each part with what they become.

    Features are computed once for all rows that a block touches, and gathered in batches.
    """
    width = _row_bytes(points, data)
    all_fit = len(data.x) * width <= TABLE_BYTES
    block = max(1, len(rows) if all_fit else TABLE_BYTES // ((neighbours.shape[1] + 1) * width))
    for block_rows, block_neighbours in zip(rows.split(block), neighbours.split(block), strict=True):
        local = localise(block_rows, block_neighbours)
        touched = data.take(local.touched)
        Psi = points.features(touched.x)  # [T, M]
        for places, part in in_batches(points, touched, Psi, local):
            yield local.touched[places], part


def in_batches(
    points: WhitenedPoints, data: OrderedRows, Psi: Tensor, local: LocalRows
) -> Iterator[tuple[Tensor, Decorrelated]]:
    """:func:`given_neighbours` in batches; yields the places of the rows with what they become."""
    members = local.neighbours.shape[1] + 1
    size = max(1, BATCH_BYTES // (8 * members * max(members, Psi.shape[1], data.x.shape[1])))
    for rows, neighbours in zip(local.rows.split(size), local.neighbours.split(size), strict=True):
        yield rows, given_neighbours(points, data, Psi, LocalRows(local.touched, rows, neighbours))


@torch.no_grad()
def gather_decorrelated(points: WhitenedPoints, data: OrderedRows, neighbours: Tensor, start: int = 0) -> Statistics:
    """Statistics of the rows from `start` on, each given its neighbours `[N - start, k]`: rows before it, or -1 (§9.3).

    Those of the rows before `start` can be merged with them.
    """
    check_neighbours(neighbours, len(data.x), start)
    rows = torch.arange(start, len(data.x), device=data.x.device)
    if len(rows) * _row_bytes(points, data) > TABLE_BYTES:
        # Rows of one region share their neighbours, so that each block touches few other rows.
        rows = rows[_region(points, data.x[start:]).argsort(stable=True)]
    parts = decorrelate(points, data, rows, neighbours[rows - start])
    sums = (gather_part(data.take(of), part) for of, part in parts)
    return reduce(Statistics.merge, sums, Statistics.of_nothing(points.size, data.y.shape[1], data.x.device))


def gather_part(data: OrderedRows, part: Decorrelated) -> Statistics:
    """Statistics of some rows that are decorrelated."""
    rho_v = data.precision * part.v
    precision = data.precision / (1.0 + rho_v)  # one over v + 1 / rho
    log_normaliser = (data.log_normaliser - 0.5 * rho_v.log1p()).sum()
    explained = part.phi.square().sum(1)
    return gather_whitened(part.phi.mT, explained, data.y - part.b_y, precision, log_normaliser)


def check_neighbours(neighbours: Tensor, num_rows: int, start: int = 0) -> None:
    """Raise unless there is one line of neighbours per row from `start` on, each of them before it."""
    rows = torch.arange(start, num_rows, device=neighbours.device)
    if neighbours.ndim != 2 or len(neighbours) != len(rows) or bool((neighbours >= rows[:, None]).any()):
        raise InvalidInputError(
            f"neighbours must be [{len(rows)}, k], each of them a row before its own, or -1; "
            f"got {tuple(neighbours.shape)}. cvgp.gp.neighbours.search.RowIndex.earlier finds them."
        )


def _row_bytes(points: WhitenedPoints, data: OrderedRows) -> int:
    return 8 * max(points.size, data.x.shape[1])


def _take(values: Tensor, places: Tensor) -> Tensor:
    """values[places] [n, m, ...]; torch gathers whole rows faster by this name."""
    return values.index_select(0, places.reshape(-1)).reshape(*places.shape, *values.shape[1:])


def _region(points: WhitenedPoints, x: Tensor) -> Tensor:
    """The pseudo-input that each row has most to do with [n], in parts that fit the memory."""
    if points.size == 0:
        return torch.zeros(len(x), dtype=torch.int64, device=x.device)
    size = max(1, BATCH_BYTES // (8 * points.size))
    return torch.cat([cross_matrix(points.kernel, points.X_c, part).argmax(0) for part in x.split(size)])
