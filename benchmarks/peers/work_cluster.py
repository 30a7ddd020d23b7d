"""One of several processes that time what they do together: a step, a pass over their rows, and a sum."""

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cvgp import CVGP, Coreset
from cvgp.data.arrays import MemorySource
from cvgp.data.split import SharedSource
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.objectives.full_batch import CHUNK_ROWS, TitsiasObjective
from cvgp.parallel.group import Group
from cvgp.parallel.process_group import process_group
from cvgp.training.fit import fit_model
from cvgp.training.monitor import Watch
from cvgp.training.plan import Settings

SUMS = (8, 8192, 65_536, 524_288, 2_097_152)
"""Bytes that are summed over the processes."""


def make_model(size: int, dims: int) -> CVGP:
    rng = np.random.default_rng(0)
    coreset = Coreset(rng.standard_normal((size, dims)), rng.standard_normal(size), np.full(size, 10.0))
    return CVGP(coreset, make_kernel("matern32", dims), likelihood=gaussian_likelihood(0.1))


def make_rows(count: int, dims: int, rank: int) -> MemorySource:
    rng = np.random.default_rng([1, rank])
    x = rng.standard_normal((count, dims))
    y = np.sin(x.sum(axis=1)) + 0.3 * rng.standard_normal(count)
    return MemorySource(torch.as_tensor(x), torch.as_tensor(y))


def median(times: list[float]) -> float:
    return statistics.median(times)


def timed(call: Callable[[], Any], count: int) -> float:
    """The median time of some calls, after one that is not counted."""
    times = []
    for _ in range(count + 1):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return median(times[1:])


def step_seconds(group: Group, rows: int, size: int, dims: int, steps: int) -> float:
    """A step of Adam with so many rows per process, the meetings included."""
    ends: list[float] = []
    watch = Watch(callbacks=[lambda event: ends.append(time.perf_counter())], group=group)
    own = make_rows(4 * rows, dims, group.rank)
    source = own if group.world == 1 else SharedSource(own, group)
    settings = Settings(solver="adam", max_iter=steps, batch_size=rows * group.world, dtype="float32", bound="elbo")
    fit_model(make_model(size, dims), source, settings, watch)
    return median(list(np.diff(ends[steps // 4 :])))


def pass_seconds(group: Group, rows: int, size: int, dims: int, repeats: int) -> float:
    """An evaluation of the bound on all rows, with its gradient."""
    source = make_rows(rows, dims, group.rank)
    objective = TitsiasObjective(
        make_model(size, dims), lambda: source.chunks(CHUNK_ROWS), rows, tight=True, group=group
    )
    return timed(objective.value_and_backward, repeats)


def sum_seconds(group: Group, num_bytes: int, repeats: int) -> float:
    values = torch.zeros(num_bytes // 8, dtype=torch.float64)
    return timed(lambda: group.sum([values]), repeats)


def main(settings_path: Path) -> None:
    told = json.loads(settings_path.read_text())
    size, dims, repeats = told["size"], told["dims"], told["repeats"]
    with process_group() as group:
        torch.set_num_threads(1)  # a worker is a core
        found = {f"step_{rows}": step_seconds(group, rows, size, dims, 20 * repeats) for rows in told["batches"]}
        found |= {f"pass_{rows}": pass_seconds(group, rows, size, dims, repeats) for rows in told["rows"]}
        if group.world > 1:
            found |= {f"sum_{count}": sum_seconds(group, count, 20 * repeats) for count in SUMS}
        if group.rank == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
