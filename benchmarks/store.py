"""Results on disk: one line a fit, written as soon as it is done, so that a run can be interrupted at any time."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.scores import Metrics
from cvgp.errors import FileFormatError

__all__ = ["Record", "Store", "Value"]

Value = str | int | float | bool | None


@dataclass(frozen=True)
class Record:
    """One fit: what it was, what it gave, where it was run."""

    task: dict[str, Value]
    """Everything that decides the result; two records of equal tasks are repetitions."""
    metrics: Metrics
    """Empty for a fit that failed."""
    provenance: dict[str, str]
    error: str = ""
    warnings: list[str] = field(default_factory=list)
    trace: list[Metrics] = field(default_factory=list)
    """Numbers on the way, for what was looked at more than once."""

    @property
    def failed(self) -> bool:
        """Whether the fit ended in an error."""
        return bool(self.error)


class Store:
    """A file of JSON lines that only grows; of equal tasks the last line counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._latest: dict[str, Record] = {}
        lines = self._whole_text().splitlines()
        for number, line in enumerate(lines, 1):
            try:
                record = Record(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise FileFormatError(f"{path}, line {number}: not a record ({error}); mend or remove it.") from error
            self._latest[_key(record.task)] = record

    def get(self, task: dict[str, Value]) -> Record | None:
        """The last record of a task, or None."""
        return self._latest.get(_key(task))

    def finished(self, task: dict[str, Value]) -> Record | None:
        """The last record of a task, if it did not fail."""
        record = self.get(task)
        return None if record is None or record.failed else record

    def append(self, record: Record) -> None:
        """Write a record, whole or, if the process dies meanwhile, not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = len(self._whole_text().encode())
        with self.path.open("ab") as file:
            file.truncate(whole)  # half a line that a killed run left
            file.write(json.dumps(vars(record), allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._latest[_key(record.task)] = record

    def _whole_text(self) -> str:
        """The lines that were written to their end."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        return text[: text.rfind("\n") + 1]


def _key(task: dict[str, Value]) -> str:
    return json.dumps(task, sort_keys=True)
