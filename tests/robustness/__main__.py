"""``python -m tests.robustness``: long runs that look for what a short test cannot find."""

from pathlib import Path
from typing import Annotated

import typer

from cvgp.errors import CVGPError
from cvgp.paper.markdown import fill
from tests.robustness import every_field
from tests.robustness import fuzz as fuzz_run
from tests.robustness import soak as soak_run

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Minutes = Annotated[float, typer.Option(min=0.01, help="How long.")]


@app.command()
def fuzz(
    minutes: Minutes,
    first: Annotated[int, typer.Option(min=0, help="The number of the first case, to repeat one.")] = 0,
) -> None:
    """Open spoilt model files, checkpoints and tables for as long as told."""
    report = fuzz_run.run(minutes, first)
    print(f"\n{report.table()}")
    _end(report.failures, passed=not report.failures)


@app.command()
def fields(
    minutes: Minutes,
    first: Annotated[int, typer.Option(min=0, help="The number of the first case, to repeat one or to go on.")] = 0,
) -> None:
    """Give every field of a model file every kind of wrong value in turn, and use what loads."""
    failures = every_field.run(minutes, first)
    _end(failures, passed=not failures)


@app.command()
def soak(
    minutes: Minutes,
    write: Annotated[Path | None, typer.Option(help="Also put the table into its place in this page.")] = None,
) -> None:
    """Fit, save, load and predict for as long as told, checking memory and answers."""
    report = soak_run.run(minutes)
    text = f"{report.table()}\n\n{soak_run.origin()}"
    print(f"\n{text}")
    if write is not None:
        fill(write, "soak", text)
    _end(report.failures, passed=report.passed)


def _end(failures: list[str], *, passed: bool) -> None:
    for failure in failures:
        print(failure)
    if not passed:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; what the user can mend ends in a sentence, not in a traceback."""
    try:
        app(prog_name="python -m tests.robustness")
    except CVGPError as error:
        typer.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
