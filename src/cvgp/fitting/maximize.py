"""Bounds on all rows, maximized by L-BFGS."""

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.fitting.checkpoint import LBFGS_FILE, Checkpoint
from cvgp.fitting.monitor import Phase, Run
from cvgp.gp.model import CVGP
from cvgp.objectives import CHUNK_ROWS, Objective, TitsiasObjective, solve_coreset
from cvgp.optim import Progress, Result, Status, minimize_lbfgs, read_vector, write_vector
from cvgp.parallel.group import ALONE, Group, check_same
from cvgp.runtime import clean_torch_state


def maximize_by_lbfgs(
    objective: Objective,
    num_data: float,
    run: Run,
    *,
    max_evaluations: int,
    tol: float,
    phase: str = "lbfgs",
    group: Group = ALONE,
    checkpoint: Checkpoint | None = None,
) -> Result:
    """Maximize a bound for `num_data` rows; the objective's parameters are left at the best point found."""
    parameters = objective.parameters
    best, point, before = math.inf, read_vector(parameters), 0

    def store(number: int, *, now: bool, ended: bool = False) -> None:
        if checkpoint is not None:
            checkpoint.save(LBFGS_FILE, {"point": point, "evaluations": number, "ended": ended}, now=now)

    if checkpoint is not None:
        stored = checkpoint.load(LBFGS_FILE, {"point": point, "evaluations": 0, "ended": False})
        if stored is not None:
            write_vector(parameters, stored["point"])
            point, before = stored["point"], stored["evaluations"]
            if stored["ended"]:
                return Result(Status.CONVERGED, math.nan, before)

    def negative_bound_per_row() -> float:
        nonlocal best, point
        if group.world > 1:
            check_same(group, torch.cat([p.detach().reshape(-1) for p in parameters]), "The points that L-BFGS tries")
        value = objective.value_and_backward(-1.0 / num_data)
        if checkpoint is not None and value < best:
            best, point = value, read_vector(parameters)
        return value

    observe = Phase(run, phase, max_evaluations, group=group, warns=phase == "lbfgs")

    def monitor(progress: Progress) -> Status | None:
        number = before + progress.iteration
        try:
            status = observe(progress._replace(iteration=number))
        except KeyboardInterrupt:
            store(number, now=True)
            raise
        store(number, now=status is not None)
        return status

    evaluations = max(max_evaluations - before, 1)
    result = minimize_lbfgs(parameters, negative_bound_per_row, max_evaluations=evaluations, tol=tol, monitor=monitor)
    result, point = result._replace(num_iter=before + result.num_iter), read_vector(parameters)
    store(result.num_iter, now=True, ended=result.status not in (Status.TIME_LIMIT, Status.INTERRUPTED))
    return result


@clean_torch_state()
def maximize(
    model: CVGP,
    X: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    sample_weight: ArrayLike | Tensor | None = None,
    noise_variance: ArrayLike | Tensor | None = None,
    *,
    bound: Literal["elbo", "tight"] = "tight",
    max_iter: int = 200,
    tol: float = 1e-4,
    max_time: float | None = None,
) -> float:
    """Maximize the bound of a model on all rows by L-BFGS, in place.

    Kernel, mean, noise and pseudo-inputs are learned if they require gradients; pseudo-outputs and weights are solved
    for in closed form. The data are taken as they are.

    Parameters
    ----------
    model : CVGP
        Where to begin; it is changed.
    X : array-like of shape (n_samples, n_features)
        Inputs.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Outputs; as many as the pseudo-outputs have.
    sample_weight : array-like of shape (n_samples,), optional
        How often each row counts.
    noise_variance : array-like of shape (n_samples,), optional
        Known noise variances, to which the learned one is added.
    bound : {"tight", "elbo"}
        The bound that the search maximizes: the tighter one of Titsias (2025), or the paper's.
    max_iter : int
        The most evaluations of the bound.
    tol : float
        Stop when the bound gains less than this many nats per row in ten iterations.
    max_time : float, optional
        Seconds.

    Returns
    -------
    float
        The paper's bound of the model on all rows, in nats.

    Examples
    --------
    >>> import cvgp, numpy as np
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = cvgp.CVGP(cvgp.Coreset.from_data(X, y, 8))
    >>> bound = cvgp.maximize(model, X, y)
    """
    if bound not in ("elbo", "tight"):
        raise InvalidInputError(f"bound must be 'elbo' or 'tight'; got {bound!r}.")
    if max_iter < 1 or not tol >= 0.0:
        raise InvalidInputError(f"max_iter must be at least 1 and tol at least 0; got {max_iter!r} and {tol!r}.")
    x, outputs = _as_tensor(X, model), _as_tensor(y, model)
    weight, noise = (None if v is None else _as_tensor(v, model) for v in (sample_weight, noise_variance))
    with torch.no_grad():
        model.elbo(x, outputs, sample_weight=weight, noise_variance=noise)  # which checks all shapes and values
    source = MemorySource(x, outputs, weight, noise)
    objective = TitsiasObjective(model, lambda: source.chunks(CHUNK_ROWS), source.num_rows, tight=bound == "tight")
    with torch.enable_grad():
        maximize_by_lbfgs(objective, source.total_weight, Run.alone(max_time), max_evaluations=max_iter, tol=tol)
    model.zero_grad()
    model.set_site_noise_offset(source.harmonic_noise(model.noise.item()) - model.noise.item())
    return solve_coreset(model, source.chunks(CHUNK_ROWS))


def _as_tensor(values: ArrayLike | Tensor, model: CVGP) -> Tensor:
    found = values.detach() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values, dtype=np.float64))
    return found.to(model.X_c)
