"""The flags that commands share, and the choices that they offer."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

Impute = StrEnum("Impute", ["MEAN", "MEDIAN", "DROP"])


class OnBadRows(StrEnum):
    """What to do about rows with values that cannot be used."""

    ERROR = "error"
    SKIP = "skip"


class Asked(NamedTuple):
    """What predictions are asked for beside mean and standard deviation."""

    level: float = 0.95
    """The probability that an observation is between lower and upper."""
    quantiles: tuple[float, ...] = ()
    """Probabilities."""


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
