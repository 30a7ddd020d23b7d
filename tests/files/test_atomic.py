import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cvgp.errors import CVGPError, FileAccessError, FileFormatError, MissingFileError
from cvgp.files.atomic import atomic_write


def test_content_arrives_when_the_block_ends(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_nothing_else_is_left_in_the_folder(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.txt") as temporary:
        temporary.write_text("new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_path_may_be_text(tmp_path: Path) -> None:
    with atomic_write(str(tmp_path / "a.txt")) as temporary:
        temporary.write_text("new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_reader_sees_the_old_file_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        seen = path.read_text()
    assert seen == "old"


def fail_half_way(path: Path, failure: type[BaseException]) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text("half")
        raise failure


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError])
def test_failed_block_keeps_the_old_file(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(failure):
        fail_half_way(path, failure)
    assert path.read_text() == "old"


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError])
def test_failed_block_leaves_no_file(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure):
        fail_half_way(tmp_path / "a.txt", failure)
    assert list(tmp_path.iterdir()) == []


def test_failure_to_flush_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileAccessError), atomic_write(tmp_path / "a.txt"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_system_error_in_the_block_says_what_to_do(tmp_path: Path) -> None:
    message = r"Could not write .*a\.txt \(No space left on device\); check the free space"
    with pytest.raises(FileAccessError, match=message), atomic_write(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_system_error_is_both_of_the_tree_and_built_in(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Could not write") as caught, atomic_write(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert isinstance(caught.value, CVGPError)


def test_error_of_the_tree_passes_unchanged(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"^mine$"), atomic_write(tmp_path / "a.txt"):
        raise FileFormatError("mine")


def test_file_access_error_is_not_wrapped_twice(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"^mine$"), atomic_write(tmp_path / "a.txt"):
        raise FileAccessError("mine")


def test_folder_without_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(FileAccessError, match=r"Permission denied.*permissions of its folder"),
        atomic_write(tmp_path / "a.txt"),
    ):
        pytest.fail("the block must not run")


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="folder does not exist"), atomic_write(tmp_path / "no" / "a.txt"):
        pytest.fail("the block must not run")


def test_folder_in_place_of_the_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="not a regular file"), atomic_write(tmp_path):
        pytest.fail("the block must not run")


def test_file_in_place_of_the_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingFileError, match="folder does not exist"), atomic_write(tmp_path / "file" / "a.txt"):
        pytest.fail("the block must not run")


def test_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="File name too long"), atomic_write(tmp_path / ("a" * 1000)):
        pytest.fail("the block must not run")


def test_longest_possible_name_is_written(tmp_path: Path) -> None:
    with atomic_write(tmp_path / ("a" * 255)) as temporary:
        temporary.write_text("new")
    assert (tmp_path / ("a" * 255)).read_text() == "new"


def test_device_in_place_of_the_file_is_not_replaced() -> None:
    with pytest.raises(FileAccessError, match="not a regular file"), atomic_write(os.devnull):
        pytest.fail("the block must not run")


def test_new_file_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with atomic_write(tmp_path / "a.txt"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


def test_permissions_of_an_existing_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.touch()
    path.chmod(0o600)
    with atomic_write(path):
        pass
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("target", ["a.txt", "nothing.txt"])
def test_nothing_is_written_through_a_symbolic_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / target)
    with pytest.raises(FileAccessError, match="symbolic link"), atomic_write(tmp_path / "link"):
        pytest.fail("the block must not run")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert not (tmp_path / "nothing.txt").exists()


def test_folder_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic_write(tmp_path / "link" / "a.txt") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "real" / "a.txt").read_text() == "new"


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_path_that_names_no_file_is_reported(name: str) -> None:
    with pytest.raises(FileAccessError, match="a folder"), atomic_write(name):
        pytest.fail("the block must not run")


def test_disk_that_fills_up_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    # A limit on the size of files makes the system refuse the write half-way, as a full disk does.
    code = (
        "from cvgp.files.atomic import atomic_write\n"
        "from cvgp.errors import FileAccessError\n"
        "import sys\n"
        "try:\n"
        "    with atomic_write(sys.argv[1]) as temporary:\n"
        "        temporary.write_bytes(bytes(100_000))\n"
        "except FileAccessError:\n"
        "    sys.exit(3)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.bin"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        check=False,
    )
    assert (finished.returncode, list(tmp_path.iterdir())) == (3, [])
