"""Tables by their names: pipes, devices, links and names that Arrow cannot express."""

import os
from pathlib import Path

import pytest

from cvgp.data.tables.location import open_dataset
from cvgp.errors import FileAccessError, InvalidInputError, MissingFileError

TEXT = "a,y\n1,2\n3,4\n"


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEXT)
    return path


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(FileAccessError, match="a pipe"):
        open_dataset(tmp_path / "a.csv")


def test_a_device_is_refused() -> None:
    with pytest.raises(FileAccessError, match="a device"):
        open_dataset("/dev/zero")


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0"])
def test_the_standard_input_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(InvalidInputError, match="Store it in a file"):
        open_dataset(name)


def test_a_pipe_of_a_database_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileAccessError, match="a pipe"):
        open_dataset(f"sqlite:///{tmp_path}/pipe::table")


def test_a_link_to_a_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(write(tmp_path / "a.csv"))
    assert open_dataset(tmp_path / "link.csv").count_rows() == 2


def test_a_link_to_a_folder_is_read(tmp_path: Path) -> None:
    write(tmp_path / "real" / "inner" / "a.csv")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "real")
    assert open_dataset(tmp_path / "data").count_rows() == 2


@pytest.mark.parametrize("place", ["folder", "folder/**/*.csv"])
def test_a_link_to_the_folder_that_it_is_in_is_refused(tmp_path: Path, place: str) -> None:
    write(tmp_path / "folder" / "a.csv")
    # Two of them make more paths than can be listed.
    (tmp_path / "folder" / "first").symlink_to(tmp_path / "folder")
    (tmp_path / "folder" / "second").symlink_to(tmp_path / "folder")
    with pytest.raises(InvalidInputError, match="would count twice"):
        open_dataset(tmp_path / place)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_folder_with_a_table_that_is_none_is_refused(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "a.csv")
    if kind == "pipe":
        os.mkfifo(tmp_path / "b.csv")
    else:
        (tmp_path / "b.csv").symlink_to(tmp_path / "nothing.csv")
    with pytest.raises(FileAccessError, match="a pipe" if kind == "pipe" else "leads nowhere"):
        open_dataset(tmp_path)


def test_hidden_files_and_folders_are_not_tables(tmp_path: Path) -> None:
    write(tmp_path / "a.csv")
    write(tmp_path / ".hidden" / "a.csv")
    write(tmp_path / "_started" / "a.csv")
    write(tmp_path / "_b.csv")
    assert open_dataset(tmp_path).count_rows() == 2


@pytest.mark.parametrize("pattern", ["{}", "*.csv", "."])
def test_a_name_that_is_no_utf8_is_refused(tmp_path: Path, pattern: str) -> None:
    name = os.fsdecode(b"a\xff.csv")
    write(tmp_path / name)
    with pytest.raises(FileAccessError, match="not UTF-8"):
        open_dataset(f"{tmp_path}/{pattern.format(name)}")


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="File name too long"):
        open_dataset(tmp_path / f"{'a' * 300}.csv")


def test_a_zero_byte_in_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no name can have"):
        open_dataset(f"{tmp_path}/a\0.csv")


def test_a_folder_without_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> None:
        raise PermissionError(13, "Permission denied", folder)

    write(tmp_path / "a.csv")
    monkeypatch.setattr("cvgp.data.tables.local_files.os.scandir", refuse)
    with pytest.raises(FileAccessError, match="Permission denied"):
        open_dataset(tmp_path)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="There is no file"):
        open_dataset(tmp_path / "a.csv")
