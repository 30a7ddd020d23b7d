"""Options of commands: made from the signatures and docstrings of the library, or shared by several commands."""

from __future__ import annotations

import glob
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from cvgp.errors import CVGPError, InvalidInputError
from cvgp.files import atomic_write, read_state
from cvgp.tables.cells import check_csv
from cvgp.tables.table import read_table


@dataclass(frozen=True)
class OptionsOf:
    """Marks a parameter that gets a dictionary of options: those of a function or class, under one heading."""

    source: Callable[..., Any]
    panel: str
    only: Sequence[str] = ()
    leave_out: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that are not the library's."""

    def parameters(self) -> list[inspect.Parameter]:
        """The options: names, types, defaults and help are those of the library."""
        function: Any = self.source.__init__ if inspect.isclass(self.source) else self.source
        hints, described = get_type_hints(function), parameter_texts(self.source.__doc__ or "")
        found = []
        for name, parameter in inspect.signature(self.source).parameters.items():
            if name in self.leave_out or (self.only and name not in self.only):
                continue
            default = self.defaults.get(name, parameter.default)
            settings: dict[str, Any] = {"help": described.get(name, ""), "rich_help_panel": self.panel}
            kind = _option_type(name, type(default) if name in self.defaults else hints[name], settings)
            default = None if kind == list[str] else default
            if isinstance(kind, type(StrEnum)) and default is not None:
                default = kind(default)
            option = Annotated[kind | None if default is None else kind, typer.Option(**settings)]  # type: ignore[valid-type]
            found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option))
        return found


TEXT_FORMAT = ("sep", "decimal", "thousands", "encoding")
"""The options of `read_table` that every command which reads tables has."""
TextFormat = Annotated[
    dict[str, Any], OptionsOf(read_table, "How a text table is written (inferred if not given)", only=TEXT_FORMAT)
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `cvgp fit` saved.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a file at --out even if cvgp did not write it.")]
CLUSTER = "On a Ray cluster"
Ray = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Run on this cluster; 'local' starts one here.", rich_help_panel=CLUSTER),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes on the cluster.", rich_help_panel=CLUSTER)]


def parameter_texts(docstring: str) -> dict[str, str]:
    """The first sentence about each parameter in a numpydoc docstring."""
    lines = inspect.cleandoc(docstring).partition("Parameters\n----------\n")[2].splitlines()
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if not line.strip() or line.startswith("---"):
            names = []
        elif not line.startswith(" "):
            if " : " not in line:
                break  # the next section
            names = line.partition(" : ")[0].split(", ")
            texts |= dict.fromkeys(names, "")
        else:
            texts |= {name: f"{texts[name]} {line.strip()}" for name in names}
    first = {name: re.split(r"(?<=[\w)'`]\.) (?=[A-Z`])", text.strip())[0] for name, text in texts.items()}
    return {name: re.sub(r"`+", "", text).strip() for name, text in first.items()}


def _option_type(name: str, kind: Any, settings: dict[str, Any]) -> Any:
    """What typer is told of a parameter's type; kinds that a command line cannot give are left out of a union."""
    kinds = _members(kind)
    choices = [value for member in kinds if get_origin(member) is Literal for value in get_args(member)]
    plain = [member for member in kinds if member in (bool, int, float, str)]
    if any(get_origin(member) in (list, Sequence) for member in kinds):  # of names
        settings["metavar"] = "A,B"
        return list[str]
    if choices and int in plain:
        settings |= {"parser": _number_or(choices), "metavar": f"N|{'|'.join(choices)}"}
        return str
    if choices:
        return StrEnum(name, {value.upper().replace("-", "_"): value for value in choices})
    is_path = any(get_origin(member) is os.PathLike for member in kinds)
    return Path if is_path or not plain else plain[0]


def _members(kind: Any) -> list[Any]:
    """The members of a union, and of unions in it."""
    if get_origin(kind) in (Union, UnionType):
        return [member for part in get_args(kind) for member in _members(part) if member is not NoneType]
    return [kind]


def _number_or(choices: list[str]) -> Callable[[str], int | str]:
    def read(text: str) -> int | str:
        if text in choices or text.isdecimal():
            return text if text in choices else int(text)
        known = " or ".join(repr(choice) for choice in choices)
        raise typer.BadParameter(f"{text!r} is neither {known} nor a whole number of at least 0.")

    return read


def command(function: Callable[..., Any]) -> Any:
    """The command of a function; a parameter that is marked by `OptionsOf` stands for several options."""
    own: list[inspect.Parameter] = []
    groups: dict[str, list[inspect.Parameter]] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        marks = [mark for mark in getattr(hints[name], "__metadata__", ()) if isinstance(mark, OptionsOf)]
        if marks:
            groups[name] = marks[0].parameters()
        else:
            own.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    needed = [parameter for parameter in own if parameter.default is parameter.empty]
    added = [option for options in groups.values() for option in options]
    every = [*needed, *added, *(parameter for parameter in own if parameter not in needed)]

    def run(**given: Any) -> Any:
        plain = {name: value.value if isinstance(value, StrEnum) else value for name, value in given.items()}
        for group, options in groups.items():
            plain[group] = {option.name: plain.pop(option.name) for option in options}
        return function(**plain)

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
        follows = len(joined) > 1 and joined[-2] == option and is_number(joined[-1])
        if follows and is_number(word):
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


def csv_options(given: dict[str, Any]) -> Any:
    """What the user says of a text table."""
    try:
        return check_csv(given)
    except InvalidInputError as error:
        raise typer.BadParameter(str(error), param_hint=f"'--{str(error).partition(' ')[0]}'") from error


class _OnlyATrial(Exception):  # noqa: N818 - a signal, not an error
    pass


def check_output(
    out: Path, *inputs: object, endings: tuple[str, ...] = ("",), overwrite: bool = False, kind: str = "model"
) -> None:
    """Check before the work that its result can be stored at `out`, and that nothing of the user's is lost by it.

    An input of the command (a file, folder, glob or address) is never replaced. Another file is replaced only if cvgp
    wrote it as a result of this `kind`, or with `overwrite`.
    """
    problem = ""
    if not out.name.lower().endswith(endings):
        problem = f"has no ending that names a format; use one of {', '.join(endings)}."
    elif any(_is_part_of(out, str(given)) for given in inputs if given is not None):
        problem = "is read by this command, and would be replaced by its result; choose another name."
    else:
        with suppress(_OnlyATrial), atomic_write(out):
            raise _OnlyATrial
        if out.exists() and out.stat().st_size and not overwrite and not _is_result(out, kind):
            problem = f"exists, and it is not a {kind} that cvgp wrote; choose another name, or add --overwrite."
    if problem:
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


def _is_result(path: Path, kind: str) -> bool:
    """Whether a file looks as if cvgp had written it."""
    if kind not in ("model", "table"):
        return b"cvgp" in path.read_bytes()
    with suppress(CVGPError):
        if kind == "model":
            return bool(read_state(path))
        names = set(read_table(path).names)
        ends = [name for name in names if "_lower" in name]
        parts = ("mean", "sd", "upper")
        return "beta" in names or any({n.replace("_lower", f"_{p}") for p in parts} <= names for n in ends)
    return False
