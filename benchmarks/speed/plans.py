"""All measurements of speed: their plans, full and quick, and their tasks in the order in which `all` runs them."""

from dataclasses import dataclass

from benchmarks.runner import Task
from benchmarks.speed import growth, large, prediction, race, shared, small, step

__all__ = ["COMMANDS", "RACE_DATASETS", "Plans", "full", "quick", "tasks"]

RACE_DATASETS = ("bike", "parkinsons", "protein", "elevators", "keggdirected")
RACE_SIZE = 200
RACE_BUDGET = 60.0
RACE_SPLITS = 5

COMMANDS = ("step", "prediction", "growth", "small", "race", "large", "shared")


@dataclass(frozen=True)
class Plans:
    """A plan for each command."""

    step: step.Plan
    prediction: prediction.Plan
    growth: growth.Plan
    small: small.Plan
    race: race.Plan
    large: large.Plan
    shared: shared.Plan


def full(
    threads: int,
    datasets: tuple[str, ...] = RACE_DATASETS,
    size: int = RACE_SIZE,
    budget: float = RACE_BUDGET,
    splits: int = RACE_SPLITS,
) -> Plans:
    """What the documentation shows."""
    return Plans(
        step.full(threads),
        prediction.full(threads),
        growth.full(threads),
        small.full(threads),
        race.full(datasets, size, budget, splits),
        large.full(threads),
        shared.full(threads),
    )


def quick(threads: int) -> Plans:
    """Everything once, small: whether it works, not how fast it is."""
    return Plans(
        step.quick(threads),
        prediction.quick(threads),
        growth.quick(threads),
        small.quick(threads),
        race.quick(),
        large.quick(threads),
        shared.quick(threads),
    )


def tasks(plans: Plans, command: str) -> list[Task]:
    """What a command runs."""
    every = {
        "step": lambda: step.tasks(plans.step),
        "prediction": lambda: prediction.tasks(plans.prediction),
        "growth": lambda: growth.tasks(plans.growth),
        "small": lambda: small.tasks(plans.small),
        "race": lambda: race.tasks(plans.race),
        "large": lambda: large.tasks(plans.large),
        "shared": lambda: shared.tasks(plans.shared),
    }
    return every[command]()
