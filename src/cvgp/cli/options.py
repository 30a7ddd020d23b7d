"""The flags that commands share, and the choices that they offer."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Impute = StrEnum("Impute", ["MEAN", "MEDIAN", "DROP"])
Dates = StrEnum("Dates", ["REFUSE", "EXPAND"])


class OnBadRows(StrEnum):
    """What to do about rows with values that cannot be used."""

    ERROR = "error"
    SKIP = "skip"


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
