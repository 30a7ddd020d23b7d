"""How much a table may become in memory: a few bytes of a file can stand for more than a machine holds."""

import os
from pathlib import Path

from cvgp.errors import InvalidInputError

__all__ = ["check_fits", "memory_left"]


def memory_left() -> int:
    """Bytes that the system could give without taking them from others."""
    facts = Path("/proc/meminfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_fits(name: object, size: int) -> None:
    """Refuse what takes more memory than there is."""
    left = memory_left()
    if size > left:
        raise InvalidInputError(
            f"{name} holds at least {size / 1e9:.1f} GB when it is unpacked, and {left / 1e9:.1f} GB of memory are "
            "left; use fewer rows or columns."
        )
