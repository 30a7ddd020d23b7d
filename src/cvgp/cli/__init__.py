"""The command `cvgp`. A command is imported when it is asked for, so `cvgp --help` needs neither torch nor pandas."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import cvgp
from cvgp.cli.console import GuardedGroup

__all__ = ["app"]

COMMANDS = {
    "fit": ("fit", "Fit a model to a table and save it."),
    "update": ("update", "Learn new rows of a table without another fit."),
    "predict": ("predict", "Write a table with predictions beside its columns."),
    "evaluate": ("scores", "Score predictions of a table that has the target."),
    "compare": ("scores", "Compare two models by their predictions."),
    "explain": ("explain", "Explain the prediction for one row."),
    "report": ("scores", "Write a page about a model and its predictions."),
    "plot": ("scores", "Draw one page of pictures of a model."),
    "info": ("info", "Describe a model."),
    "coreset": ("info", "Write the pseudo-points of a model as a table."),
    "merge": ("info", "Make one model from models of disjoint tables."),
    "prune": ("info", "Make a smaller model."),
    "demo": ("demo", "Make a table; fit, predict, evaluate and draw it."),
}


class _Unloaded(TyperCommand):
    """A command whose module is imported when its arguments are parsed."""

    def make_context(self, info_name: Any, args: list[str], *given: Any, **options: Any) -> Any:
        from cvgp.cli.options import command, joined_numbers

        name = self.name or ""
        loaded = command(getattr(import_module(f"cvgp.cli.{COMMANDS[name][0]}"), name))
        return loaded.make_context(info_name, joined_numbers(args, "--quantiles"), *given, **options)


class _Commands(GuardedGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands.update({name: _Unloaded(name, help=text) for name, (_, text) in COMMANDS.items()})


app = typer.Typer(
    cls=_Commands,
    help="Gaussian process regression and classification for tables, with a learned coreset.",
    epilog="Exit codes: 0 done, 1 failure, 2 wrong use, 130 interrupted, 143 terminated.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},  # which all commands inherit
    # A traceback is for programming errors alone, and then it should be the plain one.
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(cvgp.__version__)
        raise typer.Exit


FIRST_STEPS = """\
cvgp predicts a column of a table from the others, with intervals. Type next:
  cvgp demo                  to see every step on a table that it makes
  cvgp fit TABLE.csv --target COLUMN --test-size .2 --out MODEL.cvgp
  cvgp predict MODEL.cvgp NEW.csv --out PREDICTIONS.csv
  cvgp --help                for all commands, cvgp COMMAND --help for one"""


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(FIRST_STEPS)
