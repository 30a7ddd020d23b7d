"""Tables in Markdown, the line that says where results come from, and the places in a page that they fill."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev

from cvgp.errors import FileFormatError, MissingFileError
from cvgp.files import atomic_write
from experiments.store import Record

PACKAGES = ("torch", "gpytorch", "numpy")
PEERS = ("gpflow", "tensorflow", "gpboost", "lightgbm", "catboost", "ngboost")
"""Known only to the results of these."""


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], *, num_text: int) -> str:
    """A table; after the first `num_text` columns come numbers, aligned to the right."""
    lines = [header, ["---"] * num_text + ["---:"] * (len(header) - num_text), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float | None, form: str = ".3f") -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None or value != value else format(value, form.replace(".", "z.", 1))  # z: never -0.00


def mean_and_error(values: Sequence[float | None], form: str = ".3f") -> str:
    """Mean ± standard error over folds."""
    known = [v for v in values if v is not None and v == v]
    if not known:
        return "-"
    if len(known) == 1:
        return number(known[0], form)
    return f"{number(mean(known), form)} ± {stdev(known) / len(known) ** 0.5:{form}}"


def origin(records: Sequence[Record], what: str | None = None) -> str:
    """A line that says what the results are and where they come from; several commits or machines are all named."""
    if not records:
        return "No results yet."
    found = [record.provenance for record in records]
    dates = sorted(p["date"][:10] for p in found)
    period = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    threads = _all(str(record.task["threads"]) for record in records if "threads" in record.task)
    versions = {name: _all(p[name] for p in found if name in p) for name in (*PACKAGES, *PEERS)}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return (
        f"{what or f'{len(records)} results'}, {period}, on {_all(p['processor'] for p in found)}"
        f"{f' with {threads} threads' if threads else ''}; commit {_all(p['commit'] for p in found)}; {packages}."
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
    with atomic_write(path) as temporary:
        temporary.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def places(path: Path) -> set[str]:
    """The names of the places in a page that can be filled."""
    return set(re.findall(r"<!-- ([\w-]+):begin -->", path.read_text(encoding="utf-8"))) if path.exists() else set()


def _all(values: Iterable[str]) -> str:
    return " and ".join(sorted(set(values)))
