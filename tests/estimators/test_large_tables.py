"""Memory of fits to tables in files, each in a process of its own."""

from pathlib import Path

import pytest

from experiments.peers.workers import Session
from experiments.speed import files


def memory(folder: Path, num_rows: int) -> float:
    """The largest memory of a fit and predictions, above that after the imports, in bytes."""
    folder.mkdir()
    files.write_files(folder, num_rows)
    settings = {"method": "files", "folder": str(folder), "size": 20, "steps": 1500}
    with Session("cvgp", settings, {}, threads=1) as session:
        done = session.finish()
    return float(done["peak_memory"] - done["memory_before"])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    few, many = 2 * 10**6, 4 * 10**6  # with fewer, the windows that are held in memory are not full yet
    beyond = [memory(tmp_path / str(rows), rows) for rows in (few, many)]
    data = 8 * (files.NUM_DIMS + 1) * (many - few)
    assert beyond[1] - beyond[0] < 0.4 * data
    assert beyond[1] < 1.0e9
