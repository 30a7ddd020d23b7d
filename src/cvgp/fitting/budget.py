"""The time of a fit, and what its steps cost.

A budget is the time limit of a whole fit or of a part of it. The cost model gives seconds by sizes; its constants are
heuristics that were measured on two cores. On another machine the time that the first steps really took corrects them.
"""

import math
import time
from collections.abc import Callable

from cvgp.fitting.heuristics import Heuristics
from cvgp.parallel.group import ALONE, Group


class Clock:
    """Seconds since a fit began, and how fast this machine is compared with the cost model.

    `read` gives seconds since some time in the past. All processes of a group go by the clock of the first, read when
    they last met.
    """

    def __init__(self, read: Callable[[], float] = time.perf_counter, group: Group = ALONE) -> None:
        self.group = group
        self.agreed = 0.0
        self._read = read
        self._start = read()
        self._before = 0.0
        self._expected, self._measured = 0.0, 0.0

    def own_seconds(self) -> float:
        """Time used by the clock of this process, interrupted runs included."""
        return self._before + self._read() - self._start

    @property
    def seconds(self) -> float:
        """Time used; in a group, what the first process had used when they last met."""
        return self.own_seconds() if self.group.world == 1 else self.agreed

    def advance_to(self, seconds: float) -> None:
        """Count the time that an interrupted run had used when it was here."""
        self._before += max(seconds - self.own_seconds(), 0.0)

    def measure(self, expected: float, seconds: float) -> None:
        """Record that work of some expected seconds took `seconds`."""
        self._expected += expected
        self._measured += seconds

    @property
    def pace(self) -> float:
        """Measured over expected seconds; one in a group, whose processes may differ."""
        return self._measured / self._expected if self._expected > 0.0 and self.group.world == 1 else 1.0


class Budget:
    """A time limit in seconds for a whole fit, or none; a part of a fit has to end before `end`.

    The budgets of all parts of a fit share one clock.
    """

    def __init__(self, max_time: float | None = None, clock: Clock | None = None, end: float | None = None) -> None:
        self.max_time = max_time
        self.clock = Clock() if clock is None else clock
        self.end = (math.inf if max_time is None else max_time) if end is None else end

    @property
    def seconds(self) -> float:
        """Time used since the fit began."""
        return self.clock.seconds

    @property
    def left(self) -> float:
        """Seconds until this part has to end; infinite without a limit."""
        return max(self.end - self.seconds, 0.0)

    @property
    def has_time(self) -> bool:
        """Whether there is time for anything more."""
        return self.left > 0.0

    def affords(self, seconds: float) -> bool:
        """Whether work of some seconds by the cost model fits into what is left."""
        return math.isinf(self.end) or self.clock.pace * seconds <= self.left

    def part(self, share: float) -> "Budget":
        """A budget for this share of the whole limit, counted from now."""
        if self.max_time is None:
            return self
        return Budget(self.max_time, self.clock, min(self.end, self.seconds + share * self.max_time))

    def reserving(self, seconds: float) -> "Budget":
        """A budget that ends earlier by some seconds, which a later step needs."""
        return Budget(self.max_time, self.clock, self.end - seconds)

    def used_since(self, begin: float) -> float:
        """The fraction that is spent of the time from `begin` to the end of this part; 0 without a limit."""
        if math.isinf(self.end):
            return 0.0
        return (self.seconds - begin) / (self.end - begin) if self.end > begin else 1.0

    def rows(self, count: int, enough: float) -> int:
        """How many rows a choice may use that would use `count` of them given `enough` seconds.

        The cost of a choice grows at least with the square of its rows.
        """
        short = 1.0 if self.max_time is None else min(max(self.max_time, 0.0) / enough, 1.0)
        return math.ceil(count * math.sqrt(short))


def step_seconds(size: int, batch: int, h: Heuristics) -> float:
    """One step of Adam."""
    constant, by_product, by_cube = h.step_cost
    return constant + by_product * size**2 * batch + by_cube * size**3


def evaluation_seconds(num_rows: int, size: int, num_dims: int, h: Heuristics) -> float:
    """One evaluation of the bound on all rows with its gradient."""
    by_entry, by_product, by_column = h.evaluation_cost
    return num_rows * size * (by_entry + by_product * size + by_column * num_dims)


def exact_seconds(num_rows: int, num_dims: int, h: Heuristics) -> float:
    """One evaluation of the exact marginal likelihood with its gradient."""
    constant, by_cube, by_column = h.exact_cost
    return constant + num_rows**2 * (by_cube * num_rows + by_column * num_dims)


def neighbor_seconds(num_rows: int, size: int, h: Heuristics) -> float:
    """Searching the neighbors of all rows and adding up their statistics."""
    per_row, per_point, per_pair = h.neighbor_cost
    return num_rows * (per_row + per_point * size + per_pair * num_rows)
