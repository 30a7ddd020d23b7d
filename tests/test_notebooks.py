"""The notebooks run from top to bottom, and print what they show."""

from pathlib import Path

import matplotlib as mpl
import pytest

from tests.notebooks import NOTEBOOKS, code_cells, run


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_and_shows_what_it_says(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    for cell, outputs in zip(code_cells(notebook), run(notebook), strict=True):
        for found, stored in zip(outputs, cell["outputs"], strict=True):
            assert found.get("text") == stored.get("text")
            assert found.get("data", {}).keys() == stored.get("data", {}).keys()
