"""Tables in Markdown, and the places in the documentation that they fill."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.store import Record
from cvgp.errors import FileFormatError, MissingFileError

__all__ = ["fill", "origin", "table"]

PACKAGES = ("torch", "gpytorch", "numpy")
PEERS = ("gpflow", "tensorflow", "gpboost", "lightgbm")
"""Known only to the results of these."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, num_text: int) -> str:
    """A Markdown table; after the first `num_text` columns come numbers, aligned to the right."""
    lines = [header, ["---"] * num_text + ["---:"] * (len(header) - num_text), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def origin(records: Sequence[Record]) -> str:
    """A line that says where results come from; several commits or machines are all named."""
    if not records:
        return "No results yet."
    found = [record.provenance for record in records]
    dates = sorted(p["date"][:10] for p in found)
    versions = {name: _all(p[name] for p in found if name in p) for name in (*PACKAGES, *PEERS)}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    threads = _all(str(record.task["threads"]) for record in records)
    period = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return (
        f"{len(records)} results, {period}, on {_all(p['processor'] for p in found)} with {threads} threads; "
        f"commit {_all(p['commit'] for p in found)}; {packages}."
    )


def fill(path: Path, place: str, text: str) -> None:
    """Put text between ``<!-- place:begin -->`` and ``<!-- place:end -->``."""
    if not path.exists():
        raise MissingFileError(f"There is no file {path} to write into.")
    page = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {place}:begin -->", f"<!-- {place}:end -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise FileFormatError(f"{path} must hold the line {begin} once and, after it, {end}.")
    before, after = page.split(begin)[0], page.split(end)[1]
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def _all(values: Iterable[str]) -> str:
    return " and ".join(sorted(set(values)))
