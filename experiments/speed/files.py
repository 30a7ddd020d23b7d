"""Data beyond memory: speed and memory of fits to Parquet files, beside the same rows in memory."""

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.data import NUM_WAVES
from experiments.markdown import markdown_table
from experiments.peers.environments import WORK_FOLDER
from experiments.peers.workers import Session
from experiments.runner import Task
from experiments.store import Outcome, Store

NUM_DIMS = 10
NUM_FILES = 10
GROUP_ROWS = 250_000
HOW = ("memory", "files")


@dataclass(frozen=True)
class Plan:
    """What to run."""

    rows: tuple[int, ...]
    size: int
    steps: int
    threads: int = 1


def full(threads: int) -> Plan:
    """The measurements of the documentation, on one thread."""
    return Plan((10**6, 10**7), size=200, steps=6000)


def quick(threads: int) -> Plan:
    """A few seconds."""
    return Plan((20_000,), size=20, steps=100)


def tasks(plan: Plan) -> list[Task]:
    """Each length, in memory and in files."""
    return [task(plan, rows, how) for rows in plan.rows for how in HOW]


def task(plan: Plan, rows: int, how: str) -> Task:
    """One fit and, from files, one prediction of all rows."""
    data = {"benchmark": "streaming", "rows": rows, "dims": NUM_DIMS, "how": how}
    key = data | {"size": plan.size, "steps": plan.steps, "threads": plan.threads}
    return Task(key, partial(_measure, plan, rows, how))


def write_files(folder: Path, num_rows: int, num_files: int = NUM_FILES) -> None:
    """Waves in files, one after another, so that not all rows are ever in memory."""
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


def _measure(plan: Plan, rows: int, how: str) -> Outcome:
    WORK_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK_FOLDER) as folder:
        write_files(Path(folder), rows)
        settings = {"method": how, "folder": folder, "size": plan.size, "steps": plan.steps}
        with Session("cvgp", settings, {}, threads=plan.threads) as session:
            done = session.finish()
    numbers = {name: float(value) for name, value in done.items() if not isinstance(value, str)}
    words = {name: value for name, value in done.items() if isinstance(value, str)}
    return Outcome(numbers | {"data_memory": 8.0 * rows * (NUM_DIMS + 1)}, origin=words)


def report(plan: Plan, store: Store) -> str:
    """Memory and speed from memory and from files."""
    header = ("rows", "from", "data, MB", "memory above the import, MB", "Adam steps/s", "whole fit, s")
    rows = []
    for one in tasks(plan):
        record = store.finished(one.key)
        if record is not None:
            m = record.metrics
            memory = [f"{value / 1e6:.0f}" for value in (m["data_memory"], m["peak_memory"] - m["memory_before"])]
            predicted = f"{m['predict_rows_per_second']:.2e}" if one.key["how"] == "files" else "-"
            speed = [f"{m['steps_per_second']:.0f}", f"{m['fit_seconds']:.0f}", predicted]
            rows.append([f"{one.key['rows']:.0e}", str(one.key["how"]), *memory, *speed])
    return markdown_table((*header, "prediction, rows/s"), rows, num_text=2)
