"""What cvgp knows of a dataset beyond what Arrow does, kept in the notes of its schema."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from cvgp.data.reading import Numerals, Reading

_READING, _WHOLE, _SOURCE = b"cvgp.reading", b"cvgp.whole", b"cvgp.source"


@dataclass(frozen=True)
class Notes:
    """How the cells of a dataset are read."""

    reading: Reading = field(default_factory=Reading)
    is_whole: bool = False
    """Whether the types of a text table come from all of its rows."""

    @property
    def numerals(self) -> Mapping[str, Numerals]:
        """How numbers are written in columns of text that hold them."""
        return self.reading.numerals


def with_notes(dataset: ds.Dataset, notes: Notes) -> ds.Dataset:
    """The dataset that tells them."""
    stored = {_READING: json.dumps(notes.reading.to_json()), _WHOLE: json.dumps(notes.is_whole)}
    return dataset.replace_schema(dataset.schema.with_metadata({**(dataset.schema.metadata or {}), **stored}))


def notes_of(dataset: ds.Dataset) -> Notes:
    """Those that :func:`with_notes` has left; a file of a format with types of its own can leave none."""
    metadata = dataset.schema.metadata or {}
    is_text = isinstance(getattr(dataset, "format", None), ds.CsvFileFormat)
    is_ours = is_text or isinstance(dataset, ds.InMemoryDataset) or is_copy(dataset)
    if _READING not in metadata or not is_ours:
        return Notes()
    return Notes(Reading.from_json(json.loads(metadata[_READING])), json.loads(metadata[_WHOLE]))


def is_copy(dataset: ds.Dataset) -> bool:
    """Whether the rows are a temporary copy of a table in another format."""
    fragments = dataset.get_fragments() if isinstance(getattr(dataset, "format", None), ds.IpcFileFormat) else ()
    return all(fragment.buffer is not None for fragment in fragments) and bool(fragments)


def named_after(schema: pa.Schema, source: str) -> pa.Schema:
    """A schema of rows that were copied from elsewhere, with the name of that place for messages."""
    return schema.with_metadata({_SOURCE: source})


def name_of(fragment: Any) -> str:
    """The file of a piece of a dataset, as users know it."""
    if getattr(fragment, "buffer", None) is not None:
        stored = (fragment.physical_schema.metadata or {}).get(_SOURCE)
        return "the table in memory" if stored is None else stored.decode()
    return getattr(fragment, "path", "") or "the table in memory"
