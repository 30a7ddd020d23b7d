"""Options of commands: made from the signatures and docstrings of the library, or shared by several commands."""

from __future__ import annotations

import glob
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from cvgp.errors import InvalidInputError
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.latent import USED
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.files import atomic_write
from cvgp.fitting.options import TrainingOptions
from cvgp.progress import listening
from cvgp.tables.cells import check_csv
from cvgp.tables.table import read_table

SEVERAL = 4  # choices that fit beside an option; the text of one with more names them


@dataclass(frozen=True)
class OptionsOf:
    """Marks a parameter that gets a dictionary of options: those of a function or class, under one heading."""

    source: Callable[..., Any]
    panel: str
    only: Sequence[str] = ()
    leave_out: Sequence[str] = ()
    common: Sequence[str] = ()  # what `--help` shows; `--help-all` shows the others too
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def parameters(self) -> list[inspect.Parameter]:
        """The options, as parameters of a function for typer."""
        function: Any = self.source.__init__ if inspect.isclass(self.source) else self.source
        hints, described = get_type_hints(function), parameter_texts(self.source.__doc__ or "")
        found = []
        for name, parameter in inspect.signature(self.source).parameters.items():
            if name in self.leave_out or (self.only and name not in self.only):
                continue
            default = self.defaults.get(name, parameter.default)
            settings: dict[str, Any] = {"help": described.get(name, "")}
            if name not in self.common:
                settings |= {"hidden": True, "rich_help_panel": self.panel}
            kind = _option_type(name, type(default) if name in self.defaults else hints[name], settings)
            default = None if kind == list[str] else default
            if isinstance(kind, type(StrEnum)) and default is not None:
                default = kind(default)
            option = Annotated[kind | None if default is None else kind, typer.Option(**settings)]  # type: ignore[valid-type]
            found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option))
        return found


TEXT_FORMAT = ("sep", "decimal", "thousands", "encoding")  # of `read_table`, in every command that reads tables
SHOWN_COLUMNS = ("groups", "drop", "geo", "time")  # of `read_table`, in `--help`
TextFormat = Annotated[
    dict[str, Any], OptionsOf(read_table, "How a text table is written (inferred if not given)", only=TEXT_FORMAT)
]
RowOptions = Annotated[dict[str, Any], OptionsOf(read_table, "Rows", only=("on_bad_rows",))]
ColumnOptions = Annotated[
    dict[str, Any],
    OptionsOf(read_table, "Columns and rows", leave_out=("data", "target", *TEXT_FORMAT), common=SHOWN_COLUMNS),
]
ModelOptions = Annotated[
    dict[str, Any],
    OptionsOf(
        CVGPRegressor,
        "What to learn",
        leave_out=("verbose", "training", "missing_targets", "output_covariance"),  # the last two are for several y
        common=("likelihood", "max_time"),
        defaults={"random_state": 0},
    ),
]
ClassOptions = Annotated[dict[str, Any], OptionsOf(CVGPClassifier, "What to learn", only=("class_weight", "link"))]
TrainingOfCommand = Annotated[
    dict[str, Any], OptionsOf(TrainingOptions, "How to train", leave_out=("callbacks", "heuristics"))
]
Task = StrEnum("Task", ["CLASSIFY", "REGRESS"])
TaskOption = Annotated[
    Task | None, typer.Option(help="What to fit; by default, text, and true and false, are classes.")
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `cvgp fit` saved.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file at --out if there is one.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.", hidden=True)]


ESTIMATORS = {"regress": CVGPRegressor, "classify": CVGPClassifier}


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_others(context: typer.Context, task: str, reason: str) -> None:
    """Refuse options that only the estimator of another task has."""

    def known(estimator: type) -> set[str]:
        sources: list[Any] = [estimator, estimator.fit]  # type: ignore[attr-defined]
        training = USED if estimator is CVGPClassifier else inspect.signature(TrainingOptions).parameters
        return {name for source in sources for name in inspect.signature(source).parameters} | set(training)

    others = set[str]().union(*map(known, ESTIMATORS.values())) - known(ESTIMATORS[task])
    if found := [f"--{name.replace('_', '-')}" for name in sorted(others) if is_given(context, name)]:
        raise typer.BadParameter(
            f"{reason}, and {ESTIMATORS[task].__name__} has no such option; leave it out.",
            param_hint=", ".join(map(repr, found)),
        )


def parameter_texts(docstring: str) -> dict[str, str]:
    """The first sentence about each parameter in a numpydoc docstring."""
    section = inspect.cleandoc(docstring).partition("Parameters\n----------\n")[2]
    texts: dict[str, str] = {}
    for names, text in re.findall(r"^(\w[\w, ]*) : .*\n((?: .*\n?)+)", section, re.MULTILINE):
        first = re.split(r"(?<=[\w)'`]\.) (?=[A-Z`])", " ".join(text.split()))[0].replace("`", "")
        texts = dict.fromkeys(names.split(", "), first) | texts  # later sections may have the same names
    return texts


def _option_type(name: str, kind: Any, settings: dict[str, Any]) -> Any:
    """What typer is told of a parameter's type; kinds that a command line cannot give are left out of a union."""

    def members(kind: Any) -> list[Any]:
        parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
        return [member for part in parts for member in members(part)] if parts else [kind]

    kinds = members(kind)
    origins = {get_origin(member) for member in kinds}
    choices = [value for member in kinds if get_origin(member) is Literal for value in get_args(member)]
    plain = [member for member in kinds if member in (bool, int, float, str)]
    if origins & {list, Sequence, Mapping}:  # of names
        settings["metavar"] = "A=N,B=N" if Mapping in origins else "A,B"
        return list[str]
    if choices and int in plain:
        settings |= {"parser": _number_or(choices), "metavar": f"N|{'|'.join(choices)}"}
        return str
    if choices:
        settings |= {"metavar": "NAME"} if len(choices) > SEVERAL else {}
        return StrEnum(name, {value.upper().replace("-", "_"): value for value in choices})
    return Path if os.PathLike in origins or not plain else plain[0]


def _number_or(choices: list[str]) -> Callable[[str], int | str]:
    def read(text: str) -> int | str:
        if text in choices or text.isdecimal():
            return text if text in choices else int(text)
        known = " or ".join(repr(choice) for choice in choices)
        raise typer.BadParameter(f"{text!r} is neither {known} nor a whole number of at least 0.")

    return read


def _print_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", help="Show all options and exit.", callback=_print_all, is_eager=True)
]


def command(function: Callable[..., Any]) -> Any:
    """The command of a function; a parameter that is marked by `OptionsOf` stands for several options."""
    every: list[inspect.Parameter] = []
    groups: dict[str, list[inspect.Parameter]] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        marks = [mark for mark in getattr(hints[name], "__metadata__", ()) if isinstance(mark, OptionsOf)]
        if marks:
            groups[name] = marks[0].parameters()
            every += groups[name]
        else:
            every.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**given: Any) -> Any:
        is_quiet = given["quiet"]
        given = {name: value for name, value in given.items() if name not in own}
        plain = {name: value.value if isinstance(value, StrEnum) else value for name, value in given.items()}
        for group, options in groups.items():
            plain[group] = {option.name: plain.pop(option.name) for option in options}
        with listening(None) if is_quiet else nullcontext():
            return function(**plain)

    shared = {"quiet": Quiet, "help_all": HelpAll}
    own = {name: kind for name, kind in shared.items() if name not in hints}
    every += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=k) for n, k in own.items()]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    application = typer.Typer(add_completion=False)
    application.command()(run)
    return typer.main.get_command(application)


def joined_numbers(args: list[str], option: str) -> list[str]:
    """``--quantiles .1 .5`` as ``--quantiles .1,.5``."""
    joined: list[str] = []
    for word in args:
        if len(joined) > 1 and joined[-2] == option and is_number(joined[-1]) and is_number(word):
            joined[-1] = f"{joined[-1]},{word}"
        else:
            joined.append(word)
    return joined


def is_number(word: str) -> bool:
    """Whether a word is a number, or several with commas between them."""
    try:
        return all(float(part) is not None for part in word.split(","))
    except ValueError:
        return False


def named_numbers(option: str, words: Sequence[str]) -> dict[str, float]:
    """``["hour=24"]`` as ``{"hour": 24.0}``."""
    pairs = [word.rpartition("=") for word in words]
    if wrong := [word for word, (name, _, value) in zip(words, pairs, strict=True) if not (name and is_number(value))]:
        raise typer.BadParameter(f"must be COLUMN=NUMBER, as in hour=24; got {wrong[0]!r}.", param_hint=f"'--{option}'")
    return {name: float(value) for name, _, value in pairs}


def csv_options(given: dict[str, Any]) -> Any:
    """What the user says of a text table."""
    try:
        return check_csv(given)
    except InvalidInputError as error:
        raise typer.BadParameter(str(error), param_hint=f"'--{str(error).partition(' ')[0]}'") from error


class _OnlyATrial(Exception):  # noqa: N818 - a signal, not an error
    pass


def check_output(out: Path, *inputs: object, endings: tuple[str, ...] = ("",), overwrite: bool = False) -> None:
    """Check before the work that `out` can be written: never over an input, over another file only with `overwrite`."""
    if not out.name.lower().endswith(endings):
        problem = f"has no ending that names a format; use one of {', '.join(endings)}."
    elif any(_is_part_of(out, str(given)) for given in inputs if given is not None):
        problem = "is read by this command, and would be replaced by its result; choose another name."
    else:
        with suppress(_OnlyATrial), atomic_write(out):
            raise _OnlyATrial
        if overwrite or not out.exists() or not out.stat().st_size:
            return
        problem = "exists; choose another name, or add --overwrite to replace it."
    raise typer.BadParameter(f"{out} {problem}", param_hint="'--out'")


def _is_part_of(out: Path, given: str) -> bool:
    """Whether a file that exists is an input, by any name; an input may be a glob, a folder, a sheet or a database."""
    location = re.sub(r"^\w+:///", "", given.partition("::")[0])
    with suppress(OSError, ValueError):  # no file has an impossible name
        for place in [location, *(glob.glob(location, recursive=True) if glob.has_magic(location) else [])]:
            if os.path.exists(out) and os.path.exists(place):
                is_inside = os.path.isdir(place) and out.resolve().is_relative_to(Path(place).resolve())
                if is_inside or os.path.samefile(out, place):
                    return True
    return False
