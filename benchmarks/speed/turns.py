"""Two workers timed in turns, so that a machine that is slower for a while is so for both."""

import math
from collections.abc import Sequence
from statistics import median

from benchmarks.peers.workers import Session

__all__ = ["median_times", "median_times_of"]

BLOCK_SECONDS = 0.4
"""How long one worker goes on before it is the other's turn."""

WARM_UP_CALLS = 3


def median_times(sessions: Sequence[Session], rounds: int) -> list[float]:
    """Median seconds of a call of each worker."""
    blocks = [_block_size(session) for session in sessions]
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds):
        for session, block, found in zip(sessions, blocks, times, strict=True):
            found += session.times(block)
    return [median(found) for found in times]


def median_times_of(session: Session, rounds: int) -> float:
    """The same for one worker by itself."""
    return median_times([session], rounds)[0]


def _block_size(session: Session) -> int:
    session.times(WARM_UP_CALLS)
    each = median(session.times(WARM_UP_CALLS))
    return max(1, math.ceil(BLOCK_SECONDS / each))
