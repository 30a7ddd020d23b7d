"""Telling where a table is from a table itself, without importing what reads it."""

from __future__ import annotations

import os
import sys

__all__ = ["is_location"]


def is_location(value: object) -> bool:
    """Whether a value is a path, a list of paths or a pyarrow dataset."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, (str, os.PathLike)) for item in value)
    arrow = sys.modules.get("pyarrow.dataset")  # a dataset cannot be without it
    return isinstance(value, (str, os.PathLike)) or (arrow is not None and isinstance(value, arrow.Dataset))
