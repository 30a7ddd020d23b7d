"""``python -m tests.robustness``: long runs that look for what a short test cannot find.

Each run adds its counts to tests/robustness/record.jsonl, and the sums to docs/faults.md, unless ``--dry`` is given.
"""

import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer

from cvgp.errors import CVGPError
from cvgp.paper.markdown import fill
from tests.robustness import every_field, record
from tests.robustness import fuzz as fuzz_run
from tests.robustness import kills as kill_run
from tests.robustness import soak as soak_run

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Minutes = Annotated[float, typer.Option(min=0.01, help="How long.")]
Hours = Annotated[float, typer.Option(min=0.0001, help="How long.")]
Dry = Annotated[bool, typer.Option("--dry", help="Record nothing.")]
STRETCH = 10.0
"""Minutes after which what was found is recorded, so that a run that is stopped loses little."""
WORKER_TESTS = (
    "tests/cli/test_torchrun.py::test_a_killed_worker_ends_the_others_and_a_restart_goes_on",
    "tests/cli/test_torchrun.py::test_a_stopped_worker_is_given_up_after_the_timeout",
    "tests/cli/test_torchrun.py::test_a_slowed_worker_changes_nothing_but_the_time",
    "tests/adapters/test_ray.py::test_a_killed_worker_is_replaced_and_the_fit_goes_on_from_the_checkpoint",
    "tests/adapters/test_ray.py::test_a_slowed_worker_is_waited_for_and_a_stopped_one_is_replaced",
)


@app.command()
def fuzz(
    hours: Hours,
    first: Annotated[int | None, typer.Option(min=0, help="The first case; by default the first that is new.")] = None,
    dry: Dry = False,
) -> None:
    """Give spoilt files and odd numbers to cvgp for as long as told, from where the last run ended."""
    end, failures = time.monotonic() + 3600.0 * hours, []
    seed = record.next_seed() if first is None else first
    while (left := (end - time.monotonic()) / 60.0) > 0.0:
        begin = time.monotonic()
        report = fuzz_run.run(min(left, STRETCH), seed)
        seed, failures = report.next_seed, failures + report.failures
        print(f"\n{report.table()}", flush=True)
        if not dry:
            cases = {target: dict(counts) for target, counts in report.outcomes.items()}
            record.add("fuzz", {"cases": cases, "next": seed, "seconds": round(time.monotonic() - begin)})
            record.keep_failures(report.kept)
            record.write_docs()
    _end(failures, passed=not failures)


@app.command()
def kill(
    count: Annotated[int, typer.Option(min=1, help="Kills of each of the five kinds.")] = 40,
    dry: Dry = False,
) -> None:
    """Kill fits, saves and predictions at random moments, and compare what is gone on with."""
    failures: list[str] = []
    for kind, run in kill_run.KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            failed = 0
            try:
                run(count, Path(folder))
            except AssertionError as error:
                failures.append(f"{kind}: {error}")
                failed = 1
        print(f"{kind}: {'FAILED' if failed else f'{count} kills'}", flush=True)
        if not dry:
            record.add("kill", {"kills": {kind: 0 if failed else count}, "failed": failed})
            record.write_docs()
    _end(failures, passed=not failures)


@app.command()
def workers(dry: Dry = False) -> None:
    """Kill, stop and slow workers of torchrun and Ray: the tests of these, counted."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow or not slow", *WORKER_TESTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=record.FOLDER.parents[1])
    print(done.stdout)
    words = done.stdout.strip().splitlines()[-1].replace(",", "").split()
    counts = {word: int(number) for number, word in pairwise(words) if number.isdigit()}
    passed, failed = counts.get("passed", 0), counts.get("failed", 0)
    if not dry:
        record.add("workers", {"cases": passed + failed, "failed": failed})
        record.write_docs()
    _end([], passed=done.returncode == 0)


@app.command()
def fields(
    minutes: Minutes,
    first: Annotated[int, typer.Option(min=0, help="The number of the first case, to repeat one or to go on.")] = 0,
) -> None:
    """Give every field of a model file every kind of wrong value in turn, and use what loads."""
    failures = every_field.run(minutes, first)
    _end(failures, passed=not failures)


@app.command()
def soak(
    minutes: Minutes,
    write: Annotated[Path | None, typer.Option(help="Also put the table into its place in this page.")] = None,
    dry: Dry = False,
) -> None:
    """Fit, save, load and predict for as long as told, checking memory, descriptors and answers."""
    report = soak_run.run(minutes)
    text = f"{report.table()}\n\n{soak_run.origin()}"
    print(f"\n{text}")
    if write is not None:
        fill(write, "soak", text)
    if not dry:
        found = {"minutes": report.seconds / 60, "rounds": report.rounds, "growth": report.slope}
        record.add("soak", {**found, "failed": int(not report.passed)})
        record.write_docs()
    _end(report.failures, passed=report.passed)


@app.command()
def everything(hours: Hours) -> None:
    """All of it: 200 kills, the workers, an hour of soak, and the fuzzer for so many hours."""
    for arguments in (["kill"], ["workers"], ["soak", "--minutes", "60"], ["fuzz", "--hours", str(hours)]):
        subprocess.run([sys.executable, "-m", "tests.robustness", *arguments], check=True)


def _end(failures: list[str], *, passed: bool) -> None:
    for failure in failures:
        print(failure)
    if not passed:
        raise typer.Exit(1)


def main() -> None:
    """Run the command line; what the user can mend ends in a sentence, not in a traceback."""
    try:
        app(prog_name="python -m tests.robustness")
    except CVGPError as error:
        typer.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
