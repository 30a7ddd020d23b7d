"""Tables in JSON lines: one object for each row, whose keys are the columns."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from cvgp.data.tables.copies import Copy, copied_dataset, copy_rows
from cvgp.data.tables.sniffing import compression_of, read_piece
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files.limits import CELL, check_columns

JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json")
_READ_BYTES = 1 << 18


def copy_json(filesystem: pafs.FileSystem, files: Sequence[str]) -> ds.Dataset:
    """A dataset of files of JSON lines; a key that an object lacks is a missing value."""
    return copied_dataset([_copy(filesystem, file) for file in files])


def _copy(filesystem: pafs.FileSystem, file: str) -> Copy:
    names: dict[str, None] = {}
    for number, row in _objects(filesystem, file):
        names |= dict.fromkeys(row)
        check_columns(f"{file}, of which every line should have the same keys, up to line {number}", len(names))
    if not names:
        raise InvalidInputError(f"{file} holds no rows; it must have at least one object.")
    return copy_rows(
        file,
        list(names),
        lambda: ([row.get(name) for name in names] for _, row in _objects(filesystem, file)),
        filesystem.get_file_info(file).size or 0,
    )


def _objects(filesystem: pafs.FileSystem, file: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects with the numbers of their lines."""
    for number, line in enumerate(_lines(filesystem, file), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
        except (ValueError, RecursionError) as error:
            row = error
        if not isinstance(row, dict):
            found = f"it is {error_text(row)}" if isinstance(row, Exception) else f"it holds a {type(row).__name__}"
            raise FileFormatError(
                f"{file} could not be read as JSON lines, line {number}: {found}. Every line must be one object, such "
                'as {"a": 1, "b": "x"} (pandas: to_json(orient="records", lines=True)).'
            )
        yield number, row


def error_text(error: Exception) -> str:
    """What is wrong with a line."""
    return "nested too deeply" if isinstance(error, RecursionError) else f"no JSON ({str(error)[:200]})"


def _lines(filesystem: pafs.FileSystem, file: str) -> Iterator[bytes]:
    """Lines, of which none may be so long that it fills the memory."""
    rest = b""
    number = 0
    most = CELL.value
    try:
        with filesystem.open_input_stream(file, compression=compression_of(file)) as stream:
            while content := read_piece(stream, _READ_BYTES):
                *whole, rest = (rest + content).split(b"\n")
                yield from whole
                number += len(whole)
                if len(rest) > most:
                    raise FileFormatError(
                        f"Line {number + 1} of {file} is longer than {most} bytes; JSON lines have one object in each "
                        f"line. {CELL.advice}"
                    )
    except pa.ArrowException as error:
        raise FileFormatError(f"{file} could not be read ({error}); it is damaged: write it again.") from error
    if rest:
        yield rest
