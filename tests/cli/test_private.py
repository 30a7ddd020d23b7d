"""`cvgp fit --private`, and what `cvgp info` says of the model."""

import json
from pathlib import Path

import numpy as np

import cvgp
from tests.cli.conftest import Run, make_table


def test_the_model_is_private_and_info_says_so(run: Run, tmp_path: Path) -> None:
    frame, table, out = make_table(150), tmp_path / "rows.csv", tmp_path / "model.cvgp"
    frame.to_csv(table, index=False)
    quick = ("--n-coreset", 10, "--max-iter", 20, "--kernel", "matern32", "--quiet")
    assert run("fit", table, "--target", "price", "--out", out, "--private", *quick).exit_code == 0
    assert json.loads(run("info", out, "--json").stdout)["private"] is True
    points = cvgp.load(out).coreset_.X[:, :2]
    assert np.abs(points[:, None] - frame[["size", "weight"]].to_numpy()).max(-1).min() > 1e-6
