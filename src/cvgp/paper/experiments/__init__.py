"""The paper's experiments, by name."""

from importlib import import_module

from cvgp.errors import InvalidInputError
from cvgp.paper.experiments.experiment import Defaults, Experiment, Plan, Results

__all__ = ["EXPERIMENTS", "Defaults", "Experiment", "Plan", "Results", "find_experiment"]

EXPERIMENTS = (
    "predictive",
    "evolution",
    "gaps",
    "robustness",
    "interpolation",
    "posterior1d",
    "density2d",
    "weights",
    "complexity",
    "stability",
    "features",
    "optimum",
)

MODULES = {"features": "weight_space"}
"""Where a module has another name than its experiment."""


def find_experiment(name: str) -> Experiment:
    """An experiment by its name; its module is imported only now."""
    if name not in EXPERIMENTS:
        raise InvalidInputError(f"Unknown experiment {name!r}. Choose from {', '.join(EXPERIMENTS)}.")
    experiment: Experiment = import_module(f"cvgp.paper.experiments.{MODULES.get(name, name)}").EXPERIMENT
    return experiment
