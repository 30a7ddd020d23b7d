"""Every example runs as its first lines say, and draws its picture."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_draws_its_picture(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", str(example), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{example.stem}.png").stat().st_size > 10_000
