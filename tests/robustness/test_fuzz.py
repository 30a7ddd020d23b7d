"""Files that a stranger spoilt, at random and on purpose: read, or an error of cvgp, and nothing else.

``python -m tests.robustness.fuzzing 0 3600`` runs for an hour.
"""

import json
import struct
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


@pytest.mark.parametrize("target", ["model file", "checkpoint", "search", "table"])
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


LIMITED = """
import sys
import cvgp
from tests.robustness.fuzzing import limit_memory, peak
from cvgp.errors import CVGPError
cvgp.load(sys.argv[1])
limit_memory(300_000_000)
before = peak()
for path in sys.argv[2:]:
    try:
        cvgp.load(path)
    except CVGPError as error:
        print(type(error).__name__)
assert peak() - before < 100_000, f"{peak() - before} kB"
"""


@pytest.mark.slow
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
    command = [sys.executable, "-W", "ignore", "-c", LIMITED, tmp_path / "good.cvgp", *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["FileFormatError"] * len(forged)


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: f"fit {failure['seed']}")
def test_cases_that_failed_once_pass(failure: dict[str, Any]) -> None:
    assert fails(failure["case"]) is None
