"""How large a coreset should be: large enough for the kernel and the noise, within what time affords."""

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import NDArray

from cvgp.data.source import DataSource
from cvgp.training.cost import exact_seconds, fit_seconds
from cvgp.training.initialise import greedy_order

__all__ = ["choose_size", "may_be_exact", "needed_points"]

UNEXPLAINED_SHARE = 0.01
"""The prior variance that the points leave unexplained may be this share of the noise."""

LARGEST_BY_DEFAULT = 400
"""Trains in well under a minute on two cores."""

EXACT_ROWS = 2000
"""Up to this many rows kernel and noise are learned exactly, with each row a point: better, and done in seconds."""

EXACT_EVALUATIONS = 60

SMALLEST = 16
CANDIDATES = 2000


def choose_size(
    kernel: Kernel, noise: float, source: DataSource, rng: np.random.Generator, max_time: float | None
) -> int:
    """The smallest greedy set of points (Burt et al. 2020) that explains the inputs, at most what the time affords."""
    x = source.sample(CANDIDATES, rng).x.cpu().numpy()
    limit = min(LARGEST_BY_DEFAULT if max_time is None else affordable(max_time), len(x))
    return needed_points(kernel, noise, x, limit) or limit


def needed_points(kernel: Kernel, noise: float, x: NDArray[np.float64], limit: int) -> int | None:
    """How many greedy points explain x but for a share of the noise; None if `limit` of them do not."""
    chosen, left = greedy_order(kernel, x, limit)
    enough = np.flatnonzero(left <= UNEXPLAINED_SHARE * noise)
    if not len(enough) and len(chosen) == limit:
        return None
    needed = int(enough[0]) + 1 if len(enough) else len(chosen)  # where the kernel has no further direction
    return min(max(needed, SMALLEST), limit, max(len(chosen), 1))


def may_be_exact(num_rows: int, max_time: float | None) -> bool:
    """Whether each row may be a point while kernel and noise are learned."""
    seconds = EXACT_EVALUATIONS * exact_seconds(num_rows)
    return num_rows <= EXACT_ROWS and (max_time is None or seconds <= max_time)


def affordable(seconds: float) -> int:
    """The largest multiple of 50 whose default fit takes at most `seconds`, by the cost model."""
    size = 50
    while size < 2000 and fit_seconds(size + 50) <= seconds:
        size += 50
    return size
