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


# The value of each choice is its name in lower case.
Kernel = StrEnum("Kernel", ["RBF", "MATERN12", "MATERN32", "MATERN52", "RQ", "LINEAR", "PERIODIC"])
Init = StrEnum("Init", ["KMEANS", "RANDOM", "GREEDY"])
Solver = StrEnum("Solver", ["AUTO", "LBFGS", "ADAM", "PAPER"])
Bound = StrEnum("Bound", ["AUTO", "ELBO", "TIGHT"])
Dtype = StrEnum("Dtype", ["AUTO", "FLOAT32", "FLOAT64"])
Impute = StrEnum("Impute", ["MEAN", "MEDIAN", "DROP"])


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
