"""`cvgp update`: new rows for a model file."""

from pathlib import Path

import cvgp
from tests.cli.conftest import Run, make_table


def test_a_model_learns_the_rows_of_a_table_and_replaces_no_file_unasked(run: Run, model: Path, tmp_path: Path) -> None:
    table, before = make_table(40), model.read_bytes()
    table.to_csv(tmp_path / "new.csv", index=False)
    assert run("update", model, tmp_path / "new.csv").exit_code == 2
    assert run("update", model, tmp_path / "new.csv", "--out", tmp_path / "new.cvgp", "--forget", 1.5).exit_code != 0
    table.drop(columns="price").to_csv(tmp_path / "without.csv", index=False)
    assert run("update", model, tmp_path / "without.csv", "--out", tmp_path / "new.cvgp").exit_code == 1
    assert not (tmp_path / "new.cvgp").exists()
    found = run("update", model, tmp_path / "new.csv", "--out", tmp_path / "new.cvgp", "--adapt", "--forget", 0.5)
    assert found.exit_code == 0, found
    old, new = cvgp.load(model), cvgp.load(tmp_path / "new.cvgp")
    assert abs(new.n_rows_ - (0.5 * old.n_rows_ + 40)) < 1.0
    assert len(new.batch_log_densities_) == 1
    assert model.read_bytes() == before
