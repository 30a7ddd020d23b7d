"""Data beyond memory: speed and memory of fits to Parquet files, beside the same rows in memory."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.environments import WORK_FOLDER
from benchmarks.peers.workers import Session
from benchmarks.runner import Task
from cvgp.paper.datasets.waves import NUM_WAVES
from cvgp.paper.markdown import markdown_table, origin
from cvgp.paper.store import Outcome, Record, Store

__all__ = ["HOW", "Plan", "full", "quick", "report", "task", "tasks", "write_files"]

NUM_DIMS = 10
NUM_FILES = 10
GROUP_ROWS = 250_000
HOW = ("memory", "files")
MOST_BEYOND = 1.5e9
LEAST_RATIO = 0.5


@dataclass(frozen=True)
class Plan:
    """What to run."""

    rows: tuple[int, ...]
    size: int
    steps: int
    threads: int


def full(threads: int) -> Plan:
    """What the documentation shows."""
    return Plan((10**6, 10**7), size=200, steps=6000, threads=threads)


def quick(threads: int) -> Plan:
    """A few seconds."""
    return Plan((20_000,), size=20, steps=100, threads=threads)


def tasks(plan: Plan) -> list[Task]:
    """Each length, in memory and in files."""
    return [task(plan, rows, how) for rows in plan.rows for how in HOW]


def task(plan: Plan, rows: int, how: str) -> Task:
    """One fit, one pass, and from files one prediction of all rows."""
    key = {
        "benchmark": "streaming",
        "rows": rows,
        "dims": NUM_DIMS,
        "how": how,
        "size": plan.size,
        "steps": plan.steps,
        "threads": plan.threads,
    }
    return Task(key, lambda: _measure(plan, rows, how))


def write_files(folder: Path, num_rows: int, num_files: int = NUM_FILES) -> None:
    """Waves (see `datasets`) in files, one after another, so that not all rows are ever in memory."""
    rng = np.random.default_rng(0)
    relevant = np.arange(NUM_DIMS) < NUM_DIMS // 2
    directions = relevant * rng.standard_normal((NUM_WAVES, NUM_DIMS)) / np.sqrt(relevant.sum())
    phases = rng.uniform(0.0, 2.0 * np.pi, NUM_WAVES)
    for number, rows in enumerate(np.diff(np.linspace(0, num_rows, num_files + 1).astype(int))):
        own = np.random.default_rng([1, number])
        x = own.standard_normal((rows, NUM_DIMS))
        y = 0.1 * own.standard_normal(rows)
        for direction, phase in zip(directions, phases, strict=True):
            y += np.sqrt(2.0 / NUM_WAVES) * np.cos(x @ direction + phase)
        table = pa.table({**{f"x{d}": x[:, d] for d in range(NUM_DIMS)}, "y": y})
        pq.write_table(table, folder / f"part-{number:03d}.parquet", row_group_size=GROUP_ROWS)


def report(plan: Plan, store: Store) -> str:
    """The table, what it says about the targets, and where it comes from."""
    header = ("rows", "from", "data, MB", "memory above the import, MB", "first look, s")
    header += ("Adam steps/s", "pass, rows/s", "whole fit, s", "prediction, rows/s")
    found: dict[tuple[int, str], Record] = {}
    lines = []
    for rows in plan.rows:
        for how in HOW:
            record = store.finished(task(plan, rows, how).key)
            if record is None:
                continue
            found[rows, how] = record
            m = record.metrics
            names = ("survey_seconds", "steps_per_second", "pass_rows_per_second", "fit_seconds")
            look, steps, passed, fit = (m.get(name) for name in names)
            lines.append(
                [
                    f"{rows:.0e}",
                    how,
                    f"{m['data_memory'] / 1e6:.0f}",
                    f"{(m['peak_memory'] - m['memory_before']) / 1e6:.0f}",
                    "-" if look is None else f"{look:.1f}",
                    f"{steps:.0f}",
                    f"{passed:.2e}",
                    f"{fit:.0f}",
                    f"{m['predict_rows_per_second']:.2e}" if how == "files" else "-",
                ]
            )
    missing = len(plan.rows) * len(HOW) - len(found)
    notes = [_verdict(plan, found), origin(list(found.values()))]
    if missing:
        notes.append(f"**{missing} of {len(plan.rows) * len(HOW)} tasks are missing.**")
    return "\n\n".join([markdown_table(header, lines, num_text=2), *notes])


def _verdict(plan: Plan, found: dict[tuple[int, str], Record]) -> str:
    rows = plan.rows[-1]
    if not all((rows, how) in found for how in HOW):
        return "The target has yet to be measured."
    files, memory = found[rows, "files"].metrics, found[rows, "memory"].metrics
    beyond = files["peak_memory"] - files["memory_before"]
    steps, passed, busy_steps, busy_passed = (
        files[name] / memory[name]
        for unit in ("second", "processor_second")
        for name in (f"steps_per_{unit}", f"pass_rows_per_{unit}")
    )
    met = beyond < MOST_BEYOND and min(steps, passed) >= LEAST_RATIO
    return (
        f"At {rows:.0e} rows, files take {beyond / 1e9:.2f} GB above the import (target: under {MOST_BEYOND / 1e9:g}), "
        f"and {steps:.2f} of the speed of memory in steps, {passed:.2f} in passes (target: at least {LEAST_RATIO:g}): "
        f"{'pass' if met else 'FAIL'}. By processor time, of all threads, it is {busy_steps:.2f} and {busy_passed:.2f}."
    )


def _measure(plan: Plan, rows: int, how: str) -> Outcome:
    with _files(rows) as folder:
        settings = {"method": how, "folder": str(folder), "size": plan.size, "steps": plan.steps}
        with Session("streaming", settings, {}, threads=plan.threads) as session:
            done = session.finish()
    numbers = {name: float(value) for name, value in done.items() if not isinstance(value, str)}
    words = {name: value for name, value in done.items() if isinstance(value, str)}
    return Outcome(numbers | {"data_memory": 8.0 * rows * (NUM_DIMS + 1)}, origin=words)


@contextmanager
def _files(num_rows: int) -> Iterator[Path]:
    WORK_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK_FOLDER) as name:
        write_files(Path(name), num_rows)
        yield Path(name)
