"""The tables of our strategy in GPyTorch."""

from benchmarks.hosts.strategies import FITS, Plan, bound_key, step_key
from cvgp.paper.markdown import markdown_table, number, origin
from cvgp.paper.store import Record, Store

__all__ = ["report"]


def report(plan: Plan, store: Store) -> str:
    """Seconds of a step, and bounds after equal steps."""
    steps = {
        (size, batch): store.finished(step_key(plan, size, batch)) for size in plan.sizes for batch in plan.batches
    }
    step_rows = [
        [str(size), str(batch), *(_milliseconds(record, name) for name in ("svgp_seconds", "seconds")), _ratio(record)]
        for (size, batch), record in steps.items()
    ]
    fits = {(name, method): _best(plan, store, name, method) for name in plan.datasets for method in FITS}
    bound_rows = [_bound_row(name, *(fits[name, method] for method in FITS)) for name in plan.datasets]
    found = [record for record in [*steps.values(), *fits.values()] if record is not None]
    header = ["data set", "SVGP: rate", "nats per row", "seconds", "coreset: rate", "nats per row", "sites solved"]
    return "\n\n".join(
        [
            markdown_table(["M", "rows of a batch", "SVGP, ms", "coreset, ms", "ratio"], step_rows, num_text=0),
            f"The bound of all training rows after {plan.steps} steps with M = {plan.size}; higher is better. The rate "
            "is the best of " + ", ".join(map(str, plan.rates)) + " for each.",
            markdown_table([*header, "seconds", "started from data: rate", "nats per row"], bound_rows, num_text=1),
            origin(found),
        ]
    )


def _best(plan: Plan, store: Store, dataset: str, method: str) -> Record | None:
    """The fit with the rate that gave the highest bound; both methods are judged by the bound that they end with."""
    records = [store.finished(bound_key(plan, dataset, method, rate)) for rate in plan.rates]
    known = [record for record in records if record is not None]
    return max(known, key=lambda record: record.number(_last_bound(method)), default=None)


def _last_bound(method: str) -> str:
    return "solved_bound" if method == "coreset" else "bound"


def _bound_row(name: str, svgp: Record | None, ours: Record | None, initialised: Record | None) -> list[str]:
    both = None if ours is None else ours.number("seconds") + ours.number("solve_seconds")
    return [
        name,
        *_cells(svgp, "rate", "bound"),
        number(None if svgp is None else svgp.number("seconds"), ".1f"),
        *_cells(ours, "rate", "bound", "solved_bound"),
        number(both, ".1f"),
        *_cells(initialised, "rate", "bound"),
    ]


def _cells(record: Record | None, rate: str, *metrics: str) -> list[str]:
    if record is None:
        return ["-"] * (1 + len(metrics))
    return [str(record.task[rate]), *(number(record.number(name)) for name in metrics)]


def _milliseconds(record: Record | None, name: str) -> str:
    return number(None if record is None else 1e3 * record.number(name), ".1f")


def _ratio(record: Record | None) -> str:
    return number(None if record is None else record.number("ratio"), ".2f")
