"""Progress of a run: a table that renews itself on a terminal, one line per task in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from cvgp.paper.store import Key, Record, Store
from cvgp.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

Cell = tuple[str, str]
"""A data set (or what else is varied) and a system."""


class Board:
    """Counts of finished, failed and waiting tasks by data set and system, on the standard error."""

    def __init__(self, store: Store, preset: str) -> None:
        self.store = store
        self.preset = preset
        self.waiting: dict[Cell, int] = {}
        self.live: Any = None
        self.begin = time.perf_counter()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(self.table(""), console=Console(stderr=True), refresh_per_second=2)
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def expect(self, keys: Sequence[Key]) -> None:
        """Tasks that are about to run."""
        for key in keys:
            self.waiting[_cell(key)] = self.waiting.get(_cell(key), 0) + 1
        self._renew("")

    def show(self, record: Record, done: int, known: int) -> None:
        """Tell of a task that has ended."""
        cell = _cell(record.task)
        self.waiting[cell] = max(self.waiting.get(cell, 0) - 1, 0)
        left = (time.perf_counter() - self.begin) / done * (known - done)
        place = f"[{done}/{known}, {left / 60:.0f} min left]"
        if self.live is None:
            print(f"{place} {_describe(record)}", file=sys.stderr, flush=True)
            return
        if record.failed:
            self.live.console.print(_describe(record), markup=False)
        self._renew(place)

    def _renew(self, title: str) -> None:
        if self.live is not None:
            self.live.update(self.table(title))

    def table(self, title: str) -> Table:
        """What is in the store, with what is waiting."""
        from rich import box
        from rich.table import Table

        table = Table(title=title or None, box=box.SIMPLE_HEAD)
        table.add_column("tasks")
        for name in ("done", "failed", "waiting", "mean seconds"):
            table.add_column(name, justify="right")
        for row in self.rows():
            table.add_row(*row)
        return table

    def rows(self) -> list[list[str]]:
        """One row per data set and system."""
        found: dict[Cell, list[Record]] = {cell: [] for cell in self.waiting}
        for record in self.store:
            if record.task.get("preset") == self.preset:
                found.setdefault(_cell(record.task), []).append(record)
        rows = []
        for cell, records in found.items():
            failed = sum(r.failed for r in records)
            seconds = f"{sum(r.seconds for r in records) / len(records):.1f}" if records else "-"
            counts = [str(len(records) - failed), str(failed), str(self.waiting.get(cell, 0))]
            rows.append([" ".join(filter(None, cell)), *counts, seconds])
        return rows


def outcome(record: Record) -> str:
    """The first numbers of a record, or its error."""
    shown = [f"{name} {value:.4g}" for name, value in record.metrics.items() if value is not None][:3]
    return f"FAILED, {record.error}" if record.failed else ", ".join(shown)


def _cell(key: Key) -> Cell:
    return str(key.get("dataset") or ""), str(key.get("method") or key.get("matrix") or "")


def _describe(record: Record) -> str:
    parts = [*_cell(record.task), *(str(record.task[n]) for n in ("size", "fold") if record.task.get(n) is not None)]
    return printable(f"{' '.join(filter(None, parts))}: {outcome(record)} ({record.seconds:.1f} s)")
