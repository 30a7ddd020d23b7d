"""Which columns and which rows of a table count: those that were asked for, without uninformative ones.

A row is bad if it holds infinity (text where numbers are expected counts as that), has no target, or has a negative
weight or noise variance. Bad rows are an error that names file and row, or are left out and counted.
"""

from __future__ import annotations

import csv
import io
import re
import reprlib  # a cell may be very long
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError
from cvgp.parallel.group import Group, gather_text
from cvgp.tables.formats import named
from cvgp.tables.read import Opened, Part

MORE_ROWS = 3
"""Bad rows that are named after the first."""
Mask = NDArray[np.bool_]
OnBadRows = Literal["error", "skip"]
TRAINING_ADVICE = (
    "Correct it, or leave such rows out and have them counted: read_table(..., on_bad_rows='skip'), --on-bad-rows skip."
)
NEARLY_EVERY = 0.95
"""The share of a column's cells that hold different texts, where these name the rows."""
LEAST_ROWS = 20
"""With fewer rows, values are all different, or all the same, by chance."""
_ID_NAME = re.compile(
    r"#|(unnamed(:? ?\d+)?|index|idx|id|uuid|guid|key|nr|no|row|rownames?|level_0)"
    r"|row[ _.-]?(id|nr|no|num|number|index|name)|(.*[ _.-])(id|uuid|guid|index|idx)|record[ _.-]?(id|nr|no|number)",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r".*[a-z](Id|ID)")


class ColumnChoice(NamedTuple):
    """What the user says about columns: those to leave out, the only ones to use, and those to use in any case."""

    drop: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, drop: str | Sequence[str] = (), features: str | Sequence[str] | None = None, keep: str | Sequence[str] = ()
    ) -> ColumnChoice:
        """From the names that were given, one or several."""
        return cls(
            _names("drop", drop),
            None if features is None else _names("features", features),
            _names("always_keep", keep),
        )

    def among(self, names: Sequence[str], special: Sequence[str]) -> list[str]:
        """The features of a table with columns of these names, of which some are special: targets and weights."""
        for option, given in (("drop", self.drop), ("features", self.features or ()), ("always_keep", self.keep)):
            _check_known(option, given, names)
            if option != "drop" and set(given) & set(special):
                both = ", ".join(repr(name) for name in given if name in special)
                raise InvalidInputError(f"{option} names {both}, which is the target or a column of weights or noise.")
        wanted = [name for name in self.drop if name in (*(self.features or ()), *self.keep)]
        if wanted:
            raise InvalidInputError(
                f"drop leaves out {named(list(map(repr, wanted)))}, which is asked for as well; choose."
            )
        if self.features is not None:
            return [name for name in names if name in self.features]
        return [name for name in names if name not in (*special, *self.drop)]

    def is_asked_for(self, name: str) -> bool:
        """Whether a column is used even if it seems uninformative."""
        return name in self.keep or name in (self.features or ())


def names_in(text: str) -> list[str]:
    """The names in a list like `id,tailnum`; a name with a comma is in double quotes."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def as_flag(option: str, names: Iterable[str]) -> str:
    """The flag to paste that gives these names."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(list(names))
    return f"--{option} {shlex.quote(line.getvalue())}"


def near_names(name: str, names: Sequence[str]) -> list[str]:
    """The names that could have been meant."""
    similar = get_close_matches(name.lower().strip(), [other.lower().strip() for other in names], n=3)
    return [other for other in names if other.lower().strip() in similar]


def raise_unusable(problems: Mapping[str, CVGPError]) -> None:
    """Say everything that is wrong with columns at once, with the flag that leaves them out."""
    if not problems:
        return
    kinds = {type(problem) for problem in problems.values()}
    in_python = f"(in Python: read_table(..., drop={list(problems)}))"
    advice = f"To leave out what cannot be used: {as_flag('drop', problems)} {in_python}."
    lines = [str(problem) for problem in problems.values()]
    if len(lines) > 1:
        lines = [f"{len(lines)} columns cannot be used:", *(f"- {line}" for line in lines)]
    raise (kinds.pop() if len(kinds) == 1 else InvalidInputError)("\n".join([*lines, advice]))


def names_rows(num_texts: int, num_cells: int) -> bool:
    """Whether this number of different texts among the cells only names the rows."""
    return num_cells >= LEAST_ROWS and num_texts >= NEARLY_EVERY * num_cells


def is_id_name(name: str) -> bool:
    """Whether a column has the name of a row number, or no name."""
    short = name.strip()
    return not short or bool(_ID_NAME.fullmatch(short) or _CAMEL_ID.fullmatch(short))


def numbers_rows(name: str, values: Array) -> bool:
    """Whether a column only numbers the rows: by its name, and by whole numbers that are all different."""
    if not is_id_name(name):
        return False
    is_whole = bool(np.isfinite(values).all()) and bool((values == np.round(values)).all())
    return len(values) >= LEAST_ROWS and is_whole and len(np.unique(values)) == len(values)


def left_out_line(reasons: Mapping[str, str]) -> str:
    """What was left out and why, with the flag that keeps it."""
    columns: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        columns.setdefault(reason, []).append(repr(name))
    found = "; ".join(f"{named(names)} ({reason})" for reason, names in columns.items())
    return (
        f"Left out, since they are not informative: {found}. To use them anyway: {as_flag('always-keep', reasons)} "
        f"(in Python: read_table(..., always_keep={list(reasons)}))."
    )


def _names(option: str, given: object) -> tuple[str, ...]:
    several = (given,) if isinstance(given, str) else given
    if not isinstance(several, (list, tuple)) or not all(isinstance(name, str) for name in several):
        raise InvalidTypeError(f"{option} is a list of names of columns; got {given!r}.")
    return tuple(dict.fromkeys(several))


def _check_known(option: str, given: Sequence[str], names: Sequence[str]) -> None:
    unknown = [name for name in given if name not in names]
    if not unknown:
        return
    meant = list(dict.fromkeys(other for name in unknown for other in near_names(name, names)))
    hint = f"did you mean {' or '.join(map(repr, meant))}? It has" if meant else "it has"
    raise InvalidInputError(
        f"The table has no column {', '.join(map(repr, unknown))}, which {option} names; {hint} {', '.join(names)}."
    )


class BadRows:
    """Finds bad rows; with `drops`, rows without a target are dropped and not bad, and `gaps` may be missing."""

    def __init__(
        self,
        opened: Opened,
        names: Sequence[str],
        special: Sequence[str],
        on_bad_rows: OnBadRows,
        advice: str = TRAINING_ADVICE,
        gaps: Sequence[bool] | None = None,
        *,
        drops: bool = False,
    ) -> None:
        if on_bad_rows not in ("error", "skip"):
            raise InvalidInputError(f"on_bad_rows must be 'error' or 'skip'; got {on_bad_rows!r}.")
        self.on_bad_rows = on_bad_rows
        self.advice = advice
        self.drops = drops
        self._opened = opened
        self._names = [*names, *special]
        self._gaps = np.ones(len(names), dtype=np.bool_) if gaps is None else np.array(gaps, dtype=np.bool_)
        self.skipped = 0
        """Bad rows that were left out."""
        self.dropped = 0
        """Rows that the rule for missing values left out."""
        self.first = ""
        """What is wrong with the first bad row."""

    def find(self, rows: Rows[Array], part: Part, start: int) -> Mask:
        """Mark the rows [n] that count; `start` rows of the part came before them."""
        extra = [column[:, None] for column in (rows.sample_weight, rows.noise_variance) if column is not None]
        kept = np.ones(len(rows.x), dtype=np.bool_)
        if not (all(np.isfinite(c).all() for c in (rows.x, rows.y, *extra)) and all((c >= 0.0).all() for c in extra)):
            values = np.hstack([rows.x, rows.y, *extra])
            wrong, missing, num_features = np.isinf(values), np.isnan(values), rows.x.shape[1]
            num_values = num_features + rows.y.shape[1]
            wrong[:, num_values:] |= missing[:, num_values:] | (values[:, num_values:] < 0.0)
            wrong[:, :num_features] |= missing[:, :num_features] & ~self._gaps
            no_target = np.logical_or.reduce(missing[:, num_features:num_values], axis=1)
            if not self.drops:
                wrong[:, num_features:num_values] |= missing[:, num_features:num_values]
            bad = np.logical_or.reduce(wrong, axis=1)
            if bad.any() and not self.first:
                self._note_first(values, wrong, part, start)
            self.skipped += int(bad.sum())
            self.dropped += int((no_target & ~bad).sum())
            kept = ~(bad | no_target)
        # A row of weight zero is not bad; it does not count.
        return kept if rows.sample_weight is None else kept & (rows.sample_weight > 0.0)

    def count_all(self, group: Group, good: int) -> int:
        """Add up what all processes have left out; returns how many good rows all have."""
        (counts,) = group.sum([torch.tensor([good, self.skipped, self.dropped], dtype=torch.float64)])
        total, self.skipped, self.dropped = (int(count) for count in counts)
        self.first = next((text for text in gather_text(group, self.first) if text), "")
        return total

    def summary(self) -> str:
        """What was left out, in words; empty if nothing was."""
        parts = []
        if self.skipped:
            parts.append(f"{self.skipped} bad rows were left out, the first of them: {self.first}")
        if self.dropped:
            parts.append(f"{self.dropped} rows with missing values were left out")
        return "; ".join(parts)

    def _note_first(self, values: Array, wrong: Mask, part: Part, start: int) -> None:
        row, position = (int(index[0]) for index in np.nonzero(wrong))
        name, value = self._names[position], values[row, position]
        found = "is missing" if np.isnan(value) else "is infinite or not a number" if np.isinf(value) else "is negative"
        text = self._opened.cell_text(part, name, start + row) if not np.isfinite(value) else None
        if text is not None:
            found = f"{found}: it holds {reprlib.repr(text)}"
        first = part.first_row + start + 1
        others = [str(first + other) for other in np.flatnonzero(wrong[:, position])[1 : 1 + MORE_ROWS]]
        also = f" (also in data row {', '.join(others)})" if others else ""
        self.first = f"{part.file}, data row {first + row}: column {name!r} {found}{also}"
        if self.on_bad_rows == "error":
            raise InvalidInputError(f"{self.first}. {self.advice}")
