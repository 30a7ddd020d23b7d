"""Files that a stranger spoilt, at random and on purpose: read, or refused with an error of cvgp, and nothing else."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cvgp.errors import FileFormatError
from cvgp.estimators.simple_models import Baselines
from tests.robustness import fuzz, fuzz_fits, record
from tests.robustness.__main__ import app
from tests.robustness.fuzz_fits import fails
from tests.robustness.fuzz_targets import Corpus, attempt, seeded


def failures() -> list[dict[str, Any]]:
    """Those that long runs have stored."""
    return record.entries(record.FAILURES)


NUMBERS = st.integers(min_value=0, max_value=2**32)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@settings(max_examples=300)
@given(number=NUMBERS)
def test_a_spoilt_model_is_used_or_refused(corpus: Corpus, number: int) -> None:
    assert attempt("model", corpus, seeded(number)[1])


@settings(max_examples=300)
@given(number=NUMBERS)
def test_a_spoilt_checkpoint_is_gone_on_with_or_refused(corpus: Corpus, number: int) -> None:
    assert attempt("checkpoint", corpus, seeded(number)[1])


@settings(max_examples=300)
@given(number=NUMBERS)
def test_a_spoilt_journal_replays_nothing_but_the_truth(corpus: Corpus, number: int) -> None:
    assert attempt("journal", corpus, seeded(number)[1])


@settings(max_examples=300)
@given(number=NUMBERS)
def test_a_spoilt_table_is_read_or_refused(corpus: Corpus, number: int) -> None:
    assert attempt("table", corpus, seeded(number)[1])


@settings(max_examples=20)
@given(number=NUMBERS)
def test_a_command_on_a_spoilt_file_ends_with_a_code_and_no_traceback(corpus: Corpus, number: int) -> None:
    assert attempt("command", corpus, seeded(number)[1])


def test_a_baseline_beyond_the_range_of_floats_is_refused() -> None:
    value = {"mean": 0.0, "mean_sd": 1.0, "slopes": [10**400], "intercept": 0.0, "line_sd": 1.0}
    with pytest.raises(FileFormatError, match="1 finite numbers"):
        Baselines.from_json(value, 1)


LIMITED = """
import sys
import cvgp
from tests.robustness.fuzz_worker import _peak, limit_memory
from tests.data.tables.tables import read_table
from cvgp.errors import CVGPError
cvgp.load(sys.argv[1])
for table in sys.argv[3].split():
    read_table(table)
limit_memory(300_000_000)
before = _peak()
for path in sys.argv[2].split():
    try:
        cvgp.load(path) if path.endswith("cvgp") else read_table(path)
    except CVGPError as error:
        print(type(error).__name__)
assert _peak() - before < 100_000, f"{_peak() - before} kB"
"""


def test_a_forged_size_takes_no_memory(corpus: Corpus, tmp_path: Path) -> None:
    (length,) = struct.unpack("<Q", corpus.model[:8])
    text, data = corpus.model[8 : 8 + length], corpus.model[8 + length :]
    header = json.loads(text)
    forged = [struct.pack("<Q", size) + text + data for size in (2**27, 2**40, 2**63)]
    for shape, offsets in [
        ([2**40], [0, 2**43]),
        ([2**62], [0, 8]),
        ([2**33, 2**33], [0, 8]),
        ([0, 2**62], [0, 0]),
        ([5, 4], [-8, 152]),
    ]:
        changed = json.dumps(header | {"model.X_c": {"dtype": "F64", "shape": shape, "data_offsets": offsets}}).encode()
        forged.append(struct.pack("<Q", len(changed)) + changed + data)
    paths = [tmp_path / f"{i}.cvgp" for i in range(len(forged))]
    for path, content in zip(paths, forged, strict=True):
        path.write_bytes(content)
    (tmp_path / "good.cvgp").write_bytes(corpus.model)
    command = [sys.executable, "-W", "ignore", "-c", LIMITED, tmp_path / "good.cvgp", " ".join(map(str, paths)), ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["FileFormatError"] * len(forged)


@pytest.mark.parametrize("failure", failures(), ids=lambda failure: f"{failure['target']} {failure['seed']}")
def test_cases_that_failed_once_pass(corpus: Corpus, failure: dict[str, Any]) -> None:
    if failure["case"] is None:
        assert attempt(failure["target"], corpus, seeded(failure["seed"])[1])
    else:
        assert fails(failure["case"]) is None


def test_a_case_is_made_smaller_while_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_fits, "fails", lambda case: "KeyError" if case["rows"] == 3 else None)
    odd = {**fuzz_fits.PLAIN, "rows": 3, "y": "nan", "settings": {"solver": "adam"}}
    assert fuzz_fits.minimise(odd) == {**fuzz_fits.PLAIN, "rows": 3}


def test_counts_of_several_runs_add_up(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    for start in (0, 10):
        record.add("fuzz", {"cases": {"fit": {"read": 7, "FAILED": 1}, "table": {"read": 2}}, "next": start + 10}, path)
    assert record.next_seed(path) == 20
    assert "| fuzzed fits | 16 | 10000 | 2 |" in record.table(path)
    assert "| fuzzed inputs | 4 | 100000 | 0 |" in record.table(path)


def test_a_case_is_repeated_by_its_number() -> None:
    assert [seeded(7)[1].random() for _ in range(2)] == [seeded(7)[1].random()] * 2


def test_a_worker_that_dies_is_a_failure_of_the_case_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; print('start 5 table', flush=True); os.abort()"
    monkeypatch.setattr(fuzz, "_command", lambda seed, seconds: [sys.executable, "-c", script])
    report = fuzz.Report({}, [], 0, kept=[])
    assert fuzz._run_worker(5, 1.0, report) == 6
    assert report.failures == ["case 5 (table) FAILED: the process ended with code -6"]


@pytest.mark.slow
def test_a_minute_of_spoilt_files_ends_without_anything_unexpected() -> None:
    report = fuzz.run(minutes=1.0, first_seed=1_000_000)
    assert report.failures == []
    assert report.cases > 1000


@pytest.mark.slow
def test_the_command_runs_for_as_long_as_told() -> None:
    result = CliRunner().invoke(app, ["fuzz", "--hours", "0.0008", "--dry"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "anything else" in result.stdout


def test_a_soak_that_failed_counts_until_a_long_one_passes(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    for minutes, failed, expected in ((61, 1, 1), (24, 0, 1), (60, 0, 0), (5, 1, 1)):
        record.add("soak", {"minutes": minutes, "failed": failed}, path)
        (line,) = [line for line in record.table(path).splitlines() if line.startswith("| minutes of soak")]
        assert line.endswith(f"| 60 | {expected} |")
    assert "before one of 60 minutes passed: 1." in record.table(path)
