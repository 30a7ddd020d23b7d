"""Results on disk: one JSON line per task, written when the task ends, with its provenance.

A store is a file ``NAME.jsonl`` and, where tasks give arrays, a folder of files ``NAME/KEY.npz``. Tables and figures
read nothing else.
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cvgp
from cvgp.errors import FileFormatError, MissingFileError
from cvgp.files import atomic_write

RESULTS = Path(__file__).resolve().parent / "results"

Value = str | int | float | bool | None
Key = dict[str, Value]
"""Everything that decides the result of a task."""
Metrics = dict[str, float | None]
"""Numbers; None where one cannot be had."""
Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Outcome:
    """What a task gives."""

    metrics: Metrics
    arrays: Arrays = field(default_factory=dict)
    trace: list[Metrics] = field(default_factory=list)
    """The same numbers on the way, for what was looked at more than once."""
    origin: dict[str, str] = field(default_factory=dict)
    """Provenance that only the task knows: versions of a peer, its precision."""


@dataclass(frozen=True)
class Record:
    """A task, what it gave, and where it was run; two records of equal tasks are repetitions."""

    task: Key
    metrics: Metrics
    """Empty for a task that failed."""
    provenance: dict[str, str]
    seconds: float = 0.0
    error: str = ""
    warnings: list[str] = field(default_factory=list)
    arrays: bool = False
    trace: list[Metrics] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether the task ended in an error."""
        return bool(self.error)

    def number(self, name: str) -> float:
        """A metric; NaN where there is none."""
        value = self.metrics.get(name)
        return float("nan") if value is None else value


class Store:
    """The results in one file: lines are only added, and of equal tasks the last one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrays = path.with_suffix("")
        self._latest: dict[str, Record] = {}
        for number, line in enumerate(self._whole_text().splitlines(), 1):
            try:
                record = Record(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise FileFormatError(
                    f"{self.path}, line {number}: not a record ({error}); mend or remove it."
                ) from error
            self._latest[_canonical(record.task)] = record

    def __iter__(self) -> Iterator[Record]:
        return iter(self._latest.values())

    def __len__(self) -> int:
        return len(self._latest)

    def get(self, task: Key) -> Record | None:
        """The last record of a task, or None."""
        return self._latest.get(_canonical(task))

    def finished(self, task: Key) -> Record | None:
        """The last record of a task, if it did not fail."""
        record = self.get(task)
        return None if record is None or record.failed else record

    def append(self, record: Record, arrays: Arrays | None = None) -> None:
        """Write a record, whole or, if the process dies meanwhile, not at all; its arrays come first."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if record.arrays:
            self._arrays.mkdir(exist_ok=True)
            with atomic_write(self.arrays_path(record.task)) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **(arrays or {}))
        whole = len(self._whole_text().encode())
        with self.path.open("ab") as lines:
            lines.truncate(whole)  # half a line that a killed run left
            lines.write(json.dumps(vars(record), allow_nan=False).encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
        self._latest[_canonical(record.task)] = record

    def arrays(self, record: Record) -> dict[str, NDArray[np.generic]]:
        """The arrays of a record."""
        path = self.arrays_path(record.task)
        if not path.exists():
            raise MissingFileError(f"{path} is missing, which belongs to {self.path}; run the task again.")
        with np.load(path, allow_pickle=False) as stored:
            return dict(stored)

    def arrays_path(self, task: Key) -> Path:
        """Where the arrays of a task are kept."""
        return self._arrays / f"{key_name(task)}.npz"

    def _whole_text(self) -> str:
        """The lines that were written to their end."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        return text[: text.rfind("\n") + 1]


def key_name(task: Key) -> str:
    """A short name for a task's file."""
    return hashlib.sha256(_canonical(task).encode()).hexdigest()[:16]


def _canonical(task: Key) -> str:
    return json.dumps(task, sort_keys=True)


PACKAGES = ("torch", "gpytorch", "scikit-learn", "numpy", "scipy")


@cache
def provenance() -> dict[str, str]:
    """What should be known about a run besides its settings and its date."""
    found = {
        "cvgp": cvgp.__version__,
        "commit": _commit(),
        "source": _source(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
    }
    return found | {name: version(name) for name in PACKAGES}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _folder() -> Path:
    return Path(cvgp.__file__).resolve().parent


def _source() -> str:
    """A fingerprint of the code of cvgp that is imported, committed or not."""
    digest = hashlib.sha256()
    for path in sorted(_folder().rglob("*.py")):
        digest.update(path.relative_to(_folder()).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:10]


def _commit() -> str:
    """The commit of the clone that cvgp is imported from, with a mark where its code differs."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    if not commit or not _git("ls-files", "--", "."):  # an installed copy inside some other repository
        return "unknown"
    return f"{commit}+changes" if _git("status", "--porcelain", "--", ".") else commit


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, cwd=_folder(), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or not a clone: the results are still results
        return ""
    return done.stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
