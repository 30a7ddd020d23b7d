"""How much a file may become in memory: a few bytes can stand for more than a machine holds."""

import io
import os
from pathlib import Path
from typing import IO, Any

from cvgp.errors import InvalidInputError

__all__ = ["LimitedStream", "check_fits", "memory_left"]


def memory_left() -> int:
    """Bytes that the system could give without taking them from others."""
    facts = Path("/proc/meminfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(name: object, size: int) -> None:
    """Refuse what would take more memory than there is."""
    left = memory_left()
    if size > left:
        raise InvalidInputError(
            f"{name} holds at least {size / 1e9:.1f} GB when it is unpacked, and {left / 1e9:.1f} GB of memory are "
            "left; use fewer rows or columns."
        )


class LimitedStream(io.RawIOBase):
    """A stream that gives up once more has come out of it than there is memory."""

    def __init__(self, stream: IO[bytes] | io.BufferedIOBase, name: object) -> None:
        self._stream = stream
        self._name = name
        self._count = 0
        self._limit = memory_left()

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._count += len(content)
        if self._count > self._limit:
            check_fits(self._name, self._count)
        return len(content)

    def close(self) -> None:
        """Close the stream below as well."""
        self._stream.close()
        super().close()
