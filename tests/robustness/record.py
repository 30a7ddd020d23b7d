"""What long runs have found so far: a line per run, from which docs/faults.md is filled.

A run goes on with the case after the last one that is recorded, so that hours can be collected in pieces.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from cvgp.paper.markdown import fill, markdown_table
from cvgp.paper.provenance import now, provenance

__all__ = ["DOCS", "FAILURES", "RECORD", "add", "entries", "keep_failures", "next_seed", "table", "write_docs"]

FOLDER = Path(__file__).resolve().parent
RECORD = FOLDER / "record.jsonl"
FAILURES = FOLDER / "failures.jsonl"
"""Cases that failed once, as small as they could be made; a test repeats each."""
DOCS = FOLDER.parents[1] / "docs" / "faults.md"

GOALS = {
    "fuzzed inputs": 100_000,
    "fuzzed fits": 10_000,
    "kills": 200,
    "minutes of soak": 60,
    "workers killed, stopped or slowed": 6,
}


def entries(path: Path = RECORD) -> list[dict[str, Any]]:
    """All runs, the oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def add(what: str, found: dict[str, Any], path: Path = RECORD) -> None:
    """Record a run."""
    line = {"what": what, "date": now()[:10], "commit": provenance()["commit"], **found}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def next_seed(path: Path = RECORD) -> int:
    """The first case of the fuzzer that no run has had."""
    return max((entry["next"] for entry in entries(path) if entry["what"] == "fuzz"), default=0)


def keep_failures(failures: list[dict[str, Any]], path: Path = FAILURES) -> None:
    """Store cases for the test that repeats them."""
    with path.open("a", encoding="utf-8") as file:
        for failure in failures:
            file.write(json.dumps(failure) + "\n")


def table(path: Path = RECORD) -> str:
    """The sums over all runs beside what is aimed at.

    A soak that failed counts until one of the length that is aimed at has passed; it is named below the table then.
    """
    counts: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    mended = 0
    for entry in entries(path):
        if entry["what"] == "fuzz":
            for target, outcomes in entry["cases"].items():
                name = "fuzzed fits" if target == "fit" else "fuzzed inputs"
                counts[name] += sum(outcomes.values())
                failed[name] += outcomes.get("FAILED", 0)
        elif entry["what"] == "kill":
            counts["kills"] += sum(entry["kills"].values())
            failed["kills"] += entry["failed"]
        elif entry["what"] == "soak":
            counts["minutes of soak"] += round(entry["minutes"])
            failed["minutes of soak"] += entry["failed"]
            if not entry["failed"] and entry["minutes"] >= GOALS["minutes of soak"]:
                mended += failed.pop("minutes of soak")
        elif entry["what"] == "workers":
            counts["workers killed, stopped or slowed"] += entry["cases"]
            failed["workers killed, stopped or slowed"] += entry["failed"]
    rows = [[name, f"{counts[name]}", f"{goal}", f"{failed[name]}"] for name, goal in GOALS.items()]
    dates = [entry["date"] for entry in entries(path)]
    when = f"From {dates[0]} to {dates[-1]}, in {len(dates)} runs." if dates else "No run is recorded yet."
    if mended:
        when += f" Soaks that failed before one of {GOALS['minutes of soak']} minutes passed: {mended}."
    return f"{markdown_table(['what', 'so far', 'aim', 'failed'], rows, num_text=1)}\n\n{when}"


def write_docs(path: Path = RECORD, docs: Path = DOCS) -> None:
    """Put the sums into their place in the page."""
    fill(docs, "long-runs", table(path))
