"""The pass over the rows that closes a fit, where a time limit leaves little time for it."""

import time
import warnings
from copy import deepcopy

import numpy as np
import torch

from cvgp.data.source import DataSource
from cvgp.errors import CVGPWarning
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.host import kept_warnings
from cvgp.objectives.full_batch import CHUNK_ROWS, statistics_and_gain
from cvgp.training.monitor import Watch
from cvgp.training.plan import Plan

LARGEST_CLOSE = 0.4
"""Of the time that is left when training begins, what may be kept back for the pass over the rows at the end."""


def plan_close(model: CVGP, source: DataSource, watch: Watch) -> int | None:
    """Keep back the time that closing a fit takes, by one chunk that is timed.

    Returns how many rows there will be time to read at the end; None for all of them.
    """
    trial, begin = deepcopy(model), time.perf_counter()
    rows = source.sample(CHUNK_ROWS, np.random.default_rng(0))
    with kept_warnings():
        found, _ = statistics_and_gain(trial, [rows])
        read = time.perf_counter() - begin
        trial.adopt_optimum(found)
        solved = time.perf_counter() - begin - read
    share = len(rows.x) / (source.num_rows / source.group.world)
    own = torch.tensor([read / share, solved], dtype=torch.float64)
    read, solved = source.group.first([own])[0].tolist()
    assert watch.max_time is not None
    most = LARGEST_CLOSE * max(watch.max_time - watch.seconds, 0.0) - solved
    watch.keep_back(min(read, max(most, 0.0)) + solved)
    affordable = max(int(source.num_rows * most / read), len(rows.x))
    return None if read <= most or affordable >= source.num_rows else affordable


def estimated(
    model: CVGP, source: DataSource, plan: Plan, to_read: int, rng: np.random.Generator
) -> tuple[Statistics, float]:
    """The sums over all rows, estimated from some of them."""
    warnings.warn(
        f"max_time left time to read {to_read} of {source.num_rows} rows when the fit was closed, so the coreset was "
        "solved for these. Give it more time or fewer pseudo-points.",
        CVGPWarning,
        stacklevel=2,
    )
    rows = source.sample(to_read, rng)
    chunks = (rows.take(slice(first, first + CHUNK_ROWS)) for first in range(0, len(rows.x), CHUNK_ROWS))
    found, gain = statistics_and_gain(model, chunks, power=plan.power)
    read = len(rows.x) if rows.sample_weight is None else rows.sample_weight.sum().item()
    scale = source.total_weight / read
    return Statistics(*(scale * total for total in found)), scale * gain
