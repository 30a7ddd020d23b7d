"""Spoilt files by the thousand: each must be read, or refused with an error of cvgp.

Cases run in a process of its own with limits on memory and time. A case is told by its number, so that a failure can
be repeated; a process that dies is started again after the case that killed it.
"""

import json
import select
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from cvgp.paper.markdown import markdown_table

__all__ = ["Report", "run"]

ROOT = Path(__file__).resolve().parents[2]

SMALLEST = "smallest case: "
"""Before a fit that failed, with as little as possible that is odd."""

SILENCE = 120.0
"""Seconds without a word after which a worker counts as hanging."""


class Report(NamedTuple):
    """What came of all cases."""

    outcomes: dict[str, Counter[str]]
    """By target."""
    failures: list[str]
    cases: int
    next_seed: int = 0
    """The first case that was not run."""
    kept: list[dict[str, Any]] = []  # noqa: RUF012 - of a named tuple
    """The cases that failed, for the test that repeats them."""

    def table(self) -> str:
        """One row per target."""
        rows = []
        for target, counts in sorted(self.outcomes.items()):
            refused = sum(n for name, n in counts.items() if name not in ("read", "FAILED"))
            numbers = (counts.total(), counts["read"], refused, counts["FAILED"])
            rows.append([target, *(str(n) for n in numbers)])
        header = ["what is spoilt", "cases", "still read", "refused by a CVGPError", "anything else"]
        return markdown_table(header, rows, num_text=1)


def run(minutes: float, first_seed: int = 0) -> Report:
    """Open spoilt files for as long as told."""
    end = time.monotonic() + 60.0 * minutes
    report = Report({}, [], 0, kept=[])
    seed = first_seed
    while (left := end - time.monotonic()) > 0.0:
        seed = _run_worker(seed, left, report)
    return report._replace(cases=sum(counts.total() for counts in report.outcomes.values()), next_seed=seed)


def _run_worker(seed: int, seconds: float, report: Report) -> int:
    """Run cases until the time is over or the worker dies; returns the next case."""
    with subprocess.Popen(_command(seed, seconds), stdout=subprocess.PIPE, text=True, cwd=ROOT) as worker:
        assert worker.stdout is not None
        under_way: tuple[int, str] | None = None
        while True:
            answered, _, _ = select.select([worker.stdout], [], [], SILENCE)
            if not answered:
                worker.kill()
            line = worker.stdout.readline()
            if not line:
                break
            word, number, rest = line.strip().split(" ", 2)
            if word == "start":
                under_way = int(number), rest
            elif under_way is not None:
                _count(report, under_way, rest)
                seed, under_way = int(number) + 1, None
        code = worker.wait()
    if under_way is None and code != 0:
        raise RuntimeError(f"The worker ended with code {code} before its first case.")
    if under_way is not None:
        _count(report, under_way, f"FAILED: the process ended with code {code}")
        seed = under_way[0] + 1
    return seed


def _command(seed: int, seconds: float) -> list[str]:
    return [sys.executable, "-m", "tests.robustness.fuzz_worker", str(seed), str(seconds)]


def _count(report: Report, case: tuple[int, str], outcome: str) -> None:
    seed, target = case
    failed = outcome.startswith("FAILED")
    report.outcomes.setdefault(target, Counter())["FAILED" if failed else outcome] += 1
    if failed:
        report.failures.append(f"case {seed} ({target}) {outcome}")
        reason, _, case = outcome.partition(SMALLEST)
        report.kept.append({"target": target, "seed": seed, "reason": reason, "case": json.loads(case or "null")})
