"""Which defaults are best: one factor at a time, each fit with the same time."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from benchmarks.ours import BetaTransform, measure, through_layers
from benchmarks.runner import Task
from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError
from cvgp.paper.splits import validation_split
from cvgp.paper.store import Outcome
from cvgp.training.initialise import InitName
from cvgp.training.plan import Settings, make_plan
from cvgp.training.start import DEFAULT_KERNEL

__all__ = ["FACTORS", "Choice", "Config", "Plan", "choices", "tasks"]

NO_STEP_LIMIT = 10**6
"""Time alone ends a fit by a named solver, so that cheap steps are worth what they save. `auto` has its own limits."""

FACTORS: dict[str, tuple[Any, ...]] = {
    "kernel": ("rbf", "matern12", "matern32", "matern52", "rq"),
    "bound": ("auto", "elbo", "tight", "power"),
    "solver": ("auto", "lbfgs", "adam"),
    "batch_size": (256, 512, 1024),
    "learning_rate": (0.01, 0.03, 0.1),
    "beta": ("log", "softplus"),
    "init": ("kmeans", "random", "greedy"),
}

THREADS = 1
"""Processor time is that of the work only if no thread waits for another."""

ADAM_FACTORS = ("batch_size", "learning_rate", "beta")
"""They change nothing in L-BFGS, which has no batches and solves for the weights: compared with Adam on every set."""


@dataclass(frozen=True)
class Config:
    """Everything that is compared, named in full so that a stored result stays what it was when a default changes."""

    kernel: str
    bound: str
    solver: str
    batch_size: int
    learning_rate: float
    beta: BetaTransform
    init: InitName


@dataclass(frozen=True)
class Plan:
    """What to run."""

    datasets: tuple[str, ...]
    splits: int
    factors: tuple[str, ...]
    size: int
    max_time: float
    """Seconds of one thread on the processor."""


@dataclass(frozen=True)
class Choice:
    """One value of a factor."""

    factor: str
    value: Any
    config: Config
    is_default: bool


def default_config(size: int) -> Config:
    """The estimator's present defaults, for many rows."""
    estimator_defaults = CVGPRegressor()
    plan = make_plan(Settings(), NO_STEP_LIMIT, size, 10)
    return Config(
        kernel=DEFAULT_KERNEL,
        bound=estimator_defaults.bound,
        solver=estimator_defaults.solver,
        batch_size=plan.batch_size,
        learning_rate=plan.learning_rate,
        beta="log",
        init=cast(InitName, estimator_defaults.init),
    )


def choices(factors: Sequence[str], size: int) -> list[Choice]:
    """Each value of each factor, with all else at its default; the default itself is always among them."""
    unknown = [name for name in factors if name not in FACTORS]
    if unknown:
        raise InvalidInputError(f"Unknown factors {', '.join(unknown)}. Choose from {', '.join(FACTORS)}.")
    found = []
    for factor in factors:
        base = default_config(size)
        if factor in ADAM_FACTORS:
            base = replace(base, solver="adam")
        default = getattr(base, factor)
        values = FACTORS[factor] if default in FACTORS[factor] else (*FACTORS[factor], default)
        found += [Choice(factor, v, replace(base, **{factor: v}), v == default) for v in values]
    return found


def task(plan: Plan, dataset: str, split: int, config: Config) -> Task:
    """One fit."""
    key = {
        "benchmark": "defaults",
        "dataset": dataset,
        "split": split,
        "scored": "validation",
        **asdict(config),
        "size": plan.size,
        "max_time": plan.max_time,
        "clock": "processor",
        "threads": THREADS,
    }
    return Task(key, lambda: _measure(plan, dataset, split, config))


def tasks(plan: Plan) -> list[Task]:
    """All fits, each once however many factors share it; a split is finished before the next begins."""
    configs = list(dict.fromkeys(choice.config for choice in choices(plan.factors, plan.size)))
    return [
        task(plan, dataset, split, config)
        for split in range(plan.splits)
        for dataset in plan.datasets
        for config in configs
    ]


def _measure(plan: Plan, dataset: str, split: int, config: Config) -> Outcome:
    fit = through_layers(
        plan.size,
        split,
        **asdict(config),
        max_iter=None if config.solver == "auto" else NO_STEP_LIMIT,
        max_time=plan.max_time,
        clock=time.process_time,
    )
    return measure(fit, validation_split(dataset, split), time.process_time)
