"""The different texts of columns, counted; and what a column is that has too many of them."""

import json
from collections import Counter
from collections.abc import Sequence

import numpy as np

from cvgp.data.columns import MAX_CATEGORIES
from cvgp.data.tables.arrow_cells import MOST_TEXTS, check_categories, labels, look_like_dates, spell_numbers
from cvgp.data.tables.choice import ColumnChoice, names_rows
from cvgp.data.tables.reader import Part, read_batches
from cvgp.errors import CVGPError, InvalidInputError
from cvgp.parallel.group import Group, gather_text

ENOUGH_CELLS = 10_000
"""After so many cells it is clear whether a column with many texts has a different one in nearly every row."""
NUMBERS = "holds numbers, and a few cells that are none"
NAMES_ROWS = "a different text in nearly every row"


def count_texts(
    parts: Sequence[Part],
    names: Sequence[str],
    kinds: dict[str, str],
    choice: ColumnChoice,
    group: Group,
    *,
    is_text_file: bool,
) -> tuple[dict[str, Counter[str]], dict[str, str]]:
    """How often each text stands in each of some columns, of all processes' parts; and the fates of other columns.

    A column may hold too many texts. One wrong cell makes text of a column of numbers in a text file: then its fate is
    NUMBERS, and the rows of its wrong cells are bad ones. One that only names the rows is left out: NAMES_ROWS. Any
    other fate is what is wrong with the column.
    """

    def settle(name: str) -> None:
        is_ordered = kinds[name] == "ordered"
        fate = None if is_ordered else _fate(name, counts[name], choice, is_text_file=is_text_file)
        if fate is not None:
            fates[name] = fate
            del counts[name]

    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    fates: dict[str, str] = {}
    for part in parts:
        for batch in read_batches(part, list(counts), kinds) if counts else ():
            for name in list(counts):
                codes, texts = labels(name, batch.column(name))
                times = np.bincount(codes[codes >= 0], minlength=len(texts)).tolist()
                if kinds[name] == "ordered":
                    _check_order(name, list(counts[name]), texts)
                for text, count in zip(texts, times, strict=True):
                    if count or kinds[name] == "ordered":
                        counts[name][text] += count
                if len(counts[name]) > MAX_CATEGORIES and counts[name].total() >= ENOUGH_CELLS:
                    settle(name)
    gathered = [json.loads(text) for text in gather_text(group, json.dumps([counts, fates]))] if names else []
    fates = {name: fate for _, found in reversed(gathered) for name, fate in found.items()}
    counts = {name: Counter() for name in names if name not in fates}
    for found, _ in gathered:
        for name in counts:
            counts[name].update(found[name])
    for name in list(counts):
        settle(name)
    return counts, fates


def _fate(name: str, texts: Counter[str], choice: ColumnChoice, *, is_text_file: bool) -> str | None:
    """None for categories."""
    is_numeric = spell_numbers(texts)
    if is_text_file and is_numeric and len(texts) > MAX_CATEGORIES:
        return NUMBERS
    is_free = not (is_numeric or choice.is_asked_for(name) or look_like_dates(texts))
    if is_free and names_rows(len(texts), texts.total()):
        return NAMES_ROWS
    if len(texts) <= MOST_TEXTS:
        return None
    try:
        check_categories(name, list(texts), texts.total(), is_text_file=is_text_file)
    except CVGPError as error:
        return str(error)
    return None


def _check_order(name: str, known: Sequence[str], found: Sequence[str]) -> None:
    if known and list(known) != list(found):
        raise InvalidInputError(
            f"The ordered categories of column {name!r} differ between parts of the table: {known} and {list(found)}; "
            "give all parts the same ones, or put the positions in their place."
        )
