"""Which columns of a table are features: those that were asked for, without those that tell nothing."""

import csv
import io
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import numpy as np

from cvgp.data.reading import named
from cvgp.data.rows import Array
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError

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
    ) -> "ColumnChoice":
        """From the names that were given, one or several."""
        return cls(
            _names("drop", drop), None if features is None else _names("features", features), _names("keep", keep)
        )

    def among(self, names: Sequence[str], special: Sequence[str]) -> list[str]:
        """The features of a table with columns of these names, of which some are special: targets and weights."""
        for option, given in (("drop", self.drop), ("features", self.features or ()), ("keep", self.keep)):
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
        """Whether a column is used even if it seems to tell nothing."""
        return name in self.keep or name in (self.features or ())


def names_in(text: str) -> list[str]:
    """The names in a list like `id,tailnum`; one with a comma stands in double quotes."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def as_flag(option: str, names: Iterable[str]) -> str:
    """The flag to paste that gives these names."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(list(names))
    return f"--{option} {shlex.quote(line.getvalue())}"


def near_names(name: str, names: Sequence[str]) -> list[str]:
    """The names that could have been meant."""
    similar = get_close_matches(name.lower(), [other.lower() for other in names], n=3)
    return [other for other in names if other.lower() in similar]


def raise_unusable(problems: Mapping[str, CVGPError]) -> None:
    """Say everything that is wrong with columns at once, with the flag that leaves them out."""
    if not problems:
        return
    kinds = {type(problem) for problem in problems.values()}
    advice = f"To leave out what cannot be used: {as_flag('drop', problems)} (in Python: drop={list(problems)})."
    lines = [str(problem) for problem in problems.values()]
    if len(lines) > 1:
        lines = [f"{len(lines)} columns cannot be used:", *(f"- {line}" for line in lines)]
    raise (kinds.pop() if len(kinds) == 1 else InvalidInputError)("\n".join([*lines, advice]))


def names_rows(num_texts: int, num_cells: int) -> bool:
    """Whether so many different texts in so many cells only name the rows."""
    return num_cells >= LEAST_ROWS and num_texts >= NEARLY_EVERY * num_cells


def is_id_name(name: str) -> bool:
    """Whether a column is called like one that numbers the rows, or not at all."""
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
        f"Left out, since they tell nothing: {found}. To use them all the same: {as_flag('keep', reasons)} "
        f"(in Python: keep={list(reasons)})."
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
