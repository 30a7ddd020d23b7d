"""The lines about speed in README's table of figures, from stored results; what is not stored has no line."""

from collections.abc import Iterator, Sequence
from statistics import median

from experiments.speed import fit, prediction, quality
from experiments.store import Store

THREADS = 2
"""Of the stored measurements."""


def figures(store: Store) -> Iterator[Sequence[str]]:
    """What was measured, and the command that measures it."""
    yield from _time_to_quality(store)
    fits = fit.full(THREADS)
    most = max(fits.large_rows)
    record = store.finished(fit.large_task(fits, most).key)
    if record is not None:
        measured = f"{record.number('seconds') / 60:.0f} minutes, {record.number('peak_memory') / 1e9:.1f} GB"
        what = f"fit to {most:,} rows of {fit.LARGE_COLUMNS} columns, {fits.points} points"
        yield what, measured, "`python -m experiments speed fit`"
    plan = prediction.full(THREADS)
    for with_sd, title in ((False, "means"), (True, "means and standard deviations")):
        record = store.finished(prediction.rows_task(plan, max(plan.rows), "float64", with_sd).key)
        if record is not None:
            rate = f"{round(record.number('rows_per_second'), -4):,.0f}"
            what = f"predicted {title} per second, {plan.size} points, without neighbors"
            yield what, rate, "`python -m experiments speed prediction`"


def _time_to_quality(store: Store) -> Iterator[Sequence[str]]:
    plan = quality.full()
    found = [quality.seconds_to_peer(plan, store, name, "SVGP") for name in plan.datasets]
    seconds = [median(values) for values in found if values]
    reached = [value for value in seconds if value < float("inf")]
    if reached:
        measured = f"{min(reached):.0f} to {max(reached):.0f} s on {len(reached)} of {len(seconds)} data sets"
        what = f"time to the log-likelihood that GPyTorch's SVGP has after {plan.budget:g} s"
        yield what, measured, "`python -m experiments speed quality`"
