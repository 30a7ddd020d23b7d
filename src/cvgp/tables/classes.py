"""Tables whose target is a class: columns of numbers take the place of a column of labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.tables.cells import label, labels, look_like_dates, spells_number
from cvgp.tables.columns import check_known_classes, check_number_of_classes
from cvgp.tables.read import Opened, Part, open_table
from cvgp.tables.table import Table

KINDS = {"b": "boolean", "i": "numeric", "u": "numeric", "f": "numeric"}  # of columns, by that of an array of classes
INFINITE = ("inf", "-inf")  # what text is in a column of numbers


def are_classes(opened: Opened, name: str) -> bool:
    """Whether a column holds true and false, or text that is neither dates nor numbers with some bad cells."""
    kind = opened.kind(name)
    if kind not in ("categorical", "ordered"):
        return kind == "boolean"
    texts = _labels_of(opened, name, kind)
    return 2 * sum(map(spells_number, texts)) <= len(texts) and not look_like_dates(texts)


def with_classes(data: Any, target: object = None, **beside: Any) -> Table:
    """A table in files with an indicator of each class as targets, or of the second of two."""
    table = data if isinstance(data, Table) else Table(open_table(data))
    if table.label is not None:
        return table
    table = table.with_target(target, **beside)
    if not isinstance(name := table.target, str):
        raise InvalidInputError(f"Classes are in one column; got the targets {name!r}. Fit a classifier for each.")
    if table.noise_variance is not None or table.exposure is not None:
        raise InvalidInputError("A classifier uses neither noise_variance nor exposure; leave them out.")
    table.feature_columns()  # which looks for the columns that are named
    kind = table.opened.kind(name)
    if kind == "date":
        raise InvalidTypeError(f"Column {name!r} holds dates, and classes are text, numbers, or true and false.")
    classes = _values(kind, _labels_of(table.opened, name, kind))
    if len(classes) < 2:
        raise InvalidInputError(f"A classifier needs at least two classes; column {name!r} has {classes or 'none'}.")
    check_number_of_classes(len(classes))
    indicated = classes if len(classes) > 2 else classes[-1:]
    numbers = {label(own): [float(own == other) for other in indicated] for own in classes}
    columns = [f"{name}={label(own)}" for own in indicated]
    targets = columns[0] if len(columns) == 1 else tuple(columns)
    opened = _with_numbers(table.opened, name, kind, numbers, columns)
    return replace(table, opened=opened, target=targets, label=name, classes=tuple(classes), _learned={})


def with_codes(opened: Opened, name: str, classes: Any) -> Opened:
    """The table of a fitted classifier with positions in `classes` [K] for labels, all of which must be known."""
    numbers = {label(own): [float(code)] for code, own in enumerate(classes.tolist())}
    if name not in opened.names:
        return opened  # whoever needs the column says that it is missing
    return _with_numbers(opened, name, KINDS.get(classes.dtype.kind, "categorical"), numbers, [name])


def _labels_of(opened: Opened, name: str, kind: str) -> list[str]:
    found: dict[str, None] = {}
    for part in opened.parts:
        for batch in opened.batches(part, [name], {name: kind}):
            found |= dict.fromkeys(labels(name, batch.column(0))[1])
    return [text for text in found if kind != "numeric" or text not in INFINITE]


def _values(kind: str, texts: Collection[str]) -> list[Any]:
    """Labels in order: numbers, whole ones as integers; true and false; or text."""
    if kind == "boolean":
        return sorted(text == "True" for text in texts)
    if kind != "numeric":
        return sorted(texts)
    numbers = sorted(map(float, texts))
    return list(map(int, numbers)) if all(number.is_integer() for number in numbers) else numbers


def _with_numbers(
    opened: Opened, name: str, kind: str, numbers: Mapping[str, Sequence[float]], columns: Sequence[str]
) -> Opened:
    """A table with columns of numbers in the place of labels; they are missing where the label is."""
    known = dict(numbers)
    if kind == "numeric":
        known |= dict.fromkeys(INFINITE, [np.inf] * len(columns))  # so that these rows are bad ones

    def encode(part: Part, column: pa.Array) -> list[pa.Array]:
        codes, texts = labels(name, opened.typed(name, column, kind))
        check_known_classes(f"Column {name!r} of {part.file}", [text for text in texts if text not in known], numbers)
        values = np.array([*(known[text] for text in texts), [np.nan] * len(columns)])[codes]  # [n, columns]
        return [pa.array(own, from_pandas=True) for own in values.T]

    def replaced(part: Part) -> Part:
        def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
            asked = [own for own in names if own not in columns]
            wanted = asked if len(asked) == len(names) else list(dict.fromkeys([*asked, name]))
            for batch in part.read(wanted):
                found = {own: batch.column(own) for own in asked}
                if len(asked) < len(names):
                    found |= dict(zip(columns, encode(part, batch.column(name)), strict=True))
                yield pa.RecordBatch.from_arrays([found[own] for own in names], names=list(names))

        return replace(part, types={**part.types, **dict.fromkeys(columns, pa.float64())}, read=read)

    names = [*(own for own in opened.names if own != name), *columns]
    return replace(opened, names=names, parts=list(map(replaced, opened.parts)))
