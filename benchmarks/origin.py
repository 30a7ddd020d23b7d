"""The line under a table that says where its results come from."""

from collections.abc import Iterable, Sequence

from benchmarks.store import Record

__all__ = ["origin"]

PACKAGES = ("torch", "gpytorch", "numpy")
PEERS = ("gpflow", "tensorflow", "gpboost", "lightgbm")
"""Known only to the results of these."""


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


def _all(values: Iterable[str]) -> str:
    return " and ".join(sorted(set(values)))
