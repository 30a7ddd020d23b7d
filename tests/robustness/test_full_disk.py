"""A disk that is really full: a small tmpfs. Where mounting is not allowed, these are skipped by name.

Limits on the size of files, which need no rights, stand in for a full disk in tests/cli/test_outputs.py.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cvgp
from cvgp.errors import FileAccessError
from tests.cli.conftest import Run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"full disk: mounting a tmpfs is not allowed here ({mounted.stderr.strip()})")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(disk: Path, leave: int) -> None:
    """Take all space but a few kilobytes."""
    size = 65_536 - leave
    (disk / "ballast").write_bytes(bytes(size))


@pytest.fixture(scope="module")
def fitted() -> cvgp.CVGPRegressor:
    x = np.linspace(0.0, 6.0, 100)[:, None]
    return cvgp.CVGPRegressor(20, random_state=0, training=cvgp.TrainingOptions(solver="adam", max_iter=5)).fit(
        x, np.sin(x[:, 0])
    )


def test_a_model_that_does_not_fit_leaves_the_old_one(fitted: cvgp.CVGPRegressor, small_disk: Path) -> None:
    path = small_disk / "model.cvgp"
    fitted.save(path)
    before = path.read_bytes()
    fill(small_disk, leave=len(before) + 8192)
    with pytest.raises(FileAccessError, match="No space left on device"):
        fitted.save(path)
    assert (path.read_bytes(), sorted(p.name for p in small_disk.iterdir())) == (before, ["ballast", "model.cvgp"])


def test_a_fit_goes_on_when_there_is_space_again(run: Run, table: Path, tmp_path: Path, small_disk: Path) -> None:
    fill(small_disk, leave=16384)
    settings = ("--target", "price", "--solver", "lbfgs", "--n-coreset", 20, "--max-iter", 25, "--quiet", "--json")
    arguments = ("fit", table, "--out", tmp_path / "m", *settings, "--checkpoint-dir", small_disk / "run")
    assert run(*arguments).exit_code == 1
    (small_disk / "ballast").unlink()
    resumed, whole = run(*arguments), run("fit", table, "--out", tmp_path / "m2", *settings)
    assert (tmp_path / "m").exists(), resumed.stderr
    assert cvgp.load(tmp_path / "m").elbo_ == cvgp.load(tmp_path / "m2").elbo_, whole.stderr
