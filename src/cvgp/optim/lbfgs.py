"""SciPy's L-BFGS on the parameters of a torch module: it stops on a plateau and restarts after failures."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from torch import Tensor

from cvgp.errors import DivergenceError, FactorizationError
from cvgp.optim.stopping import Monitor, Plateau, Progress, Result, Status
from cvgp.runtime import kept_warnings, single_threaded_blas, warn_or_keep

Vector = NDArray[np.float64]
Evaluation = tuple[float, Vector]
MEMORY = 30
"""Pairs of steps and gradients that estimate the curvature: three times the usual number, since a pair costs little
compared with an evaluation."""
MAX_RESTARTS = 3
PLATEAU_WINDOW = 10
FARTHEST = 20.0
"""Largest distance of a coordinate from its start. Parameters are logarithms or standardized inputs, which stay well
within it. It keeps a line search from overflowing where the objective is flat."""


class _StopSearch(Exception):  # noqa: N818 - a signal, not an error
    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status


def minimize_lbfgs(
    parameters: Sequence[Tensor],
    objective: Callable[[], float],
    *,
    max_evaluations: int,
    tol: float,
    monitor: Monitor = lambda progress: None,
) -> Result:
    """Minimize `objective`, which reads the parameters and leaves its gradient in their `grad`.

    After a failed factorization or a value that is not finite, the search restarts from the best point so far. It then
    has no memory of curvature, so its first step is short. After three such restarts the failure is raised.

    Parameters
    ----------
    parameters
        Tensors to optimize; they are left at the best point found.
    objective
        The value to minimize at the present parameters.
    max_evaluations, tol
        Limits: evaluations of the objective, and the least improvement over ten iterations.
    monitor
        Called after every evaluation; may stop the search.
    """
    search = _Search(parameters, objective, max_evaluations, Plateau(tol, PLATEAU_WINDOW), monitor)
    event = ""
    for restart in range(MAX_RESTARTS + 1):
        try:
            if event:
                search.report(event)
            with single_threaded_blas():
                found = minimize(
                    search.evaluate,
                    search.best_point,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=search.box,
                    callback=search.end_iteration,
                    options={
                        "maxiter": max_evaluations,
                        "maxfun": 10 * max_evaluations,
                        "maxcor": MEMORY,
                        "ftol": 0.0,
                        "gtol": 1e-10,
                    },
                )
            # SciPy succeeds if the gradient vanishes, or if a step changes nothing in floating point. Otherwise its
            # line search found no better point: SciPy's own limits are wider than ours and never reached.
            status = Status.CONVERGED if found.success else Status.ABNORMAL
            break
        except _StopSearch as stop:
            status = stop.status
            break
        except (FactorizationError, FloatingPointError) as failure:
            if restart == MAX_RESTARTS or not math.isfinite(search.best_value):
                raise
            event = f"restart after: {failure}"
    write_vector(parameters, search.best_point)
    # Jitter at a trial point does not matter unless the search ends there.
    for warning in search.best_warnings:
        warn_or_keep(warning)
    return Result(status, search.best_value, search.count)


class _Search:
    """The state of one search: evaluations so far and the best point among them."""

    def __init__(
        self,
        parameters: Sequence[Tensor],
        objective: Callable[[], float],
        max_evaluations: int,
        plateau: Plateau,
        monitor: Monitor,
    ) -> None:
        self.parameters = parameters
        self.objective = objective
        self.max_evaluations = max_evaluations
        self.plateau = plateau
        self.monitor = monitor
        self.count = 0
        self.best_value = math.inf
        self.best_warnings: list[Warning] = []
        self.best_point = read_vector(parameters)
        self.box = Bounds(self.best_point - FARTHEST, self.best_point + FARTHEST)

    def evaluate(self, point: Vector) -> Evaluation:
        if self.count >= self.max_evaluations:
            raise _StopSearch(Status.ITERATION_LIMIT)
        write_vector(self.parameters, point)
        with kept_warnings() as kept:
            value, gradient = self._compute()
        self.count += 1
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise DivergenceError("the objective or its gradient is not finite")
        if value < self.best_value:
            self.best_value, self.best_point, self.best_warnings = value, point.copy(), kept
        self.report("")
        return value, gradient

    def _compute(self) -> Evaluation:
        for p in self.parameters:
            p.grad = None
        return self.objective(), read_gradient(self.parameters)

    def end_iteration(self, xk: Vector) -> None:
        if self.plateau.update(self.best_value):
            raise _StopSearch(Status.CONVERGED)

    def report(self, event: str) -> None:
        status = self.monitor(Progress(self.count, self.best_value, math.nan, event))
        if status is not None:
            raise _StopSearch(status)


def read_vector(parameters: Sequence[Tensor]) -> NDArray[np.float64]:
    """Concatenate the parameters' values."""
    flat = torch.cat([p.detach().reshape(-1).to(torch.float64) for p in parameters])
    return flat.cpu().numpy()


def read_gradient(parameters: Sequence[Tensor]) -> NDArray[np.float64]:
    """Concatenate the parameters' gradients; a parameter without one counts as zero."""
    parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).to(torch.float64) for p in parameters]
    return torch.cat(parts).cpu().numpy()


@torch.no_grad()
def write_vector(parameters: Sequence[Tensor], vector: NDArray[np.float64]) -> None:
    """Set the parameters from their concatenation."""
    start = 0
    for p in parameters:
        stop = start + p.numel()
        p.copy_(torch.from_numpy(vector[start:stop]).view_as(p))
        start = stop
