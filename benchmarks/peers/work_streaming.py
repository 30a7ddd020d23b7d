"""cvgp on Parquet files, in parts or loaded: steps, a pass over all rows, and predictions of all of them."""

import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import torch

import cvgp
from benchmarks.peers.protocol import Job, resident_memory, run
from cvgp import CVGPRegressor
from cvgp.cli import app
from cvgp.data.arrays import MemorySource
from cvgp.data.source import DataSource
from cvgp.data.tables import training_table as table_module
from cvgp.objectives.full_batch import CHUNK_ROWS, statistics

WARM_UP = 50
"""Steps that are not counted."""


def in_memory(job: Job) -> Mapping[str, float | str]:
    """The rows are loaded, as a user would who has the memory."""
    before = resident_memory()
    frame = ds.dataset(job.settings["folder"]).to_table().to_pandas()
    x, y = frame.drop(columns="y").to_numpy(), frame["y"].to_numpy()
    del frame
    model, numbers = _fit(job, x, y)
    scaling = model.gp_.scaling
    source = MemorySource(torch.as_tensor(scaling.scale_x(x)), torch.as_tensor(scaling.scale_y(y[:, None])[:, 0]))
    return {**numbers, **_pass(model, source), "memory_before": before}


def from_files(job: Job) -> Mapping[str, float | str]:
    """The rows stay where they are."""
    table_module.IN_MEMORY_BYTES = 0  # also where they would fit
    before = resident_memory()
    begin = time.perf_counter()
    table = table_module.TrainingTable(job.settings["folder"], "y")
    look = time.perf_counter() - begin
    model, numbers = _fit(job, table, "y")
    passed = _pass(model, table.source(model.gp_.scaling))
    stored, out = job.folder / "model.cvgp", job.folder / "out.parquet"
    model.save(stored)
    begin = time.perf_counter()
    app(["predict", str(stored), job.settings["folder"], "--out", str(out)], standalone_mode=False)
    speed = table.num_rows / (time.perf_counter() - begin)
    assert Path(out).exists()
    return {
        **numbers,
        **passed,
        "fit_seconds": numbers["fit_seconds"] + look,
        "survey_seconds": look,
        "predict_rows_per_second": speed,
        "memory_before": before,
    }


def _fit(job: Job, x: Any, y: Any) -> tuple[CVGPRegressor, dict[str, float]]:
    times: list[tuple[float, float]] = []

    def note(event: Any) -> None:
        if event.phase == "adam":
            times.append((time.perf_counter(), time.process_time()))

    begin = time.perf_counter()
    model = CVGPRegressor(
        job.settings["size"], random_state=0, solver="adam", max_iter=job.settings["steps"], callbacks=[note]
    ).fit(x, y)
    seconds = time.perf_counter() - begin
    counted = times[min(WARM_UP, len(times) // 2) :]
    by_clock, by_processor = (end - start for start, end in zip(counted[0], counted[-1], strict=True))
    steps = len(counted) - 1
    return model, {
        "steps_per_second": steps / by_clock,
        "steps_per_processor_second": steps / by_processor,
        "fit_seconds": seconds,
    }


def _pass(model: CVGPRegressor, source: DataSource) -> dict[str, float]:
    begin, processor = time.perf_counter(), time.process_time()
    statistics(model.model_, source.chunks(CHUNK_ROWS))
    return {
        "pass_rows_per_second": source.num_rows / (time.perf_counter() - begin),
        "pass_rows_per_processor_second": source.num_rows / (time.process_time() - processor),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"memory": in_memory, "files": from_files}, {"cvgp": cvgp.__version__, "torch": torch.__version__})
