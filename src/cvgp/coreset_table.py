"""The triplet (X, y, beta) of a coreset as a table: the features, then `y` (or `y0`, `y1`, ...), then `beta`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.extras import optional_packages
from cvgp.finite import REAL_KINDS, FloatArray
from cvgp.printable import printable

if TYPE_CHECKING:
    import pandas as pd

SHOWN_POINTS, SHOWN_COLUMNS = 5, 8
"""What a notebook shows of a coreset."""
_NUMBERED_OUTPUT = re.compile(r"y(0|[1-9][0-9]*)")


class NamedColumn(NamedTuple):
    """A column that inputs of a coreset stand for: one of them, or one per category."""

    name: str
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many inputs."""
        return len(self.categories) or 1


def table_of(X: FloatArray, y: FloatArray, beta: FloatArray, feature_names: Sequence[str] | None) -> pd.DataFrame:
    """One row per point, with names for the features of X [M, D]; `x0`, `x1`, ... where they are None."""
    with optional_packages():
        import pandas as pd

    outputs = _names_of_outputs(y)
    names = [f"x{d}" for d in range(X.shape[1])] if feature_names is None else feature_names
    features = list(np.atleast_1d(np.asarray(names, dtype=object)))  # also an Index, an array, one str
    if not all(isinstance(name, str) for name in features):
        raise InvalidTypeError(f"Feature names must be text, got {features}; pass a list of str.")
    if len(features) != X.shape[1]:
        raise InvalidInputError(f"Expected {X.shape[1]} feature names, got {features}; pass one per column of X.")
    columns = [*features, *outputs, "beta"]
    if len(set(columns)) < len(columns) or _output_columns(columns) != outputs:
        raise InvalidInputError(
            "Feature names must be unique, and not the names of outputs ('y', 'y0', ...) or weights "
            f"('beta'), got {features}; rename the features."
        )
    return pd.DataFrame(np.column_stack([X, y, beta]), columns=columns)


def decoded_table(X: FloatArray, y: FloatArray, beta: FloatArray, columns: Sequence[NamedColumn]) -> pd.DataFrame:
    """One row per point under the names of the user's columns, each category as the one with the largest input.

    Outputs and weights get a number where a column has their name.
    """
    with optional_packages():
        import pandas as pd

    values: dict[str, Any] = {}
    start = 0
    for column in columns:
        inputs = X[:, start : start + column.width]  # [M, width]
        levels = np.array(column.categories, dtype=object)
        values[column.name] = pd.Categorical(levels[inputs.argmax(axis=1)], levels) if len(levels) else inputs[:, 0]
        start += column.width
    if len(values) < len(columns):
        names = [column.name for column in columns]
        raise InvalidInputError(f"The columns {names} have the same name twice; pass feature_names, one per input.")
    plain = [*_names_of_outputs(y), "beta"]
    names, number = plain, 1
    while set(names) & set(values):
        number += 1
        names = [f"{name}_{number}" for name in plain]
    return pd.DataFrame(values | dict(zip(names, [*y.reshape(len(y), -1).T, beta], strict=True)))


def html_table(X: FloatArray, y: FloatArray, beta: FloatArray, columns: Sequence[NamedColumn] | None) -> str:
    """The heaviest points as a table of HTML: the first columns of X, then outputs and weights."""
    inputs = columns or [NamedColumn(f"x{d}") for d in range(X.shape[1])]
    heaviest = np.argsort(-beta, kind="stable")[:SHOWN_POINTS]
    shown: list[tuple[str, list[str]]] = []
    start = 0
    for column in inputs[:SHOWN_COLUMNS]:
        own = X[heaviest, start : start + column.width]
        start += column.width
        levels = column.categories
        shown.append((column.name, [levels[row.argmax()] if levels else f"{row[0]:.4g}" for row in own]))
    if len(inputs) > SHOWN_COLUMNS:
        shown.append((f"and {len(inputs) - SHOWN_COLUMNS} more", ["…"] * len(heaviest)))
    outputs = y.reshape(len(y), -1)[heaviest, :SHOWN_COLUMNS].T
    shown += [
        (name, [f"{value:.4g}" for value in own]) for name, own in zip(_names_of_outputs(y), outputs, strict=False)
    ]
    shown.append(("beta", [f"{value:.4g}" for value in beta[heaviest]]))
    head = "".join(f"<th scope='col'>{escape(printable(name))}</th>" for name, _ in shown)
    rows = zip(*(values for _, values in shown), strict=True)
    body = "".join("<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _names_of_outputs(y: FloatArray) -> list[str]:
    return ["y"] if y.ndim == 1 else [f"y{q}" for q in range(y.shape[1])]


def triplet_in(frame: pd.DataFrame) -> tuple[FloatArray, FloatArray, FloatArray]:
    """X, y and beta of a table such as `table_of` makes."""
    with optional_packages():
        import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise InvalidTypeError(f"Expected a DataFrame, got {type(frame).__name__}; convert it to one.")
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        raise InvalidInputError(f"Column names must be unique, got {columns}; rename the repeated ones.")
    outputs = _output_columns(columns)
    if not outputs or "beta" not in columns:
        raise InvalidInputError(
            "Expected a column 'beta' and a column 'y' (or 'y0', 'y1', ... without a gap), "
            f"got {columns}; add or rename the missing ones."
        )
    kinds = [dtype.kind for dtype in frame.dtypes]
    not_numeric = [name for name, kind in zip(columns, kinds, strict=True) if kind not in REAL_KINDS]
    if not_numeric:
        raise InvalidTypeError(
            f"Every column must hold real numbers, but {not_numeric} do not; convert them with "
            "pd.to_numeric or drop them."
        )
    features = [name for name in columns if name != "beta" and name not in outputs]
    values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    X = values[:, [columns.index(name) for name in features]]
    y = values[:, [columns.index(name) for name in outputs]]
    return X, y[:, 0] if outputs == ["y"] else y, values[:, columns.index("beta")]


def _output_columns(columns: list[Any]) -> list[str]:
    """Return `y`, or else y0 .. y{Q-1} if these are all the columns so numbered, or else nothing."""
    if "y" in columns:
        return ["y"]
    numbered = {name for name in columns if isinstance(name, str) and _NUMBERED_OUTPUT.fullmatch(name)}
    expected = [f"y{q}" for q in range(len(numbered))]
    return expected if numbered == set(expected) else []
