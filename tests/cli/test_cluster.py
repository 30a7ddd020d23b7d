"""`cvgp fit` and `cvgp predict` on a real Ray cluster of this machine."""

import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run, flat, make_table
from tests.parallel.groups import RAY_WARNINGS

pytestmark = [pytest.mark.filterwarnings(ignored) for ignored in RAY_WARNINGS]


def test_a_fit_on_a_cluster_needs_a_folder_for_its_checkpoints(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "model.cvgp", "--ray", "local")
    assert result.exit_code == 2
    assert "keep their progress in a folder that all of them reach" in flat(result.stderr)


def test_without_ray_the_error_has_the_command_that_installs_it(
    run: Run, table: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    result = run("predict", model, table, "--out", tmp_path / "out", "--ray", "local")
    assert result.exit_code == 1
    assert "pip install 'cvgp[ray]'" in result.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("always::cvgp.errors.CVGPWarning")  # which the command shows
def test_commands_fit_and_predict_on_a_cluster(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number in range(3):
        make_table(1000, number).assign(land="SE").to_parquet(folder / f"part-{number}.parquet")
    model, out = tmp_path / "model.cvgp", tmp_path / "predictions"
    arguments = ["fit", folder, "--target", "price", "--out", model, "--n-coreset", 20, "--max-iter", 200]
    storage = ["--checkpoint-dir", tmp_path / "storage"]
    result = run(*arguments, *storage, "--ray", "local")
    assert result.exit_code == 0, result.stderr
    assert "3000 rows" in result.stdout
    assert "Left out, since they are not informative: 'land'" in flat(result.stderr)
    assert run("evaluate", model, folder / "part-0.parquet").exit_code == 0  # with the simple models that it compares

    result = run("predict", model, folder, "--out", out, "--ray", "local")
    assert result.stdout.startswith(f"Wrote 3000 predictions to {out}: price_mean, price_sd, price_lower, price_upper")
    found = pq.read_table(out).to_pandas()
    assert run("predict", model, folder, "--out", tmp_path / "alone.parquet").exit_code == 0
    pd.testing.assert_frame_equal(found, pd.read_parquet(tmp_path / "alone.parquet"))
