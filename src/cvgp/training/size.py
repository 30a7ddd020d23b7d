"""How large a coreset should be: large enough for the kernel and the noise, within what time affords."""

import numpy as np
from gpytorch.kernels import Kernel

from cvgp.data.source import DataSource
from cvgp.initialise import greedy_order

__all__ = ["choose_size"]

UNEXPLAINED_SHARE = 0.01
"""The prior variance that the points leave unexplained may be this share of the noise."""

LARGEST_BY_DEFAULT = 400
"""Trains in well under a minute on two cores."""

SMALLEST = 16
CANDIDATES = 2000


def choose_size(
    kernel: Kernel, noise: float, source: DataSource, rng: np.random.Generator, max_time: float | None
) -> int:
    """The smallest greedy set of points (Burt et al. 2020) that explains the inputs, at most what the time affords."""
    x = source.sample(CANDIDATES, rng).x.cpu().numpy()
    limit = min(LARGEST_BY_DEFAULT if max_time is None else affordable(max_time), len(x))
    chosen, left = greedy_order(kernel, x, limit)
    enough = np.flatnonzero(left <= UNEXPLAINED_SHARE * noise)
    needed = int(enough[0]) + 1 if len(enough) else limit
    return min(max(needed, SMALLEST), limit, max(len(chosen), 1))


def affordable(seconds: float) -> int:
    """The largest multiple of 50 whose default fit takes at most `seconds`, by a cost model of this kind of machine.

    A step costs about a millisecond, plus three products of 2 M^2 B flops with B = max(512, 2 M) at 40 Gflop/s.
    """
    size = 50
    while size < 2000 and _fit_seconds(size + 50) <= seconds:
        size += 50
    return size


def _fit_seconds(size: int) -> float:
    return 3000 * (1e-3 + 6.0 * size**2 * max(512, 2 * size) / 40e9)
