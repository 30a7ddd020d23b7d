"""What a file may ask for before it is read. A small file can claim, or unpack to, more than a machine holds.

Each limit has a variable of the environment, which sets another number. `docs/faults.md` lists them.
"""

import os
import warnings
from typing import NamedTuple

from cvgp.errors import CVGPWarning, InvalidInputError


class Limit(NamedTuple):
    """A number that a file must keep to."""

    variable: str
    default: int
    meaning: str

    @property
    def value(self) -> int:
        """The number that holds now."""
        text = os.environ.get(self.variable, "")
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and int(text) > 0):
            raise InvalidInputError(f"{self.variable} must be a whole number above 0; got {text[:40]!r}.")
        return int(text)

    @property
    def advice(self) -> str:
        """How to read the file all the same."""
        return f"If you trust the file, set the environment variable {self.variable} to a larger number."


COLUMNS = Limit("CVGP_MAX_COLUMNS", 20_000, "columns of a table")
PACKING = Limit("CVGP_MAX_PACKING", 100, "bytes in memory per byte of a file, beyond the next limit")
UNPACKED = Limit("CVGP_MAX_UNPACKED", 16_000_000, "bytes that a file of any size may unpack to")
METADATA = Limit("CVGP_MAX_METADATA", 8_000_000, "bytes of the header of a model file or a Parquet file")
MANY_COLUMNS = 5000
"""Beyond this many columns a table takes long enough that its reader should be told."""
LIMITS = (COLUMNS, PACKING, UNPACKED, METADATA)


def most_unpacked(packed: int) -> int:
    """Bytes that a file of `packed` bytes may become in memory."""
    return max(UNPACKED.value, PACKING.value * packed)


def check_unpacked(file: object, packed: int, unpacked: int, what: str = "unpacks") -> None:
    """Refuse a file, or a part of one, that stands for far more than its size."""
    if unpacked > most_unpacked(packed):
        raise InvalidInputError(
            f"{file} has {packed} bytes and {what} to at least {unpacked / 1e6:.0f} MB, more than {PACKING.value} "
            f"times as much, which no real table does. {PACKING.advice}"
        )


def check_stored(file: object, size: int, blocks: int | None) -> None:
    """Refuse a file that consists of holes: the system says how many blocks of 512 bytes it takes on the disk."""
    if blocks is not None:
        check_unpacked(file, 512 * blocks, size, "reads (the rest is holes)")


def check_columns(file: object, count: int) -> None:
    """Refuse more columns than can be looked at in reasonable time."""
    if MANY_COLUMNS < count <= COLUMNS.value:
        warnings.warn(
            f"{file} has {count} columns, and looking at each takes a while; Ctrl-C ends it. Choose those that matter "
            "(--features, --drop) to be faster.",
            CVGPWarning,
            stacklevel=2,
        )
    if count > COLUMNS.value:
        raise InvalidInputError(
            f"{file} has {count} columns, and a table may have {COLUMNS.value}; leave out those that tell nothing. "
            f"{COLUMNS.advice}"
        )


def check_metadata(file: object, size: int, of_file: int = 0) -> None:
    """Refuse a header that takes too much memory; the header of a large table may take a hundredth of the file."""
    if size > max(METADATA.value, of_file // 100):
        raise InvalidInputError(
            f"{file} has a header of {size / 1e6:.1f} MB, and it may have {METADATA.value / 1e6:.1f} MB. "
            f"{METADATA.advice}"
        )
