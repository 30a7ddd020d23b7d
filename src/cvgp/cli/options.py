"""The flags that commands share, and the choices that they offer."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cvgp.data.reading import CsvOptions, check_csv
from cvgp.errors import InvalidInputError

Impute = StrEnum("Impute", ["MEAN", "MEDIAN", "DROP"])
Dates = StrEnum("Dates", ["REFUSE", "EXPAND"])


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
TEXT = "How a text table is written (found out if not given)"
Sep = Annotated[
    str | None, typer.Option(metavar="CHAR", help="Between columns: , ; tab | or another.", rich_help_panel=TEXT)
]
Decimal = Annotated[str | None, typer.Option(metavar="CHAR", help="Decimal sign: . or ,", rich_help_panel=TEXT)]
Thousands = Annotated[
    str | None,
    typer.Option(metavar="CHAR", help="Between thousands: , . ' _ a space, or '' for none.", rich_help_panel=TEXT),
]
Encoding = Annotated[
    str | None, typer.Option(metavar="NAME", help="utf-8, utf-16, cp1252, latin-1 or another.", rich_help_panel=TEXT)
]


def csv_options(sep: str | None, decimal: str | None, thousands: str | None, encoding: str | None) -> CsvOptions:
    """What the user says of a text table."""
    given = {"sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding}
    try:
        return check_csv(given)
    except InvalidInputError as error:
        option = str(error).partition(" ")[0]
        raise typer.BadParameter(str(error), param_hint=f"'--{option}'") from error


CLUSTER = "On a Ray cluster"
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Run on this cluster; 'local' starts one on this machine.", rich_help_panel=CLUSTER
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes on the cluster.", rich_help_panel=CLUSTER)]
