"""Output: results on the standard output, everything else on the standard error.

All text goes through here or through :mod:`cvgp.cli.guard`, where what a terminal would obey is escaped.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cvgp.data.reading import Reading
from cvgp.parallel.launcher import launched
from cvgp.printable import printable_json, printable_lines


def note(text: str) -> None:
    """Say something about the work, on the standard error; of several workers the first speaks for all."""
    if launched().rank == 0:
        print(printable_lines(text), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print a result; at once, so that a reader who has left is noticed here."""
    print(printable_lines(text), flush=True)


def note_reading(data: str, reading: Reading) -> None:
    """Say how a table was read, if that could have been otherwise."""
    if not reading.is_plain:
        note(f"{data}: {reading.describe()}")


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object; numbers that JSON has no word for become null."""
    is_utf = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(_finite(value), indent=2, ensure_ascii=not is_utf)
    print(printable_json(text), flush=True)


def print_facts(facts: Mapping[str, str]) -> None:
    """Print names and values in two columns."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(printable_lines(name), printable_lines(value))
    _print(grid)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column holds names and whose others hold numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for position, name in enumerate(columns):
        table.add_column(printable_lines(name), justify="left" if position == 0 else "right")
    for row in rows:
        table.add_row(*map(printable_lines, row))
    _print(table)


def _print(content: Any) -> None:
    from rich.console import Console

    # In a log or a pipe there is no screen whose width would matter. A name such as "[red]" or ":cat:" is no markup.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120, markup=False, emoji=False).print(content)
    sys.stdout.flush()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
