"""Arrays and JSON in one safetensors file: nothing in it can be executed, and it is written whole or not at all."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.data.atomic import atomic_write
from cvgp.errors import FileAccessError, FileFormatError, MissingFileError

__all__ = ["read_tensors", "write_tensors"]

METADATA_KEY = "cvgp"


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> None:
    """Write arrays and a dictionary of JSON values, atomically."""
    from safetensors.numpy import save_file

    with atomic_write(path) as temporary:
        arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        save_file(arrays, temporary, {METADATA_KEY: json.dumps(metadata)})


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what :func:`write_tensors` wrote; anything else is a :class:`~cvgp.errors.FileFormatError`."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.exists():
        raise MissingFileError(f"There is no file {path}. Check the path.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            tensors = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 - not a dict
    except OSError as error:
        raise FileAccessError(f"Could not read {path}: {error.strerror or error}.") from error
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, MemoryError, OverflowError) as error:
        raise FileFormatError(
            f"{path} is not a cvgp file, or it is damaged ({error}). Save the model again, or restore a copy."
        ) from error
    try:
        metadata = json.loads(header[METADATA_KEY])
    except (KeyError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} holds no cvgp metadata; it was not written by cvgp, or is damaged.") from error
    if not isinstance(metadata, dict):
        raise FileFormatError(f"{path} holds cvgp metadata of the wrong kind; it is damaged.")
    return tensors, metadata
