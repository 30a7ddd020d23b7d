"""Files that a stranger spoilt, at random and on purpose: read, or an error of cvgp, and nothing else.

``python -m tests.robustness.fuzzing 0 3600`` runs for an hour.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.robustness.fuzz_fits import fails
from tests.robustness.fuzzing import Corpus, attempt, seeded

ROOT = Path(__file__).resolve().parents[2]
FAILURES = [json.loads(line) for line in Path(__file__).with_name("failures.jsonl").read_text().splitlines()]
"""Cases that failed once."""
NUMBERS = st.integers(min_value=0, max_value=2**32)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("target", ["model file", "checkpoint", "table"])
@settings(max_examples=30)
@given(number=NUMBERS)
def test_a_spoilt_file_is_read_or_refused(corpus: Corpus, target: str, number: int) -> None:
    assert attempt(target, corpus, seeded(number)[1])


@pytest.mark.slow
def test_two_minutes_of_cases_end_without_anything_unexpected() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.robustness.fuzzing", "1000000", "120"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *failures, last = done.stdout.splitlines()
    assert failures == []
    assert int(last.split()[1]) > 500


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: f"fit {failure['seed']}")
def test_cases_that_failed_once_pass(failure: dict[str, Any]) -> None:
    assert fails(failure["case"]) is None
