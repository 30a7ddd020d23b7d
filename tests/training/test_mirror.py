"""One checkpoint folder for a group."""

from pathlib import Path

import pytest

from cvgp.errors import FileAccessError
from cvgp.parallel.group import ALONE
from cvgp.training.checkpoint import JOURNAL_FILE, STATE_FILE, mirrored
from tests.parallel.groups import ThreadGroup, run_in_threads


def test_the_first_process_has_the_folder_and_the_others_have_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).write_bytes(b"state")

    def look(group: ThreadGroup) -> tuple[Path, dict[str, bytes]]:
        with mirrored(tmp_path, group) as folder:
            assert folder is not None
            return Path(folder), {file.name: file.read_bytes() for file in Path(folder).iterdir()}

    (first, found), (second, copied) = run_in_threads(2, look)
    assert first == tmp_path != second
    assert found == copied == {STATE_FILE: b"state"}
    assert not second.exists()


def test_what_the_others_write_does_not_reach_the_folder(tmp_path: Path) -> None:
    def write(group: ThreadGroup) -> None:
        with mirrored(tmp_path / "progress", group) as folder:
            if group.rank == 1:
                (Path(folder or "") / JOURNAL_FILE).write_bytes(b"journal")

    run_in_threads(2, write)
    assert not (tmp_path / "progress").exists()


@pytest.mark.parametrize("folder", [None, "progress"])
def test_a_process_alone_keeps_its_folder(folder: str | None) -> None:
    with mirrored(folder, ALONE) as found:
        assert found == folder


def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / STATE_FILE).mkdir()

    def look(group: ThreadGroup) -> None:
        with mirrored(tmp_path, group):
            pass

    with pytest.raises(FileAccessError, match=f"{tmp_path / STATE_FILE} is a folder"):
        run_in_threads(2, look)
