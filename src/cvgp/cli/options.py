"""The flags that commands share, and the choices that they offer."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AsJson",
    "Bound",
    "Dtype",
    "Impute",
    "Init",
    "Kernel",
    "ModelFile",
    "OnBadRows",
    "Quiet",
    "Ray",
    "Solver",
    "Workers",
    "positive",
]


class Kernel(StrEnum):
    """Covariance functions by name."""

    RBF = "rbf"
    MATERN12 = "matern12"
    MATERN32 = "matern32"
    MATERN52 = "matern52"
    RQ = "rq"
    LINEAR = "linear"
    PERIODIC = "periodic"


class Init(StrEnum):
    """Where the coreset starts."""

    KMEANS = "kmeans"
    RANDOM = "random"
    GREEDY = "greedy"


class Solver(StrEnum):
    """How the bound is maximised."""

    AUTO = "auto"
    LBFGS = "lbfgs"
    ADAM = "adam"
    PAPER = "paper"


class Bound(StrEnum):
    """What is maximised."""

    AUTO = "auto"
    ELBO = "elbo"
    TIGHT = "tight"


class Dtype(StrEnum):
    """Precision of the products with data."""

    AUTO = "auto"
    FLOAT32 = "float32"
    FLOAT64 = "float64"


class Impute(StrEnum):
    """What to do about missing values."""

    MEAN = "mean"
    MEDIAN = "median"
    DROP = "drop"


class OnBadRows(StrEnum):
    """What to do about rows with values that cannot be used."""

    ERROR = "error"
    SKIP = "skip"


def positive(value: float | None) -> float | None:
    """Refuse numbers that are not above zero, which click's ranges cannot say."""
    if value is not None and not value > 0:
        raise typer.BadParameter(f"{value} is not above 0.")
    return value


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `cvgp fit` saved.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
CLUSTER = "On a Ray cluster"
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on this cluster; 'local' starts one on this machine.", rich_help_panel=CLUSTER
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes on the cluster.", rich_help_panel=CLUSTER)]
