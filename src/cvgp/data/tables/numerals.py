"""Numbers as people write them: found in the cells of a column, and turned into numbers.

Which sign is the decimal one is decided by cells that can be read in one way only: `1,5` has a decimal comma, and `0.5`
a decimal point. A column in which every cell can be read in both ways, such as `1,234`, follows the other columns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from cvgp.data.reading import CsvOptions, Numerals

NEARLY_ALL = 0.98
"""The share of a column's cells that must spell numbers, for the others to be mistakes."""

_SPACE = "[ \t\u00a0\u2009\u202f]"
_SIGN = {"": None, ",": ",", ".": r"\.", " ": _SPACE, "'": "['\u2019]", "_": "_"}
_FORMS = tuple((decimal, sign) for decimal in ".," for sign in ("", ",", ".", " ", "'") if sign != decimal)
"""The decimal signs and those between thousands that are looked for, the plain ones first."""


@dataclass
class Evidence:
    """What the cells of a column were found to be."""

    cells: int = 0
    percent: int = 0
    matches: dict[tuple[str, str], int] | None = None
    """How many cells are numbers in each form; None before the first look."""

    def add(self, column: pa.Array, forms: Iterable[tuple[str, str]]) -> None:
        """Look at some more cells, of which missing ones do not count."""
        found = {form: _count(pc.match_substring_regex(column, pattern(Numerals(*form, True)))) for form in forms}
        self.matches = found if self.matches is None else {form: self.matches[form] + found[form] for form in found}
        self.cells += len(column) - column.null_count
        self.percent += _count(pc.match_substring(column, "%"))

    def best(self, decimal: str) -> tuple[str, str] | None:
        """The form with this decimal sign that most cells have, if nearly all have it; the plainer of equals."""
        fitting = [form for form in self.matches or {} if form[0] == decimal and self._count(form) > 0]
        best = max(fitting, key=self._count, default=None)  # the first of equals
        return best if best is not None and self._count(best) >= NEARLY_ALL * self.cells else None

    def decimal(self) -> str | None:
        """The decimal sign, if the cells tell; empty if they can be read with each, and None if with neither."""
        counts = [(self._count(form) if (form := self.best(decimal)) else 0) for decimal in ".,"]
        if not any(counts):
            return None
        return "" if counts[0] == counts[1] else "." if counts[0] > counts[1] else ","

    @property
    def forms(self) -> list[tuple[str, str]]:
        """Those in which every cell is a number."""
        return [form for form, count in (self.matches or {}).items() if count == self.cells]

    def _count(self, form: tuple[str, str]) -> int:
        return (self.matches or {}).get(form, 0)


def allowed_forms(options: CsvOptions) -> list[tuple[str, str]]:
    """The forms of numbers that are looked for, given what is known."""
    decimals = [options["decimal"]] if "decimal" in options else [".", ","]
    if "thousands" not in options:
        return [form for form in _FORMS if form[0] in decimals]
    sign = options["thousands"]
    return [(decimal, extra) for decimal in decimals if decimal != sign for extra in dict.fromkeys(["", sign])]


def choose_numerals(
    found: Mapping[str, Evidence], default: str, known: Mapping[str, Numerals] | None
) -> dict[str, Numerals]:
    """How the numbers of each column are written, where they are numbers.

    Parameters
    ----------
    found
        What was seen in each column.
    default
        The decimal sign if no cell tells.
    known
        How a model has read columns of these names; plainly where it has none. Columns whose cells do not tell are read
        like that, unless other columns tell that this table is written in another way.
    """
    told = {name: sign for name, evidence in found.items() if (sign := evidence.decimal())}
    decimal = default if not told else "," if set(told.values()) == {","} else "."
    is_as_known = known is not None and all(known.get(name, Numerals()).decimal == told[name] for name in told)
    chosen: dict[str, Numerals] = {}
    for name, evidence in found.items():
        own = evidence.decimal()
        if own is None:
            continue
        form = evidence.best(own or decimal) or evidence.best("." if decimal == "," else ",")
        if not own and known is not None and is_as_known:
            before = known.get(name, Numerals())
            form = next((f for f in evidence.forms if f == (before.decimal, before.thousands)), form)
        assert form is not None
        chosen[name] = Numerals(*form, evidence.percent > 0)
    return chosen


@cache
def pattern(numerals: Numerals) -> str:
    """A regular expression (RE2) of one cell."""
    point, sign = _SIGN[numerals.decimal], _SIGN[numerals.thousands]
    digits = rf"\d+({point}\d*)?|{point}\d+"
    if sign:
        digits = rf"[1-9]\d{{0,2}}({sign}\d{{3}})+({point}\d*)?|{digits}"
    percent = f"({_SPACE}*%)?" if numerals.percent else ""
    return rf"^{_SPACE}*[+\-\x{{2212}}]?({digits})([eE][+\-]?\d+)?{percent}{_SPACE}*$"


def spelled_numbers(column: pa.Array, numerals: Numerals) -> pa.Array:
    """Text as numbers; missing where it spells none, so that its row is a bad one."""
    texts = pc.if_else(pc.match_substring_regex(column, pattern(numerals)), column, pa.scalar(None, column.type))
    if sign := _SIGN[numerals.thousands]:
        texts = pc.replace_substring_regex(texts, sign, "")
    texts = pc.replace_substring_regex(texts, f"{_SPACE}|%|\\+", "")
    texts = pc.replace_substring_regex(texts, r"\x{2212}", "-")
    if numerals.decimal != ".":
        texts = pc.replace_substring(texts, numerals.decimal, ".")
    return texts.cast(pa.float64())


def _count(mask: pa.BooleanArray) -> int:
    return pc.sum(mask).as_py() or 0
