"""Bayesian optimization with CVGPModel and with BoTorch's SingleTaskGP: regret and seconds.

Both have the same kernel, priors, start, acquisition function and optimizer. On the two test functions each iteration
fits the model again. With many observations at the start, both get the hyperparameters that 500 of the rows teach, and
an iteration conditions on the observation before it; SingleTaskGP's own fit, which would take far longer than all
iterations, is not counted.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.acquisition import qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.exceptions.warnings import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from botorch.optim import optimize_acqf
from botorch.test_functions import Branin, Hartmann, SyntheticTestFunction
from botorch.utils.datasets import SupervisedDataset
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from cvgp.adapters.botorch import CVGPModel
from experiments.markdown import markdown_table
from experiments.runner import Task
from experiments.store import Outcome, Record, Store

DOUBLE: dict[str, Any] = {"dtype": torch.float64}
SEARCH: dict[str, Any] = {"num_restarts": 4, "raw_samples": 128, "options": {"maxiter": 100}}
SUBSET = 500


class Problem(NamedTuple):
    """A function to maximize, and how long."""

    function: Callable[[], SyntheticTestFunction]
    start: int
    iterations: int


class Large(NamedTuple):
    """Many noisy observations to begin with."""

    rows: int
    iterations: int
    noise: float = 0.1


PROBLEMS = {
    "branin": Problem(lambda: Branin(negate=True, dtype=torch.float64), 6, 20),
    "hartmann6": Problem(lambda: Hartmann(negate=True, dtype=torch.float64), 12, 40),
}
LARGE_START = Large(5000, 3)
MODELS = ("CVGPModel", "SingleTaskGP")


def key_of(name: str, model: str, seed: int) -> dict[str, Any]:
    """What a run is stored under."""
    problem = PROBLEMS[name]
    sizes = {"start": problem.start, "iterations": problem.iterations}
    return {"benchmark": "optimization", "problem": name, "model": model, "seed": seed} | sizes


def large_key(large: Large, model: str) -> dict[str, Any]:
    """What a run with many observations at the start is stored under."""
    sizes = {"start": large.rows, "iterations": large.iterations}
    return {"benchmark": "optimization", "problem": "hartmann6 noisy", "model": model, "seed": 0} | sizes


def tasks(names: Sequence[str], seeds: int, large: Large | None) -> list[Task]:
    """Both models in turn on each problem and seed, then with many observations at the start."""
    found = [
        Task(key_of(name, model, seed), lambda n=name, m=model, s=seed: _run(n, m, s), ours=model == "CVGPModel")
        for seed in range(seeds)
        for name in names
        for model in MODELS
    ]
    if large is not None:
        found += [
            Task(large_key(large, model), lambda m=model: _run_large(large, m), ours=model == "CVGPModel")
            for model in MODELS
        ]
    return found


def _fitted(model: str, X: Tensor, Y: Tensor) -> Model:
    if model == "SingleTaskGP":
        gp: Model = SingleTaskGP(X, Y, input_transform=Normalize(d=X.shape[-1]))
    else:
        names = [f"x{i}" for i in range(X.shape[-1])]
        data = SupervisedDataset(X, Y, feature_names=names, outcome_names=["y"])
        gp = CVGPModel(**CVGPModel.construct_inputs(data))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
    return gp


def _quiet() -> None:
    warnings.simplefilter("ignore", BotorchWarning)  # of optimizers that stopped at their limit
    warnings.simplefilter("ignore", RuntimeWarning)


def _run(name: str, model: str, seed: int) -> Outcome:
    """The simple regret after each iteration, and the seconds on the processor."""
    problem = PROBLEMS[name]
    function = problem.function()
    bounds = function.bounds.to(**DOUBLE)
    torch.manual_seed(seed)
    X = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(problem.start, bounds.shape[1], **DOUBLE)
    Y = function(X)[:, None]
    regret, fit_seconds, search_seconds = [], 0.0, 0.0
    with warnings.catch_warnings():
        _quiet()
        for _ in range(problem.iterations):
            begin = time.process_time()
            gp = _fitted(model, X, Y)
            fitted = time.process_time()
            x, _value = optimize_acqf(qLogExpectedImprovement(gp, best_f=Y.max()), bounds, q=1, **SEARCH)
            search_seconds += time.process_time() - fitted
            fit_seconds += fitted - begin
            X, Y = torch.cat([X, x]), torch.cat([Y, function(x)[:, None]])
            regret.append(function.optimal_value - Y.max().item())
    count = problem.iterations
    metrics = {f"regret_{i + 1}": value for i, value in enumerate(regret)}
    own = {"regret": regret[-1], "fit_seconds": fit_seconds / count, "search_seconds": search_seconds / count}
    return Outcome(metrics | own)


def _run_large(large: Large, model: str) -> Outcome:
    """Seconds of an iteration on the processor, with many observations."""
    function = Hartmann(negate=True, dtype=torch.float64)
    bounds = function.bounds.to(**DOUBLE)
    torch.manual_seed(0)
    X = torch.rand(large.rows, 6, **DOUBLE)
    Y = function(X)[:, None] + large.noise * torch.randn(large.rows, 1, **DOUBLE)
    with warnings.catch_warnings():
        _quiet()
        begin = time.process_time()
        gp = _fitted(model, X, Y) if model == "CVGPModel" else _with_hyperparameters(X, Y)
        gp.posterior(X[:2])  # makes what all predictions share
        ready = time.process_time() - begin
        seconds, found = [], []
        for _ in range(large.iterations):
            begin = time.process_time()
            acquisition = qLogNoisyExpectedImprovement(gp, X_baseline=X[Y[:, 0].topk(50).indices])
            x, _value = optimize_acqf(acquisition, bounds, q=1, **SEARCH)
            y = function(x)[:, None] + large.noise * torch.randn(1, 1, **DOUBLE)
            gp = gp.condition_on_observations(x, y)
            gp.posterior(x)
            seconds.append(time.process_time() - begin)
            found.append(function(x).item())
    points = len(gp.X_c) if isinstance(gp, CVGPModel) else len(gp.train_inputs[0])
    return Outcome(
        {
            "ready_seconds": ready,
            "iteration_seconds": float(np.median(seconds)),
            "regret": function.optimal_value - max(found),
            "points": float(points),
        }
    )


def _with_hyperparameters(X: Tensor, Y: Tensor) -> SingleTaskGP:
    """SingleTaskGP of all rows with what some of them teach."""
    D = X.shape[-1]
    some = _fitted("SingleTaskGP", X[:SUBSET], Y[:SUBSET])
    gp = SingleTaskGP(X, Y, input_transform=Normalize(d=D))
    for part in ("covar_module", "mean_module", "likelihood"):
        getattr(gp, part).load_state_dict(getattr(some, part).state_dict())
    return gp.eval()


def report(names: Sequence[str], seeds: int, large: Large | None, store: Store) -> str:
    """Regret and seconds on the test functions, and seconds with many observations."""
    header = ("problem", "model", "seeds", "median regret", "quartiles", "fit", "acquisition")
    rows = []
    for name in names:
        for model in MODELS:
            records = _finished(store, [key_of(name, model, seed) for seed in range(seeds)])
            if records:
                rows.append(_row(name, model, records))
    parts = [markdown_table(header, rows, num_text=2), "Seconds on one processor per iteration, medians over seeds."]
    if large is not None:
        parts.append(_large_table(large, store))
    return "\n\n".join(parts)


def _finished(store: Store, keys: Sequence[dict[str, Any]]) -> list[Record]:
    return [record for record in map(store.finished, keys) if record is not None]


def _row(name: str, model: str, records: Sequence[Record]) -> list[str]:
    low, middle, high = np.quantile([record.number("regret") for record in records], [0.25, 0.5, 0.75])
    problem = f"{name}, {PROBLEMS[name].start} + {PROBLEMS[name].iterations} observations"
    seconds = [f"{np.median([r.number(metric) for r in records]):.2f}" for metric in ("fit_seconds", "search_seconds")]
    return [problem, model, str(len(records)), f"{middle:.2g}", f"{low:.2g} to {high:.2g}", *seconds]


def _large_table(large: Large, store: Store) -> str:
    header = [f"{large.rows} noisy observations of hartmann6", "points", "seconds until the first"]
    header += ["seconds per iteration", f"regret after {large.iterations}"]
    forms = {"points": ".0f", "ready_seconds": ".1f", "iteration_seconds": ".1f", "regret": ".2f"}
    rows = [
        [model, *(format(record.number(metric), form) for metric, form in forms.items())]
        for model in MODELS
        for record in _finished(store, [large_key(large, model)])
    ]
    return markdown_table(header, rows, num_text=1)
