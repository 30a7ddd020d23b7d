"""The pass over the rows that closes a fit, where a time limit leaves little time for it."""

import warnings

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

TIMED_ROWS = 512
LEAST_OF_READING = 0.2
"""Of the time for 512 rows and their factorisation, what is the rows' at least."""
SOLVING = 16.0
"""Of a closed fit, what follows the pass over the rows: so many times as long as the factorisation before it. That is
the weights, and a comparison with simpler models."""
LARGEST_CLOSE = 0.4
"""Of the time that is left when training begins, what may be kept back for the pass over the rows at the end."""


def plan_close(model: CVGP, source: DataSource, watch: Watch) -> int | None:
    """Keep back the time that closing a fit takes, by one chunk that is timed.

    Returns how many rows there will be time to read at the end; None for all of them.
    """
    rows = source.sample(TIMED_ROWS, np.random.default_rng(0))
    with kept_warnings():
        begin = watch.own_seconds()
        statistics_and_gain(model, [])
        factorised = watch.own_seconds() - begin
        statistics_and_gain(model, [rows])
    both = watch.own_seconds() - begin - factorised
    read = max(both - factorised, LEAST_OF_READING * both)  # the first factorisation may take longer than the second
    share = len(rows.x) / (source.num_rows / source.group.world)
    own = torch.tensor([read / share, SOLVING * factorised], dtype=torch.float64)
    read, solved = source.group.first([own])[0].tolist()
    assert watch.max_time is not None
    most = LARGEST_CLOSE * max(watch.max_time - watch.seconds, 0.0) - solved
    watch.keep_back(min(read, max(most, 0.0)) + solved)
    affordable = max(int(source.num_rows * most / max(read, 1e-9)), CHUNK_ROWS)
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
    return found.times(scale), scale * gain
