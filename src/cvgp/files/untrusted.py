"""Reading files from strangers: every name, type and size is checked before it is used."""

import math
import reprlib  # what comes from a file may be too long or too deep for repr
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.errors import FileFormatError

__all__ = ["Arrays", "Members"]

Shape = tuple[int | None, ...]
FLOATS = ("float64", "float32")

MAX_ARRAYS = 2000
"""More than any real kernel needs, and few enough to check quickly."""


class Members:
    """The members of a JSON object: each is taken once, and :meth:`close` refuses those that are left.

    Parameters
    ----------
    value
        What should be an object.
    where
        Its name in error messages.
    """

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise FileFormatError(f"{where} must be a JSON object; got {reprlib.repr(value)}.")
        self.where = where
        self._left: dict[str, Any] = dict(value)

    def take(self, name: str) -> Any:
        """A member of any kind."""
        if name not in self._left:
            raise FileFormatError(f"{self.where} has no member {name!r}.")
        return self._left.pop(name)

    def text(self, name: str, choices: Collection[str] | None = None) -> str:
        """A string, one of `choices` if there are any."""
        value = self.take(name)
        if not isinstance(value, str):
            raise self._wrong(name, "text", value)
        if choices is not None and value not in choices:
            raise self._wrong(name, f"one of {', '.join(choices)}", value)
        return value

    def integer(self, name: str, least: int) -> int:
        """A whole number of at least `least`."""
        value = self.take(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(name, f"a whole number of at least {least}", value)
        return value

    def optional_integer(self, name: str, least: int) -> int | None:
        """A whole number of at least `least`, or None."""
        if self._left.get(name, 0) is None:
            return self._left.pop(name)  # type: ignore[no-any-return]
        return self.integer(name, least)

    def number(self, name: str, *, finite: bool = True) -> float:
        """A floating-point number, finite unless told otherwise."""
        value = self.take(name)
        # isfinite fails on a whole number that is too large for a float, so the type is checked first.
        if not isinstance(value, float) or (finite and not math.isfinite(value)):
            raise self._wrong(name, f"a {'finite ' if finite else ''}floating-point number", value)
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.take(name)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def items(self, name: str) -> list[Any]:
        """A list."""
        value = self.take(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return value

    def members(self, name: str) -> "Members":
        """An object."""
        return Members(self.take(name), f"{self.where}.{name}")

    def names(self) -> list[str]:
        """The members that are left."""
        return list(self._left)

    def close(self) -> None:
        """Refuse members that were not taken."""
        if self._left:
            raise FileFormatError(f"{self.where} has unknown members {reprlib.repr(sorted(self._left))}.")

    def _wrong(self, name: str, expected: str, value: object) -> FileFormatError:
        return FileFormatError(f"{self.where}.{name} must be {expected}; got {reprlib.repr(value)}.")


class Arrays:
    """Named arrays: each is taken once, and :meth:`close` refuses those that are left."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if len(arrays) > MAX_ARRAYS:
            raise FileFormatError(f"There must be at most {MAX_ARRAYS} arrays; got {len(arrays)}.")
        self._left = dict(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(self, name: str, *shapes: Shape, dtypes: Collection[str] = FLOATS, finite: bool = True) -> NDArray[Any]:
        """An array with one of `dtypes` and, if given, one of `shapes`, in which None is any size of at least one."""
        if name not in self._left:
            raise FileFormatError(f"There is no array {name!r}.")
        array = self._left.pop(name)
        if array.dtype.name not in dtypes:
            raise FileFormatError(f"The array {name!r} must be of {' or '.join(dtypes)}; got {array.dtype}.")
        if shapes and not any(_fits(array.shape, shape) for shape in shapes):
            expected = " or ".join(str(["any" if size is None else size for size in shape]) for shape in shapes)
            raise FileFormatError(f"The array {name!r} must be of shape {expected}; got {list(array.shape)}.")
        if finite and not np.isfinite(array).all():
            raise FileFormatError(f"The array {name!r} holds values that are NaN or infinite.")
        return array

    def close(self) -> None:
        """Refuse arrays that were not taken."""
        if self._left:
            raise FileFormatError(f"There are unknown arrays {reprlib.repr(sorted(self._left))}.")


def _fits(found: tuple[int, ...], expected: Shape) -> bool:
    return len(found) == len(expected) and all(
        size >= 1 if wanted is None else size == wanted for size, wanted in zip(found, expected, strict=True)
    )
