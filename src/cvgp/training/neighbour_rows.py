"""The rows that a model consults beside its coreset, and the coreset that goes with them (docs: mathematics, §9)."""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.split import cut
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import prior_mean
from cvgp.gp.model import CVGP
from cvgp.gp.neighbours.conditional_densities import RowMoments, earlier_moments
from cvgp.gp.neighbours.decorrelated import OrderedRows, gather_decorrelated, order_rows
from cvgp.gp.neighbours.global_part import global_part
from cvgp.gp.neighbours.local_prediction import NeighbourProcess
from cvgp.gp.neighbours.search import RowIndex, random_order
from cvgp.gp.neighbours.whitened_points import WhitenedPoints, whiten_points
from cvgp.parallel.group import ALONE, Group, sum_of
from cvgp.threads import threads_for
from cvgp.training.residuals import Residuals

LATE_ROWS = 10_000
"""The last rows, at most half of all, that are predicted one by one: enough to judge a fit and to learn its noise."""
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


class NearRows(NamedTuple):
    """The neighbours of rows in their order, each among the rows before it.

    A process of a group has those of its part of the rows, but all has those of the late ones.
    """

    start: int
    """The first row that a walk looks at."""
    first: int
    """The first late row."""
    early: Tensor
    """Of the own part of the rows from `start` to `first` [n, k]."""
    late: Tensor
    """Of the rows from `first` on [N - first, k]."""


class Walk(NamedTuple):
    """What rows of a model say in their order: the early ones together, and each late one given all before it."""

    near: NearRows
    statistics: Statistics
    """Of the rows from `near.start` on."""
    moments: RowMoments
    """Of f at the late rows."""


@torch.no_grad()
def find_near(model: CVGP, x: Tensor, count: int, group: Group = ALONE) -> NearRows:
    """So many neighbours of each of the late rows, and of as many before them as tell enough of the coreset's part."""
    index, N = RowIndex(model.kernel, x), len(x)
    first = max(N - LATE_ROWS, N // 2)
    start = max(first - rows_for_u(len(model.X_c)), 0)
    own = (start + place for place in cut(first - start, group))
    return NearRows(start, first, index.earlier(count, *own), index.earlier(count, first))


@torch.no_grad()
def walk(model: CVGP, rows: Rows[Tensor], near: NearRows, group: Group = ALONE) -> Walk:
    """Go through rows in their order."""
    points, data = whitened(model), ordered(model, rows)
    # Gathered, not taken off from the statistics of all rows: of rows with next to no noise nothing would be left.
    with threads_for(len(near.late) * near.late.shape[1] ** 2 * points.size):
        early = gather_rows(points, data, near.early, group, near.start, near.first)
        moments, found = earlier_moments(points, data, near.late, early)
    return Walk(near, found, moments)


@torch.no_grad()
def all_statistics(model: CVGP, rows: Rows[Tensor], found: Walk, group: Group = ALONE) -> Statistics:
    """Those of the rows before a walk too."""
    start = found.near.start
    if start == 0:
        return found.statistics
    before, count = rows.take(slice(start)), found.near.late.shape[1]
    near = RowIndex(model.kernel, before.x).earlier(count, *cut(start, group))
    return gather_rows(whitened(model), ordered(model, before), near, group).merge(found.statistics)


@torch.no_grad()
def late_residuals(model: CVGP, rows: Rows[Tensor], found: Walk, count: int) -> Residuals:
    """What is left of so many of the last rows, each predicted by all rows before it; at most of all late ones."""
    moments = found.moments.last(count)
    late = rows.take(slice(len(rows.x) - len(moments.f_var), None))
    y = late.y - prior_mean(model.mean, late.x, late.y)
    square = (y.reshape(len(y), -1) - moments.f_mean).square()
    return Residuals.of(late, square, moments.f_var)


@torch.no_grad()
def adopt_neighbours(
    model: CVGP,
    rows: Rows[Tensor],
    count: int,
    statistics: Statistics | None = None,
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
    group
        Processes that all hold the rows, and share the work.
    """
    if statistics is None:
        near = RowIndex(model.kernel, rows.x).earlier(count, *cut(len(rows.x), group))
        statistics = gather_rows(whitened(model), ordered(model, rows), near, group)
    bound = model.adopt_optimum(statistics).item()
    # A weight of one is to stand for the harmonic mean of the total noise of the rows.
    total = model.total_noise(rows.noise_variance)
    model.set_site_noise_offset((1.0 / total.reciprocal().mean() - model.noise).item())
    return NeighbourRows(rows, count, statistics), bound
