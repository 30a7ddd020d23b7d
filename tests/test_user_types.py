"""A user's own mypy finds the types of the installed package."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import cvgp
import numpy as np

model = cvgp.CVGPRegressor(random_state=0).fit(np.zeros((3, 1)), np.zeros(3))
mean, sd = model.predict([[1.0]], return_std=True)
reveal_type(sd)
name: str = model.prune()
"""


@pytest.mark.slow
def test_a_users_mypy_knows_what_cvgp_returns(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("program.py")]
    assert len(lines) == 2, done.stdout + done.stderr
    assert 'Revealed type is "numpy.ndarray[' in lines[0]
    assert 'expression has type "int", variable has type "str"' in lines[1]
