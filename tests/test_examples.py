"""Every example runs, and draws its picture."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
HAS_BROWSER = bool(shutil.which("chromium") or shutil.which("google-chrome"))
LONG = ("bayesian_optimization", "calibration", "coreset_in_the_plane", "explain", "gpytorch_multitask")
LONG += ("optuna_sampler", "outliers", "private_coreset", "synthetic3")
MARKS = dict.fromkeys(LONG, pytest.mark.slow) | {
    "report": [pytest.mark.slow, pytest.mark.skipif(not HAS_BROWSER, reason="needs Chromium (Debian: chromium)")],
}
EXAMPLES = [pytest.param(path, id=path.stem, marks=MARKS.get(path.stem, ())) for path in sorted(FOLDER.glob("*.py"))]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of arrays of torch in Matplotlib
@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_draws_its_picture(example: Path, tmp_path: Path) -> None:
    # In this process: a new one would spend most of its time on imports.
    spec = importlib.util.spec_from_file_location(f"example_{example.stem}", example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(tmp_path)
    assert (tmp_path / f"{example.stem}.png").stat().st_size > 10_000


def test_an_example_runs_as_its_first_lines_say(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error::UserWarning", str(FOLDER / "function_draws.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "function_draws.png").exists()
