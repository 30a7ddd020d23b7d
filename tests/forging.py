"""Files of cvgp with one value changed, and a checksum that fits."""

from pathlib import Path
from typing import Any

from cvgp.files import read_state, write_state

GONE = object()
"""In place of a value: the field is left out."""


def changed(state: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    """The state with another value at a path such as ``"fit.n_rows"``; a function gets the old one."""
    *folders, last = where.split(".")
    at: Any = state
    for folder in folders:
        at = at[int(folder) if isinstance(at, list) else folder]
    key = int(last) if isinstance(at, list) else last
    if value is GONE:
        del at[key]
    else:
        at[key] = value(at[key]) if callable(value) else value
    return state


def forge(path: Path, where: str, value: Any) -> None:
    """Change a file in place."""
    write_state(path, changed(read_state(path), where, value))
