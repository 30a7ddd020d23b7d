"""Downloads: whole or not at all, with a checksum and a progress bar."""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Protocol
from urllib.request import Request, urlopen

from cvgp.errors import FileAccessError, FileFormatError
from cvgp.files.atomic import atomic_write

TIMEOUT = 30.0
BLOCK = 1 << 16


class DownloadError(FileAccessError):
    """An address that cannot be reached, or that sends something else than expected."""


class _Bar(Protocol):
    def __call__(self, num_bytes: int) -> None: ...


def checksum_path(path: Path) -> Path:
    """Where the checksum of a downloaded file is recorded."""
    return path.with_name(f"{path.name}.sha256")


def fetch(address: str, target: Path, sha256: str | None) -> str:
    """Download a file, record its SHA-256 beside it, and return that.

    A checksum that is known beforehand must match. Where none is known, the recorded one shows whether the file changes
    later, but not whether this first download was right.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with atomic_write(target) as temporary:
        try:
            request = Request(address, headers={"User-Agent": "cvgp"})
            with urlopen(request, timeout=TIMEOUT) as response, temporary.open("wb") as file:
                size = int(response.headers.get("Content-Length") or 0)
                with _progress(target.name, size) as advance:
                    while block := response.read(BLOCK):
                        file.write(block)
                        digest.update(block)
                        advance(len(block))
                received = file.tell()
        except (OSError, HTTPException) as error:
            raise DownloadError(f"{address} did not answer as it should ({error}).") from error
        if size and received != size:
            raise DownloadError(f"{address} sent {received} of {size} bytes.")
        found = digest.hexdigest()
        if sha256 is not None and found != sha256:
            raise DownloadError(f"{address} sent a file whose SHA-256 is {found}, not {sha256}.")
    checksum_path(target).write_text(f"{found}\n", encoding="ascii")
    return found


def check_recorded(path: Path) -> None:
    """Compare a downloaded file with the checksum that was recorded with it; files from elsewhere have none."""
    record = checksum_path(path)
    if not record.exists():
        return
    expected = record.read_text(encoding="ascii").strip()
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise FileFormatError(
            f"{path} has changed since it was downloaded (SHA-256 {found}, was {expected}); remove it and "
            f"{record.name} to download it again."
        )


@contextmanager
def _progress(label: str, size: int) -> Iterator[_Bar]:
    """A bar on a terminal, nothing in a log."""
    if not sys.stderr.isatty():
        yield lambda num_bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(label, total=size or None)
        yield lambda num_bytes: progress.advance(task, num_bytes)
