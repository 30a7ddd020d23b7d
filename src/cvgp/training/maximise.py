"""A bound on all rows, maximised by L-BFGS: the one place that turns a bound into what is minimised.

A long search over many parameters would leave a large journal. It is made in stretches: each begins at the best point
of the one before, without a memory of curvature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from cvgp.objectives import Objective
from cvgp.optim.lbfgs import minimise_lbfgs, read_vector, write_vector
from cvgp.optim.stopping import Progress, Result, Status
from cvgp.parallel.group import ALONE, Group, check_same
from cvgp.training.journal import Beginning
from cvgp.training.monitor import Watch

if TYPE_CHECKING:
    from cvgp.training.checkpoint import Checkpoint

STRETCH_BYTES, SHORTEST_STRETCH = 256_000_000, 200
"""A stretch may leave this much in its journal, but ends after no fewer evaluations than this."""


def stretch_length(size: int) -> int:
    """Evaluations of one stretch of a search over so many parameters."""
    return max(STRETCH_BYTES // (8 * size), SHORTEST_STRETCH)


def maximise_by_lbfgs(
    objective: Objective,
    num_data: float,
    watch: Watch,
    *,
    max_evaluations: int,
    tol: float,
    phase: str = "lbfgs",
    group: Group = ALONE,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Maximise a bound over the objective's parameters, which are left at the best point found.

    Parameters
    ----------
    objective
        The bound.
    num_data
        How many rows it is a bound for: `tol` and the history are in nats per row.
    watch
        Records each evaluation, and says when to stop.
    max_evaluations, tol
        Limits: evaluations of the bound, and the least gain per row over ten iterations.
    phase
        The name of this search in the history.
    group
        The processes that evaluate the objective together.
    checkpoint
        Records the evaluations, so that an interrupted search can go on.
    """
    parameters = objective.parameters

    def negative_bound_per_row() -> float:
        if group.world > 1:
            check_same(group, torch.cat([p.detach().reshape(-1) for p in parameters]), "The points that L-BFGS tries")
        return objective.value_and_backward(-1.0 / num_data)

    watch.begin(phase, max_evaluations)
    size = sum(p.numel() for p in parameters)
    journal = None if checkpoint is None else checkpoint.journal(read_vector(parameters))
    num_before = 0
    if journal is not None and journal.beginning is not None:
        num_before = journal.beginning.num_before
        write_vector(parameters, journal.beginning.point)
    # A search that processes make on their own does not keep step with the others.
    observe = watch.observe if group.world == 1 else watch.monitor

    def monitor(progress: Progress) -> Status | None:
        status = observe(progress._replace(iteration=num_before + progress.iteration))
        # What is stored was paid for by an earlier run: a limit stops only what is new.
        is_free = journal is not None and journal.is_replaying
        return None if is_free and status is Status.TIME_LIMIT else status

    while True:
        result = minimise_lbfgs(
            parameters,
            negative_bound_per_row,
            max_evaluations=min(max_evaluations - num_before, stretch_length(size)),
            tol=tol,
            monitor=monitor,
            memo=None if journal is None else journal.evaluate,
        )
        num_before += result.num_iter
        if result.status is not Status.ITERATION_LIMIT or num_before >= max_evaluations:
            return result._replace(num_iter=num_before)
        if journal is not None:
            journal.begin_again(Beginning(read_vector(parameters), num_before))
