"""Reading files from strangers: every name, type and size is checked before it is used."""

import math
import reprlib  # what comes from a file may be too long or too deep for repr
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cvgp.errors import FileFormatError

Shape = tuple[int | None, ...]
Value = TypeVar("Value")
FLOATS = ("float64", "float32")

MAX_ARRAYS = 2000
"""More than any real kernel needs, and few enough to check quickly."""
MAX_PARTS = 500_000
"""Lists and objects in the metadata: several per column of the widest tables. Each may be as little as two bytes of a
file, and takes up to 250 in memory."""
MAX_INTEGER = 2**53
"""Beyond that a count is no exact floating-point number, and nothing that cvgp counts comes near."""
MAX_TEXT = 1000
"""Characters of a text that is no name of a column."""
SQUARABLE = (1e-150, 1e150)
"""Sizes whose squares stay in the range of numbers."""


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
        """A string, one of `choices` if there are any, and else a short one."""
        if choices is None:
            return self._take(name, str, f"text of at most {MAX_TEXT} characters", lambda value: len(value) <= MAX_TEXT)
        return self._take(name, str, f"one of {', '.join(choices)}", lambda value: value in choices)

    def integer(self, name: str, least: int) -> int:
        """A whole number of at least `least`."""
        expected = f"a whole number of at least {least}"
        return self._take(name, int, expected, lambda value: least <= value <= MAX_INTEGER)

    def optional_integer(self, name: str, least: int) -> int | None:
        """A whole number of at least `least`, or None."""
        if self._left.get(name, 0) is None:
            return self._left.pop(name)  # type: ignore[no-any-return]
        return self.integer(name, least)

    def number(self, name: str, *, finite: bool = True) -> float:
        """A floating-point number, finite unless told otherwise."""
        expected = f"a {'finite ' if finite else ''}floating-point number"
        return self._take(name, float, expected, lambda value: math.isfinite(value) or not finite)

    def flag(self, name: str) -> bool:
        """True or false."""
        return self._take(name, bool, "true or false")

    def items(self, name: str) -> list[Any]:
        """A list."""
        return self._take(name, list, "a list")

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

    def _take(
        self, name: str, kind: type[Value], expected: str, fits: Callable[[Value], bool] = lambda _: True
    ) -> Value:
        value = self.take(name)
        # To Python, true and false are whole numbers too.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)) or not fits(value):
            raise FileFormatError(f"{self.where}.{name} must be {expected}; got {reprlib.repr(value)}.")
        return value


class Arrays:
    """Named arrays: each is taken once, and :meth:`close` refuses those that are left."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        if len(arrays) > MAX_ARRAYS:
            raise FileFormatError(f"There must be at most {MAX_ARRAYS} arrays; got {len(arrays)}.")
        self._left = dict(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def take(
        self,
        name: str,
        *shapes: Shape,
        dtypes: Collection[str] = FLOATS,
        finite: bool = True,
        limits: tuple[float, float] | None = None,
    ) -> NDArray[Any]:
        """An array with one of `dtypes` and, if given, one of `shapes`, in which None is any size of at least one.

        All values are finite unless told otherwise, and between the limits where there are some.
        """
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
        if limits is not None and not ((array >= limits[0]) & (array <= limits[1])).all():
            raise FileFormatError(f"The values of the array {name!r} must be from {limits[0]:g} to {limits[1]:g}.")
        return array

    def close(self) -> None:
        """Refuse arrays that were not taken."""
        if self._left:
            raise FileFormatError(f"There are unknown arrays {reprlib.repr(sorted(self._left))}.")


def check_texts(value: object, where: str) -> None:
    """Refuse text with half of a surrogate pair, which is no Unicode: it can be neither printed nor stored."""
    left = [(where, value)]
    while left:
        place, item = left.pop()
        if isinstance(item, str) and not _is_unicode(item):
            raise FileFormatError(f"{place[:MAX_TEXT]} holds text that is no Unicode: {reprlib.repr(item)}.")
        if isinstance(item, dict):
            left += [(f"a name in {place}", name) for name in item]
            left += [(f"{place}.{name}", inner) for name, inner in item.items()]
        elif isinstance(item, list):
            left += [(f"{place}[{position}]", inner) for position, inner in enumerate(item)]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits(found: tuple[int, ...], expected: Shape) -> bool:
    return len(found) == len(expected) and all(
        size >= 1 if wanted is None else size == wanted for size, wanted in zip(found, expected, strict=True)
    )
