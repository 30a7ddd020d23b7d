"""The comparison of defaults as a table, from stored results."""

from collections.abc import Sequence
from statistics import mean, stdev

from benchmarks.quality.defaults import Choice, Plan, choices, task, tasks
from cvgp.paper.markdown import markdown_table, origin
from cvgp.paper.store import Record, Store

__all__ = ["report"]

HEADER = (
    "factor",
    "value",
    "mean log-likelihood",
    "the default is ahead by, nats",
    "on so many sets",
    "worst set against the constant predictor",
    "RMSE",
    "90 % coverage",
    "seconds",
    "failures",
)

Cell = tuple[str, int]
"""A data set and a split."""


def report(plan: Plan, store: Store) -> str:
    """Factor by factor, what each value gives, with the standard error over sets of its distance to the default."""
    rows = []
    for factor in plan.factors:
        found = {choice: _records(choice, plan, store) for choice in choices([factor], plan.size)}
        rows += _factor_rows(found, plan.datasets)
    records = [record for t in tasks(plan) if (record := store.get(t.key)) is not None]
    counts = f"M = {plan.size}, {plan.splits} splits, {plan.max_time:g} seconds per fit, {len(plan.datasets)} sets"
    missing = len(tasks(plan)) - len(records)
    unfinished = f" **{missing} fits are missing.**" if missing else ""
    summary = f"{counts}: {', '.join(plan.datasets)}. {origin(records)}{unfinished}"
    return f"{markdown_table(HEADER, rows, num_text=2)}\n\n{summary}"


def _records(choice: Choice, plan: Plan, store: Store) -> dict[Cell, Record]:
    cells = [(dataset, split) for dataset in plan.datasets for split in range(plan.splits)]
    found = {cell: store.get(task(plan, *cell, choice.config).key) for cell in cells}
    return {cell: record for cell, record in found.items() if record is not None}


def _factor_rows(found: dict[Choice, dict[Cell, Record]], datasets: Sequence[str]) -> list[list[str]]:
    # Only where every value has a result: a value that fails on a hard set must not look better for it.
    finished = [{cell for cell, record in records.items() if not record.failed} for records in found.values()]
    shared = sorted(set.intersection(*finished))
    default = next(records for choice, records in found.items() if choice.is_default)
    return [_row(choice, records, default, shared, datasets) for choice, records in found.items()]


def _lead(default: dict[Cell, Record], records: dict[Cell, Record], shared: Sequence[Cell]) -> list[float]:
    """Nats by which the default is ahead, one mean over splits for each set: splits of a set are not independent."""
    cells = [[cell for cell in shared if cell[0] == dataset] for dataset in sorted({dataset for dataset, _ in shared})]
    return [_mean(default, here, "log_likelihood") - _mean(records, here, "log_likelihood") for here in cells]


def _row(
    choice: Choice,
    records: dict[Cell, Record],
    default: dict[Cell, Record],
    shared: Sequence[Cell],
    datasets: Sequence[str],
) -> list[str]:
    name = f"**{choice.value}** (default)" if choice.is_default else str(choice.value)
    failures = str(sum(record.failed for record in records.values()))
    if not shared:
        return [choice.factor, name, *["-"] * 7, failures]
    lead = _lead(default, records, shared)
    ahead = ["-", "-"]
    if not choice.is_default:
        error = f" ± {stdev(lead) / len(lead) ** 0.5:.4f}" if len(lead) > 1 else ""
        ahead = [f"{mean(lead):+.4f}{error}", f"{sum(value > 0.0 for value in lead)} of {len(lead)}"]
    return [
        choice.factor,
        name,
        f"{_mean(records, shared, 'log_likelihood'):.4f}",
        *ahead,
        _worst(records, datasets),
        f"{_mean(records, shared, 'rmse'):.4f}",
        f"{_mean(records, shared, 'coverage'):.3f}",
        f"{_mean(records, shared, 'seconds'):.1f}",
        failures,
    ]


def _worst(records: dict[Cell, Record], datasets: Sequence[str]) -> str:
    """The smallest gain over the constant predictor, as a mean over the splits of a set, and where it is."""
    gains = {}
    for dataset in datasets:
        own = [r.metrics for cell, r in records.items() if cell[0] == dataset and not r.failed]
        if own:
            gains[dataset] = mean(m["log_likelihood"] - m["constant_log_likelihood"] for m in own)
    worst = min(gains, key=lambda dataset: gains[dataset])
    return f"{gains[worst]:+.3f} ({worst})"


def _mean(records: dict[Cell, Record], cells: Sequence[Cell], metric: str) -> float:
    return mean(records[cell].metrics[metric] for cell in cells)
