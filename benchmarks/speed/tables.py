"""The measurements of speed as tables, from stored results."""

from collections.abc import Callable, Sequence
from statistics import mean

from benchmarks.speed import growth, large, prediction, race_results, shared, small, step
from benchmarks.speed.flops import step_flops
from benchmarks.speed.plans import Plans, tasks
from benchmarks.speed.race import Plan as RacePlan
from cvgp.paper.markdown import markdown_table, origin
from cvgp.paper.store import Record, Store

__all__ = ["report"]

THEORY = {"M": "3, and 2 in B M^2", "B": "1", "D": "1 in B M D, 0 beside it", "N": "1"}
Rows = list[list[str]]


def report(plans: Plans, store: Store, command: str) -> str:
    """A command's tables, with a line that says where they come from."""
    make: dict[str, Callable[[], str]] = {
        "step": lambda: _step(plans.step, store),
        "prediction": lambda: _prediction(plans.prediction, store),
        "growth": lambda: _growth(plans.growth, store),
        "small": lambda: _small(plans.small, store),
        "race": lambda: _race(plans.race, store),
        "large": lambda: _large(plans.large, store),
        "shared": lambda: _shared(plans.shared, store),
    }
    planned = tasks(plans, command)
    records = [record for task in planned if (record := store.get(task.key)) is not None]
    failed = [f"{_name(record)}: {record.error}" for record in records if record.failed]
    notes = [origin(records)]
    if len(planned) > len(records):
        notes.append(f"**{len(planned) - len(records)} of {len(planned)} tasks are missing.**")
    lines = [make[command](), " ".join(notes), *(f"Failed: {line}" for line in failed)]
    return "\n\n".join(lines)


def _name(record: Record) -> str:
    return ", ".join(str(value) for name, value in record.task.items() if name not in ("benchmark", "threads"))


def _step(plan: step.Plan, store: Store) -> str:
    header = ("M", "batch", "cvgp, ms", "SVGP, ms", "ratio", "Gflop/s", "share of GEMM", "float32 off by")
    speeds = [store.finished(step.gemm_task(plan, precision).key) for precision in step.PRECISIONS]
    rows: Rows = []
    for size in plan.sizes:
        for batch in plan.batches:
            record = store.finished(step.task(plan, size, batch).key)
            if record is None:
                continue
            m, flops = record.metrics, step_flops(size, batch, step.NUM_DIMS)
            share = "-"
            if speeds[0] is not None and speeds[1] is not None:
                ideal = flops.seconds(*(s.metrics["flops_per_second"] for s in speeds if s is not None))
                share = f"{100 * ideal / m['seconds']:.0f} %"
            times = [f"{1e3 * m['seconds']:.2f}", f"{1e3 * m['svgp_seconds']:.2f}", f"{m['ratio']:.2f}"]
            rate = f"{flops.total / m['seconds'] / 1e9:.1f}"
            rows.append([str(size), str(batch), *times, rate, share, f"{m['float32_error']:.0e}"])
    known = zip(step.PRECISIONS, speeds, strict=True)
    gemm = [f"{p} {s.metrics['flops_per_second'] / 1e9:.0f} Gflop/s" for p, s in known if s is not None]
    return f"{markdown_table(header, rows, num_text=0)}\n\nProducts of square matrices: {', '.join(gemm) or 'not run'}."


def _race(plan: RacePlan, store: Store) -> str:
    rows: Rows = []
    for dataset in plan.datasets:
        mine = [race_results.ours(plan, store, dataset, split) for split in range(plan.splits)]
        for number, budget in enumerate(plan.budgets):
            rows += _race_row(dataset, f"cvgp, {budget:g} s", [found[number] for found in mine if len(found) > number])
        peers = [race_results.best_peers(plan, store, dataset, split) for split in range(plan.splits)]
        for name in dict.fromkeys(contestant.name for contestant in plan.contestants):
            rows += _race_row(dataset, name, [best[name] for best in peers if name in best])
    header = ("set", "method", "chosen", "seconds", "RMSE", "mean log-likelihood", "splits")
    return f"Medians over splits, with their range:\n\n{markdown_table(header, rows, num_text=3)}"


_RACE_COLUMNS = (("seconds", 2), ("rmse", 4), ("log_likelihood", 4))


def _race_row(dataset: str, name: str, records: list[Record]) -> Rows:
    if not records:
        return []
    chosen = {" ".join(str(r.task[k]) for k in ("optimiser", "learning_rate") if k in r.task) for r in records}
    numbers = [race_results.spread([r.metrics[k] for r in records], f".{n}f") for k, n in _RACE_COLUMNS]
    return [[dataset, name, " or ".join(sorted(chosen)) or "-", *numbers, str(len(records))]]


def _small(plan: small.Plan, store: Store) -> str:
    rows: Rows = []
    for dataset in plan.datasets:
        for method in small.METHODS:
            found = [store.finished(small.task(plan, dataset, s, method).key) for s in range(plan.splits)]
            records = [record for record in found if record is not None]
            if records:
                cells = [f"{mean(r.metrics[k] for r in records):.{n}f}" for k, n in _RACE_COLUMNS]
                rows.append([dataset, method, *cells, str(len(records))])
    return markdown_table(("set", "method", "seconds", "RMSE", "mean log-likelihood", "splits"), rows, num_text=2)


def _large(plan: large.Plan, store: Store) -> str:
    header = ("data", "method", "rows", "seconds", "RMSE", "mean log-likelihood", "data, MB", "beyond, MB", "peak, MB")
    rows: Rows = []
    for task in large.tasks(plan):
        record = store.finished(task.key)
        if record is None:
            continue
        m = record.metrics
        beyond = "-" if "memory_before" not in m else f"{(m['peak_memory'] - m['memory_before']) / 1e6:.0f}"
        rows.append(
            [
                str(task.key["dataset"]),
                str(task.key["method"]),
                f"{m['rows']:.0f}",
                f"{m['seconds']:.1f}",
                f"{m['rmse']:.4f}",
                f"{m['log_likelihood']:.4f}",
                f"{m['data_memory'] / 1e6:.0f}",
                beyond,
                f"{m['peak_memory'] / 1e6:.0f}",
            ]
        )
    return markdown_table(header, rows, num_text=2)


def _shared(plan: shared.Plan, store: Store) -> str:
    rows: Rows = []
    for case in plan.cases:
        for method in shared.METHODS:
            found = {fits: store.finished(shared.task(plan, case, method, fits).key) for fits in plan.fits}
            alone = found.get(1)
            for fits, record in found.items():
                if record is not None:
                    seconds = record.metrics["seconds"]
                    ratio = "-" if alone is None else f"{seconds / alone.metrics['seconds']:.2f}"
                    rows.append([str(case.size), str(case.steps), method, str(fits), f"{seconds:.1f}", ratio])
    header = ("M", "steps", "method", "fits at once", "seconds per fit", "times as long as alone")
    return markdown_table(header, rows, num_text=3)


def _prediction(plan: prediction.Plan, store: Store) -> str:
    header = (
        "rows",
        "what",
        "precision",
        "cvgp, rows/s",
        "SVGP, rows/s",
        "ratio",
        "cvgp, µs per call",
        "SVGP, µs per call",
    )
    rows: Rows = []
    for task in prediction.tasks(plan):
        record = store.finished(task.key)
        if record is None or task.key["what"] != "rows":
            continue
        m = record.metrics
        rows.append(
            [
                str(task.key["rows"]),
                "mean + sd" if task.key["with_sd"] else "mean",
                str(task.key["precision"]),
                f"{m['rows_per_second']:.3g}",
                f"{m['svgp_rows_per_second']:.3g}",
                f"{m['ratio']:.2f}",
                f"{1e6 * m['seconds']:.0f}",
                f"{1e6 * m['svgp_seconds']:.0f}",
            ]
        )
    starts: Rows = []
    for what in prediction.STARTS:
        record = store.finished(prediction.startup_task(plan, what).key)
        if record is not None:
            starts.append([f"`{what}`", f"{record.metrics['seconds']:.2f}"])
    processes = markdown_table(("a new process", "seconds"), starts, num_text=1)
    return f"{markdown_table(header, rows, num_text=3)}\n\n{processes}"


def _growth(plan: growth.Plan, store: Store) -> str:
    rows: Rows = []
    for variable, cases in growth.cases(plan).items():
        records = [store.finished(growth.task(plan, case).key) for case in cases]
        values = [growth.value_of(variable, case) for case in cases]
        known = [(v, c, r) for v, c, r in zip(values, cases, records, strict=True) if r is not None]
        if len(known) < 2:
            continue
        times = [r.metrics["seconds"] for _, _, r in known]
        flops = [step_flops(c.size, c.batch or c.rows or 0, c.dims).total for _, c, _ in known]
        taken = [v for v, _, _ in known]
        rows.append(
            [
                variable,
                "pass over all rows" if variable == "N" else "training step",
                f"{min(taken):g} to {max(taken):g}",
                THEORY[variable],
                f"{growth.exponent(taken, flops):.2f}",
                f"{growth.exponent(taken, times):.2f}",
                _milliseconds(times),
            ]
        )
    header = ("variable", "of", "range", "theory", "exponent of the operations", "exponent of the time", "ms")
    return markdown_table(header, rows, num_text=4)


def _milliseconds(times: Sequence[float]) -> str:
    return f"{1e3 * times[0]:.3g} to {1e3 * times[-1]:.3g}"
