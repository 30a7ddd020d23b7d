"""One task, whatever becomes of it: what it gave, or how it failed, as a record."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cvgp.paper.store import Arrays, Key, Metrics, Outcome, Record

LONGEST_ERROR = 500


def attempt(key: Key, run: Callable[[], Outcome]) -> tuple[Record, Arrays]:
    """Run a task and return its record, which does not yet say where it was run."""
    found, error = Outcome({}), ""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # They are about the interfaces of libraries, not about results.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            found = run()
            _check_finite(found.metrics)
        except Exception as failure:  # whatever a method throws, the others still have to be run
            found, error = Outcome({}), f"{type(failure).__name__}: {failure}"[:LONGEST_ERROR]
    record = Record(
        key,
        {name: None if value is None else float(value) for name, value in found.metrics.items()},
        found.origin,
        seconds=round(time.perf_counter() - begin, 3),
        error=error,
        warnings=sorted({f"{w.category.__name__}: {w.message}" for w in caught}),
        arrays=bool(found.arrays),
        trace=found.trace,
    )
    return record, found.arrays


@contextmanager
def thread_limit(count: int) -> Iterator[None]:
    """Let torch and the BLAS libraries use so many threads."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def _check_finite(metrics: Metrics) -> None:
    wrong = [name for name, value in metrics.items() if value is not None and not math.isfinite(value)]
    if wrong:
        raise FloatingPointError(f"not finite: {', '.join(wrong)}")
