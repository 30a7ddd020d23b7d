"""How many points there may be: as many as the inputs need, as their cost allows, or one for each row.

The need is that of the kernel that a start has learned. The costs are those of :mod:`cvgp.training.plan`. How many
points are worth it is then a matter of y as well (:mod:`cvgp.training.size_choice`).
"""

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import NDArray

from cvgp.training.initialise import greedy_order
from cvgp.training.plan import (
    FEWEST_LBFGS_EVALUATIONS,
    LBFGS_EVALUATIONS,
    LBFGS_SECONDS,
    evaluation_seconds,
    exact_seconds,
    fit_seconds,
)

UNEXPLAINED_SHARE = 0.01
"""The prior variance that the points leave unexplained may be this share of the noise."""

LARGEST_BY_DEFAULT = 400
"""The most points that are trained without a time limit: well under a minute on two cores."""

UNTRAINED = (2e-10, 1e-9)
"""Seconds of the choice and the solution of points that are not trained: for each N M^2 and for each M^3."""
UNTRAINED_SECONDS, UNTRAINED_SHARE = 5.0, 0.25
"""The most that these may take, without a time limit and as a share of one."""
MOST_UNTRAINED, LARGEST_PART = 2000, 0.8

SMALLEST = 16
CANDIDATES = 2000

EXACT_IS_WORTH = 1.5
"""Kernel and noise are learned by the exact GP where it takes at most this many times as long as a coreset.

It has no pseudo-inputs to search for, and so learns better; but its cost grows with the cube of the rows.
"""
EXACT_EVALUATIONS = 60
EVALUATIONS_BY_NUMBER = 1.5
"""Evaluations of L-BFGS for each of the M D numbers of the pseudo-inputs, as long as they are few."""
START_EVALUATIONS, START_ROWS, START_POINTS = 100, 1000, 64
"""What a coreset costs before its fit: the search for a start is longer (training.kernel_search)."""

NEIGHBOUR_SECONDS = 1.2
"""A fit with neighbours on few rows, in the units of the other costs."""

FEW_ROWS = (2e-3, 4e-10)
"""Seconds of an evaluation on few rows, beyond those of each row: a constant, and for each M^3."""


def enough_points(kernel: Kernel, noise: float, x: NDArray[np.float64], max_time: float | None) -> int:
    """The smallest greedy set of points (Burt et al. 2020) that explains x [n, D], at most what the time affords."""
    limit = min(largest_size(max_time), len(x))
    return needed_points(kernel, noise, x, limit) or limit


def needed_points(kernel: Kernel, noise: float, x: NDArray[np.float64], limit: int) -> int | None:
    """How many greedy points explain x but for a share of the noise; None if `limit` of them do not."""
    chosen, left = greedy_order(kernel, x, limit)
    enough = np.flatnonzero(left <= UNEXPLAINED_SHARE * noise)
    if not len(enough) and len(chosen) == limit:
        return None
    needed = int(enough[0]) + 1 if len(enough) else len(chosen)  # where the kernel has no further direction
    return min(max(needed, SMALLEST), limit, max(len(chosen), 1))


def exact_is_worth_it(
    num_rows: int, num_dims: int, size: int, max_time: float | None, *, has_neighbours: bool = False
) -> bool:
    """Whether to learn kernel and noise with every row as a point, where else `size` pseudo-points would do.

    With neighbours the points are not trained, so that the time of a fit depends little on their number.
    """
    once = exact_seconds(num_rows, num_dims)
    seconds = EXACT_EVALUATIONS * once
    in_time = FEWEST_LBFGS_EVALUATIONS * once <= LBFGS_SECONDS if max_time is None else seconds <= max_time
    other = coreset_seconds(num_rows, num_dims, size)
    return in_time and seconds <= EXACT_IS_WORTH * (min(other, NEIGHBOUR_SECONDS) if has_neighbours else other)


def largest_size(max_time: float | None) -> int:
    """The most points that are chosen by default, or that a time limit affords."""
    return LARGEST_BY_DEFAULT if max_time is None else affordable(max_time)


def largest_untrained(num_rows: int, max_time: float | None) -> int:
    """The most points, in multiples of 50, that there is time to choose among the rows and to solve for.

    Some rows are no points. They tell what points cannot, such as the noise about what these predict.
    """
    seconds = UNTRAINED_SECONDS if max_time is None else UNTRAINED_SHARE * max_time
    by_row, by_cube = UNTRAINED
    sizes = range(50, min(MOST_UNTRAINED, int(LARGEST_PART * num_rows)) + 1, 50)
    return max((m for m in sizes if by_row * num_rows * m**2 + by_cube * m**3 <= seconds), default=0)


def affordable(seconds: float) -> int:
    """The largest multiple of 50 whose default fit takes at most `seconds`, by the cost model."""
    size = 50
    while size < 2000 and fit_seconds(size + 50) <= seconds:
        size += 50
    return size


def coreset_seconds(num_rows: int, num_dims: int, size: int) -> float:
    """A fit of pseudo-points by L-BFGS on few rows, and the search for its start."""
    evaluations = min(EVALUATIONS_BY_NUMBER * size * num_dims, LBFGS_EVALUATIONS)
    start = START_EVALUATIONS * few_rows_seconds(START_ROWS, START_POINTS, num_dims)
    return start + evaluations * few_rows_seconds(num_rows, size, num_dims)


def few_rows_seconds(num_rows: int, size: int, num_dims: int) -> float:
    """One evaluation, with what does not grow with the rows."""
    constant, by_cube = FEW_ROWS
    return constant + by_cube * size**3 + evaluation_seconds(num_rows, size, num_dims)
