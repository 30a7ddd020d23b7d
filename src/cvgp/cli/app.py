"""The application: its commands and what holds for all of them."""

from typing import Annotated

import typer

import cvgp
from cvgp.cli.coreset import coreset
from cvgp.cli.demo import demo
from cvgp.cli.evaluate import evaluate
from cvgp.cli.fit import fit
from cvgp.cli.guard import GuardedGroup
from cvgp.cli.info import info
from cvgp.cli.paper import paper
from cvgp.cli.plot import plot
from cvgp.cli.predict import predict
from cvgp.cli.report import report
from cvgp.cli.several_values import is_number, several_values

app = typer.Typer(
    cls=GuardedGroup,
    help="Gaussian process regression for tables, with a learned coreset.",
    epilog="Exit codes: 0 done, 1 failure, 2 wrong use, 130 interrupted, 143 terminated.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # which all commands inherit
    # A traceback is for programming errors alone, and then it should be the plain one.
    pretty_exceptions_enable=False,
)
app.command()(fit)
app.command(cls=several_values("--quantiles", is_value=is_number))(predict)
for command in (evaluate, report, coreset, info, plot, demo):
    app.command()(command)
app.add_typer(paper, name="paper")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(cvgp.__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass
