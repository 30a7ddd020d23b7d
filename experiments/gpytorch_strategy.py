"""Our variational strategy inside GPyTorch against its own SVGP: seconds of a step, and the bound after equal steps.

Both are the same model: kernel, likelihood, objective, optimizer, batches and start are GPyTorch's, and only the
strategy differs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import gpytorch
import torch
from torch import Tensor

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
from experiments.markdown import markdown_table, number, origin
from experiments.runner import Task
from experiments.speed.step import NUM_DIMS, step_data
from experiments.splits import random_split
from experiments.store import Key, Outcome, Record, Store

METHODS = ("svgp", "coreset")
FITS = (*METHODS, "initialized")
"""The last one is the coreset whose sites are solved for before the first step, at the first kernel and noise."""
START_NOISE = 0.1
STEP_ROWS = 20_000
STEP_RATE = 0.01
WARM_UP_STEPS = 3
EVALUATED_ROWS = 4096
"""Rows whose part of the bound is evaluated at once."""


@dataclass(frozen=True)
class Plan:
    """What to run."""

    sizes: tuple[int, ...]
    batches: tuple[int, ...]
    rounds: int
    datasets: tuple[str, ...]
    rates: tuple[float, ...]
    steps: int
    size: int
    threads: int = 1


def full(datasets: tuple[str, ...]) -> Plan:
    """The tables of the documentation."""
    return Plan((100, 300, 1000), (512, 1024), 15, datasets, (0.01, 0.03, 0.1), steps=600, size=100)


def quick(datasets: tuple[str, ...]) -> Plan:
    """Small sizes and few steps."""
    return Plan((20,), (64,), 2, datasets, (0.03,), steps=5, size=10)


def step_key(plan: Plan, size: int, batch: int) -> Key:
    """The name of one measurement of seconds."""
    shared = {"benchmark": "gpytorch", "what": "step", "dims": NUM_DIMS, "precision": "float32"}
    return {**shared, "size": size, "batch": batch, "rounds": plan.rounds, "threads": plan.threads}


def bound_key(plan: Plan, dataset: str, method: str, rate: float) -> Key:
    """The name of one fit."""
    shared = {"benchmark": "gpytorch", "what": "bound", "dataset": dataset, "method": method, "rate": rate}
    batch = plan.batches[0]
    return {**shared, "steps": plan.steps, "size": plan.size, "batch": batch, "threads": plan.threads}


def tasks(plan: Plan) -> list[Task]:
    """Seconds of steps, then fits."""
    steps = [
        Task(step_key(plan, size, batch), lambda size=size, batch=batch: _time_steps(plan, size, batch))
        for size in plan.sizes
        for batch in plan.batches
    ]
    cases = [(name, method, rate) for name in plan.datasets for rate in plan.rates for method in FITS]
    fits = [Task(bound_key(plan, *case), lambda case=case: _fit(plan, *case), ours=case[1] != "svgp") for case in cases]
    return steps + fits


class Model(gpytorch.models.ApproximateGP):
    """GPyTorch's model of its SVGP example, with either strategy."""

    def __init__(self, points: Tensor, method: str) -> None:
        if method != "svgp":
            sites = CoresetVariationalDistribution(len(points))
            strategy: Any = CoresetVariationalStrategy(self, points, sites)
        else:
            distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            strategy = gpytorch.variational.VariationalStrategy(self, points, distribution)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        base = gpytorch.kernels.RBFKernel(ard_num_dims=points.shape[1])
        base.lengthscale = points.shape[1] ** 0.5
        self.covar_module = gpytorch.kernels.ScaleKernel(base)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()
        self.likelihood.noise = START_NOISE

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _stepper(model: Model, x: Tensor, y: Tensor, batch: int, rate: float) -> Callable[[], None]:
    """One step of Adam on the next batch: forward, backward and update."""
    objective = gpytorch.mlls.VariationalELBO(model.likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(1)

    def step() -> None:
        rows = torch.randint(len(x), (batch,), generator=generator)
        optimizer.zero_grad()
        (-objective(model(x[rows]), y[rows])).backward()
        optimizer.step()

    return step


def _time_steps(plan: Plan, size: int, batch: int) -> Outcome:
    """Median processor seconds of a step, one of each method in turn, so that both see the same machine."""
    data = step_data(STEP_ROWS, NUM_DIMS)
    x, y = (torch.tensor(data[name], dtype=torch.float32) for name in ("x", "y"))
    steps = [_stepper(Model(x[:size], method), x, y, batch, STEP_RATE) for method in METHODS]
    found: list[list[float]] = [[], []]
    for count in range(WARM_UP_STEPS + plan.rounds):
        for step, seconds in zip(steps, found, strict=True):
            begin = time.process_time()
            step()
            if count >= WARM_UP_STEPS:
                seconds.append(time.process_time() - begin)
    svgp, ours = map(median, found)
    return Outcome({"seconds": ours, "svgp_seconds": svgp, "ratio": svgp / ours})


def _fit(plan: Plan, dataset: str, method: str, rate: float) -> Outcome:
    """The bound of all training rows, in nats per row, after a number of steps; ours also with the sites solved for."""
    split = random_split(dataset, seed=0)
    x, y = torch.tensor(split.x, dtype=torch.float32), torch.tensor(split.y, dtype=torch.float32)
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: plan.size]
    torch.manual_seed(0)
    model = Model(x[chosen], method)
    step = _stepper(model, x, y, plan.batches[0], rate)
    begin = time.process_time()
    if method == "initialized":
        model.variational_strategy.initialize_from_data(x, y, START_NOISE)
    for _ in range(plan.steps):
        step()
    metrics: dict[str, float | None] = {"seconds": time.process_time() - begin, "bound": _bound(model, x, y)}
    if method == "coreset":
        begin = time.process_time()
        model.variational_strategy.initialize_from_data(x, y, model.likelihood.noise.item())
        metrics |= {"solve_seconds": time.process_time() - begin, "solved_bound": _bound(model, x, y)}
    return Outcome(metrics)


@torch.no_grad()
def _bound(model: Model, x: Tensor, y: Tensor) -> float:
    """Nats per row."""
    model.train()
    parts = zip(x.split(EVALUATED_ROWS), y.split(EVALUATED_ROWS), strict=True)
    fit = sum(model.likelihood.expected_log_prob(some_y, model(some_x)).sum().item() for some_x, some_y in parts)
    return (fit - model.variational_strategy.kl_divergence().item()) / len(x)


def report(plan: Plan, store: Store) -> str:
    """Seconds of a step, and bounds after equal steps."""
    steps = {
        (size, batch): store.finished(step_key(plan, size, batch)) for size in plan.sizes for batch in plan.batches
    }
    step_rows = [
        [str(size), str(batch), *(_milliseconds(record, name) for name in ("svgp_seconds", "seconds")), _ratio(record)]
        for (size, batch), record in steps.items()
    ]
    fits = {(name, method): _best(plan, store, name, method) for name in plan.datasets for method in FITS}
    bound_rows = [_bound_row(name, *(fits[name, method] for method in FITS)) for name in plan.datasets]
    found = [record for record in [*steps.values(), *fits.values()] if record is not None]
    header = ["data set", "SVGP: rate", "nats per row", "seconds", "coreset: rate", "nats per row", "sites solved"]
    return "\n\n".join(
        [
            markdown_table(["M", "rows of a batch", "SVGP, ms", "coreset, ms", "ratio"], step_rows, num_text=0),
            f"The bound of all training rows after {plan.steps} steps with M = {plan.size}; higher is better. The rate "
            "is the best of " + ", ".join(map(str, plan.rates)) + " for each.",
            markdown_table([*header, "seconds", "started from data: rate", "nats per row"], bound_rows, num_text=1),
            origin(found),
        ]
    )


def _best(plan: Plan, store: Store, dataset: str, method: str) -> Record | None:
    """The fit with the rate that gave the highest bound; both methods are judged by the bound that they end with."""
    records = [store.finished(bound_key(plan, dataset, method, rate)) for rate in plan.rates]
    known = [record for record in records if record is not None]
    return max(known, key=lambda record: record.number(_last_bound(method)), default=None)


def _last_bound(method: str) -> str:
    return "solved_bound" if method == "coreset" else "bound"


def _bound_row(name: str, svgp: Record | None, ours: Record | None, initialized: Record | None) -> list[str]:
    both = None if ours is None else ours.number("seconds") + ours.number("solve_seconds")
    return [
        name,
        *_cells(svgp, "rate", "bound"),
        number(None if svgp is None else svgp.number("seconds"), ".1f"),
        *_cells(ours, "rate", "bound", "solved_bound"),
        number(both, ".1f"),
        *_cells(initialized, "rate", "bound"),
    ]


def _cells(record: Record | None, rate: str, *metrics: str) -> list[str]:
    if record is None:
        return ["-"] * (1 + len(metrics))
    return [str(record.task[rate]), *(number(record.number(name)) for name in metrics)]


def _milliseconds(record: Record | None, name: str) -> str:
    return number(None if record is None else 1e3 * record.number(name), ".1f")


def _ratio(record: Record | None) -> str:
    return number(None if record is None else record.number("ratio"), ".2f")
