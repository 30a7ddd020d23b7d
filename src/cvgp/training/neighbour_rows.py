"""The rows that a model consults beside its coreset, and the coreset that goes with them (docs: mathematics, §9)."""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.split import cut
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import prior_mean
from cvgp.gp.model import CVGP
from cvgp.gp.neighbours.conditional_densities import earlier_moments
from cvgp.gp.neighbours.decorrelated import OrderedRows, gather_decorrelated, order_rows
from cvgp.gp.neighbours.global_part import global_part
from cvgp.gp.neighbours.local_prediction import NeighbourProcess
from cvgp.gp.neighbours.search import RowIndex, random_order
from cvgp.gp.neighbours.whitened_points import WhitenedPoints, whiten_points
from cvgp.parallel.group import ALONE, Group, sum_of
from cvgp.training.residuals import Residuals

ROWS_FOR_U, ROWS_FOR_U_PER_POINT = 20_000, 100


def rows_for_u(size: int) -> int:
    """How many rows, just before those that are judged, tell enough of the coreset's part of some size.

    Too few judge neighbours too harshly: on elevators, M = 200, 8000 of 12,900 cost .01 nats per row.
    """
    return max(ROWS_FOR_U, ROWS_FOR_U_PER_POINT * size)


class NeighbourRows(NamedTuple):
    """Rows that predictions consult."""

    rows: Rows[Tensor]
    """In the model's units, in float64. Each is conditioned on rows before it."""
    num_neighbours: int
    """How many nearest rows a prediction, and each row, is given."""
    statistics: Statistics
    """Of the rows, each given its neighbours, at the model's kernel and pseudo-inputs."""

    @torch.no_grad()
    def process(self, model: CVGP) -> NeighbourProcess:
        """The posterior of f minus its prior mean, with these rows; the model's own are its kernel and its points."""
        return NeighbourProcess(
            whitened(model), ordered(model, self.rows), global_part(self.statistics), self.num_neighbours
        )


def in_random_order(rows: Rows[Tensor], seed: int) -> Rows[Tensor]:
    """The rows in an order that depends on their number and the seed alone."""
    order = random_order(len(rows.x), torch.Generator().manual_seed(seed))
    return rows.take(order.to(rows.x.device))


def whitened(model: CVGP) -> WhitenedPoints:
    """The pseudo-inputs of a model as features."""
    return whiten_points(model.kernel, model.X_c.detach(), model.jittered_covariance())


def ordered(model: CVGP, rows: Rows[Tensor]) -> OrderedRows:
    """Rows with the mean of a model taken off and its noise put on."""
    y = rows.y - prior_mean(model.mean, rows.x, rows.y)
    return order_rows(rows.x, y, model.total_noise(rows.noise_variance), sample_weight=rows.sample_weight)


def near_own_part(index: RowIndex, count: int, group: Group) -> Tensor:
    """The neighbours of the rows that this process of a group decorrelates, among the rows before each `[n, k]`."""
    return index.earlier(count, *cut(len(index.x), group))


@torch.no_grad()
def gather_rows(
    points: WhitenedPoints, data: OrderedRows, near: Tensor, group: Group, start: int = 0, stop: int | None = None
) -> Statistics:
    """Statistics of the rows from `start` to `stop`, each given its neighbours.

    Every process of the group holds all rows and decorrelates its part of these.

    Parameters
    ----------
    points, data
        The kernel, and all rows.
    near
        The neighbours of the part of this process `[n, k]`.
    group
        The statistics are summed over it.
    start, stop
        Which rows; all by default.
    """
    stop = len(data.x) if stop is None else stop
    first, last = (start + place for place in cut(stop - start, group))
    nothing = Statistics.of_nothing(points.size, data.y.shape[1], data.x.device)
    until = OrderedRows(*(values[:last] for values in data))

    def own_part() -> Statistics:
        return gather_decorrelated(points, until, near, first) if first < last else nothing

    return Statistics(*sum_of(group, own_part, nothing))


@torch.no_grad()
def gather_early(
    points: WhitenedPoints, data: OrderedRows, index: RowIndex, count: int, group: Group, start: int, stop: int
) -> Statistics:
    """:func:`gather_rows` with the neighbours still to be found."""
    first, last = (start + place for place in cut(stop - start, group))
    return gather_rows(points, data, index.earlier(count, first, last), group, start, stop)


@torch.no_grad()
def adopt_neighbours(
    model: CVGP,
    rows: Rows[Tensor],
    count: int,
    statistics: Statistics | None = None,
    near: Tensor | None = None,
    group: Group = ALONE,
) -> tuple[NeighbourRows, float]:
    """Solve for the coreset that goes with neighbours, in place, and return the bound on the density of the rows too.

    Parameters
    ----------
    model
        Kernel, noise and pseudo-inputs, which stay as they are.
    rows
        In the order in which each is conditioned on those before it.
    count
        How many neighbours.
    statistics
        Of these rows given their neighbours, where they are known.
    near
        The neighbours of each row `[N, k]`, where they are known; in a group, of the rows of this process's part.
    group
        Processes that all hold the rows, and share the work.
    """
    if statistics is None:
        near = near_own_part(RowIndex(model.kernel, rows.x), count, group) if near is None else near
        statistics = gather_rows(whitened(model), ordered(model, rows), near, group)
    bound = model.adopt_optimum(statistics).item()
    # A weight of one is to stand for the harmonic mean of the total noise of the rows.
    total = model.total_noise(rows.noise_variance)
    model.set_site_noise_offset((1.0 / total.reciprocal().mean() - model.noise).item())
    return NeighbourRows(rows, count, statistics), bound


@torch.no_grad()
def residuals_given_neighbours(model: CVGP, kept: NeighbourRows, count: int, group: Group = ALONE) -> Residuals:
    """What is left of the last rows, at most half of them, each predicted by all rows before it."""
    rows, N = kept.rows, len(kept.rows.x)
    first = max(N - count, N // 2)
    start = max(first - rows_for_u(len(model.X_c)), 0)
    index, k = RowIndex(model.kernel, rows.x), kept.num_neighbours
    points, data = whitened(model), ordered(model, rows)
    # Gathered, not taken off from the statistics of all rows: of rows with next to no noise nothing would be left.
    early = gather_early(points, data, index, k, group, start, first)
    given = earlier_moments(points, data, index.earlier(k, first), early)
    late = rows.take(slice(first, None))
    square = (data.y[first:] - given.f_mean).square()
    return Residuals.of(late, square, given.f_var, model.total_noise(late.noise_variance))
