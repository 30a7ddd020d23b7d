"""Files that commands read and write: models with the schema of their table, and results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cvgp.errors import InvalidInputError

if TYPE_CHECKING:
    from cvgp.data.schema import Schema
    from cvgp.estimators.regressor import CVGPRegressor


class _OnlyATrial(Exception):  # noqa: N818 - a signal, not an error
    pass


def check_can_write(path: Path, endings: tuple[str, ...] = ("",)) -> None:
    """Find out before the work whether its result can be stored: by the steps that will store it.

    A name that has none of the endings, which say in which format to write, is refused too.
    """
    if not path.name.lower().endswith(endings):
        raise typer.BadParameter(
            f"{path} has no ending that names a format; use one of {', '.join(endings)}.", param_hint="'--out'"
        )
    from cvgp.files.atomic import atomic_write

    with suppress(_OnlyATrial), atomic_write(path):
        raise _OnlyATrial


def model_schema(model: CVGPRegressor, path: Path) -> Schema:
    """What turns a table into the model's features."""
    from cvgp.estimators.frames import schema_of

    schema = schema_of(model)
    if schema is None:
        raise InvalidInputError(
            f"The model in {path} was fitted to an array whose columns have no names, so it cannot read a table; "
            "predict with cvgp.load in Python, or fit it to a DataFrame or with `cvgp fit`."
        )
    if not isinstance(schema.target, str):
        raise InvalidInputError(
            f"The model in {path} predicts several columns, {list(schema.targets)}; commands predict one. Use "
            "cvgp.load in Python."
        )
    return schema


def free_names(wanted: Sequence[str], taken: Iterable[str]) -> list[str]:
    """The names, all with the same number appended if any of them is taken already."""
    used = set(taken)
    names, number = list(wanted), 1
    while used.intersection(names):
        number += 1
        names = [f"{name}_{number}" for name in wanted]
    return names
