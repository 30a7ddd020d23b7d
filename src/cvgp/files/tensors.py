"""Arrays and JSON in one safetensors file: nothing in it can be executed, and it is written completely or not at all.

A checksum of the content finds damage that leaves the form intact, such as a number with one bit changed. It does not
show who wrote a file, so the content must still be checked.
"""

import hashlib
import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.errors import FileFormatError
from cvgp.files.atomic import access_errors, atomic_write
from cvgp.files.limits import check_metadata, check_stored
from cvgp.files.regular import check_readable, checked_path
from cvgp.files.untrusted import MAX_ARRAYS, MAX_PARTS

METADATA_KEY = "cvgp"
CHECKSUM = "sha256"
"""The name of the array that holds the checksum. As a second text in the metadata it could come before or after the
first, since safetensors keeps no order, and the same content would not give the same file."""


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    """Write arrays and a dictionary of JSON values, atomically."""
    from safetensors.numpy import save

    # Unlike ascontiguousarray, this keeps a scalar a scalar.
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    text = json.dumps(metadata)
    content = save({**arrays, CHECKSUM: _checksum(arrays, text)}, {METADATA_KEY: text})
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote; anything else is a :class:`~cvgp.errors.FileFormatError`."""
    from safetensors import SafetensorError, safe_open

    path = checked_path(path)
    check_readable(path)
    _check_sizes(path)
    try:
        with access_errors(f"read {path}"), safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            tensors = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, MemoryError, OverflowError) as error:
        raise FileFormatError(
            f"{path} is not a cvgp file, or it is damaged ({error}). Save the model again, or restore a copy."
        ) from error
    text = header.get(METADATA_KEY)
    if text is None:
        raise FileFormatError(f"{path} holds no cvgp metadata; it was not written by cvgp.")
    stored = tensors.pop(CHECKSUM, np.empty(0))
    if not np.array_equal(stored, _checksum(tensors, text)):
        raise FileFormatError(f"{path} is damaged: its content has changed since it was written. Restore a copy.")
    parts = text.count("[") + text.count("{")  # no fewer than there are, since names may hold such characters too
    if parts > MAX_PARTS:
        raise FileFormatError(f"{path} holds metadata of {parts} lists and objects; a model has at most {MAX_PARTS}.")
    try:
        metadata = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} holds cvgp metadata that is not JSON.") from error
    if not isinstance(metadata, dict):
        raise FileFormatError(f"{path} holds cvgp metadata that is not a JSON object.")
    return tensors, metadata


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)  # possessive: takes no memory for other ends


def _check_sizes(path: Path) -> None:
    """Refuse holes, a long header and very many arrays before safetensors reads them, which takes it seconds."""
    with access_errors(f"read {path}"), path.open("rb") as file:
        found = os.fstat(file.fileno())
        check_stored(path, found.st_size, getattr(found, "st_blocks", None))
        begin = file.read(8)
        length = struct.unpack("<Q", begin)[0] if len(begin) == 8 else 0
        if length > found.st_size:
            return  # safetensors says what is wrong
        check_metadata(path, length)
        header = file.read(length)
    # Each array is an object; braces within strings are no objects.
    count = _STRING.sub(b"", header).count(b"{") - 2
    if count > MAX_ARRAYS:
        raise FileFormatError(f"{path} holds {count} arrays, and a model has at most {MAX_ARRAYS}; it is no model.")


def _checksum(arrays: Mapping[str, NDArray[Any]], text: str) -> NDArray[np.uint8]:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.name} {array.shape} ".encode())
        digest.update(array.tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)
