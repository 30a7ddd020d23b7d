"""Columns of text that hold numbers, in tables whose format has types: data frames, JSON lines, sheets, databases.

Such a column is text because of how its numbers are written: `1,234`, `1.234,5` or `12 %`. Text of digits alone may be
a code, such as a postcode, and stays text. A model that has learned numbers reads those as well.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.dataset as ds

from cvgp.data.reading import Numerals, Reading
from cvgp.data.tables.arrow_cells import is_text_type
from cvgp.data.tables.notes import notes_of, with_notes
from cvgp.data.tables.numerals import Evidence, allowed_forms, choose_numerals

ENOUGH_CELLS = 1000
"""After so many cells it is clear that a column holds no numbers."""
_PIECE = 4096


def with_numerals(dataset: ds.Dataset, known: Reading | None = None, *, plain: bool = False) -> ds.Dataset:
    """The dataset with notes on which of its columns of text hold numbers.

    Parameters
    ----------
    known
        How a model has read its training table. It decides where the cells can be read in two ways.
    plain
        Whether columns of plain numbers count as well: they do where a model says what is a number.
    """
    notes = notes_of(dataset)
    names = [f.name for f in dataset.schema if is_text_type(f.type) and f.name not in notes.numerals]
    earlier = None if known is None else known.numerals
    chosen = choose_numerals(_look(dataset, names), ".", earlier)
    found = {name: how for name, how in chosen.items() if plain or how != Numerals() or name in (earlier or {})}
    reading = replace(notes.reading, numerals={**notes.numerals, **found})
    return with_notes(dataset, replace(notes, reading=reading))


def _look(dataset: ds.Dataset, names: list[str]) -> dict[str, Evidence]:
    found = {name: Evidence() for name in names}
    forms = allowed_forms({})
    for batch in _batches(dataset, names):
        for name in list(found):
            found[name].add(batch.column(name), forms)
            if found[name].decimal() is None and found[name].cells > ENOUGH_CELLS:
                del found[name]
        if not found:
            break
    return {name: evidence for name, evidence in found.items() if evidence.decimal() is not None}


def _batches(dataset: ds.Dataset, names: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some columns in small pieces, so that little of what is no number is looked at."""
    for fragment in dataset.get_fragments() if names else ():
        yield from fragment.scanner(columns=names, batch_size=_PIECE, use_threads=False, batch_readahead=1).to_reader()
