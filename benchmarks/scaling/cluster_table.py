"""The tables of the cost model: what was measured, and what follows for many workers and rows."""

from benchmarks.scaling.cluster import WORKERS, CostModel, Network, Plan, cost_model, moved, task
from cvgp.paper.markdown import markdown_table, origin
from cvgp.paper.store import Metrics, Store

__all__ = ["ETHERNET", "report"]

ETHERNET = Network(latency=50e-6, bytes_per_second=1.25e9)
"""Assumed, not measured: 10 Gbit/s, and 50 microseconds from one program to another."""

MANY = (1, 2, 4, 8, 16, 32, 100, 316, 1000)
BATCH = 512
ROWS = (10**6, 10**7, 10**8, 10**9, 10**10)
PASS_WORKERS = (1, 10, 100, 1000)
COLUMN_BYTES = 8.0
EVALUATIONS, STEPS = 200, 3000


def report(plan: Plan, store: Store) -> str:
    """What was measured, the model beside it, and its tables."""
    records = [record for workers in WORKERS if (record := store.finished(task(plan, workers).key)) is not None]
    model = cost_model(plan, store)
    if model is None:
        return origin(records)
    one, two = (record.metrics for record in records)
    return "\n\n".join(
        [
            _measured(model, one, two),
            _words(model),
            "A step of Adam, and what each worker sends in it:",
            _steps(model),
            "Seconds of an evaluation on all rows with its gradient, and what each worker holds and sends:",
            _passes(model),
            _limits(model),
            origin(records),
        ]
    )


def _measured(model: CostModel, one: Metrics, two: Metrics) -> str:
    header = ("what", "one worker, ms", "two workers, ms", "the model for two, ms")
    lines = []
    for name, value in one.items():
        kind, _, rows = name.partition("_")
        seconds = model.step if kind == "step" else model.evaluation
        what = "a step" if kind == "step" else "an evaluation"
        cells = (value, two[name], seconds(2, float(rows), model.here))
        lines.append([f"{what}, {rows} rows per worker", *(f"{1e3 * cell:.2f}" for cell in cells)])
    for name, value in two.items():
        if name.startswith("sum_"):
            size = float(name.removeprefix("sum_"))
            lines.append([f"a sum of {size:.0f} bytes", "-", *_ms(value, model.here.all_reduce(2, size))])
    return markdown_table(header, lines, num_text=1)


def _ms(*seconds: float) -> list[str]:
    return [f"{1e3 * value:.3f}" for value in seconds]


def _words(model: CostModel) -> str:
    return (
        f"With $M = {model.size}$ and {model.dims} inputs, one core takes {1e3 * model.step_fixed:.2f} ms and "
        f"{1e6 * model.step_row:.2f} µs per row for a step, {1e3 * model.pass_fixed:.1f} ms and "
        f"{1e6 * model.pass_row:.2f} µs per row for an evaluation. Between two processes of this machine a message "
        f"takes {1e6 * model.here.latency:.0f} µs, and {model.here.bytes_per_second / 1e9:.2f} GB/s. For the tables "
        f"below the network is assumed, not measured: {1e6 * ETHERNET.latency:.0f} µs and "
        f"{ETHERNET.bytes_per_second / 1e9:.2f} GB/s, with one core per worker."
    )


def _steps(model: CostModel) -> str:
    header = ("workers", f"ms, batch {BATCH}", f"ms, batch {BATCH} per worker", "rows/s, the latter", "kB sent")
    lines = []
    for workers in MANY:
        fixed = model.step(workers, BATCH / workers, ETHERNET)
        grown = model.step(workers, BATCH, ETHERNET)
        sent = moved(workers, model.gradient_bytes)
        lines.append(
            [
                str(workers),
                f"{1e3 * fixed:.2f}",
                f"{1e3 * grown:.2f}",
                f"{workers * BATCH / grown:.1e}",
                f"{sent / 1e3:.0f}",
            ]
        )
    return markdown_table(header, lines, num_text=0)


def _passes(model: CostModel) -> str:
    header = ("workers", *(f"{rows:.0e} rows" for rows in ROWS), f"GB held, {ROWS[-1]:.0e} rows", "kB sent")
    lines = []
    for workers in PASS_WORKERS:
        seconds = [model.evaluation(workers, rows / workers, ETHERNET) for rows in ROWS]
        held = ROWS[-1] / workers * COLUMN_BYTES * (model.dims + 1)
        sent = moved(workers, model.statistics_bytes + model.gradient_bytes)
        lines.append([str(workers), *(f"{s:.2g}" for s in seconds), f"{held / 1e9:.3g}", f"{sent / 1e3:.0f}"])
    return markdown_table(header, lines, num_text=0)


def _limits(model: CostModel) -> str:
    best = min(MANY, key=lambda workers: model.step(workers, BATCH / workers, ETHERNET))
    half = next((w for w in MANY if model.step(w, BATCH, ETHERNET) > 2.0 * model.step(1, BATCH, ETHERNET)), None)
    largest = PASS_WORKERS[-1]
    whole = model.evaluation(largest, ROWS[-1] / largest, ETHERNET)
    waiting = whole - model.pass_fixed - model.pass_row * ROWS[-1] / largest
    slow = "stays above half of that of one" if half is None else f"falls below half of that of one at {half} workers"
    hours = EVALUATIONS * whole / 3600
    minutes = STEPS * model.step(largest, BATCH, ETHERNET) / 60
    return (
        f"By this model a batch of {BATCH} is fastest on {best} workers: more of them wait for each other. With "
        f"{BATCH} rows per worker, the speed of each {slow}. An evaluation on {ROWS[-1]:.0e} rows by {largest} workers "
        f"takes {whole:.0f} s, of which {waiting:.2g} s are waiting. {EVALUATIONS} evaluations take {hours:.1f} hours, "
        f"and {STEPS} steps of Adam with {BATCH} rows per worker {minutes:.0f} minutes."
    )
