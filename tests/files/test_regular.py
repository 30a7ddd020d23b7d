"""Pipes, devices, sockets and links in place of files: refused at once, and nothing is written through a link."""

import os
import socket
from pathlib import Path

import pytest

from cvgp.errors import FileAccessError, InvalidInputError, InvalidTypeError, MissingFileError
from cvgp.files import regular
from cvgp.files.regular import check_readable, checked_path, is_own_file, open_own_file

KINDS = {"pipe": "a pipe", "socket": "a socket", "device": "a device", "folder": "a folder"}


@pytest.fixture
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Something that is no regular file."""
    path = tmp_path / "odd"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            os.chdir(tmp_path)  # the path of a socket is short
            listener.bind("odd")
    else:
        path = Path(os.devnull)
    return path


@pytest.fixture(autouse=True)
def _come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(os.getcwd())


@pytest.mark.parametrize(("odd", "kind"), KINDS.items(), indirect=["odd"])
def test_what_is_no_file_is_not_read(odd: Path, kind: str) -> None:
    with pytest.raises(FileAccessError, match=kind):
        check_readable(odd)


@pytest.mark.parametrize(("odd", "kind"), KINDS.items(), indirect=["odd"])
def test_a_link_to_what_is_no_file_is_not_read(odd: Path, kind: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(odd)
    with pytest.raises(FileAccessError, match=kind):
        check_readable(tmp_path / "link")


@pytest.mark.parametrize(("odd", "kind"), KINDS.items(), indirect=["odd"])
def test_what_is_no_file_is_no_file_of_cvgp(odd: Path, kind: str) -> None:
    with pytest.raises(FileAccessError, match=kind):
        is_own_file(odd)


@pytest.mark.parametrize("mode", ["rb", "r+b", "wb"])
@pytest.mark.parametrize("odd", ["pipe", "socket", "device"], indirect=True)
def test_what_takes_the_place_of_a_file_is_not_opened(odd: Path, mode: str) -> None:
    with pytest.raises(OSError, match=r"not a regular file|No such device or address"), open_own_file(odd, mode):
        pytest.fail("it must not be opened")


@pytest.mark.parametrize("mode", ["rb", "r+b", "wb"])
def test_a_link_that_takes_the_place_of_a_file_is_not_opened(tmp_path: Path, mode: str) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="symbolic links"), open_own_file(tmp_path / "link", mode):
        pytest.fail("it must not be opened")
    assert (tmp_path / "a").read_text() == "old"


def test_a_descriptor_of_what_is_refused_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    closed = []
    close = os.close
    monkeypatch.setattr(regular.os, "close", lambda number: (closed.append(number), close(number)))
    with pytest.raises(FileAccessError, match="a pipe"):
        open_own_file(tmp_path / "pipe", "rb")
    assert len(closed) == 1


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    check_readable(tmp_path / "link")


@pytest.mark.parametrize("target", ["a", "nothing"])
def test_a_link_is_no_file_of_cvgp(tmp_path: Path, target: str) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to(tmp_path / target)
    with pytest.raises(FileAccessError, match="symbolic link"):
        is_own_file(tmp_path / "link")


def test_a_file_may_be_missing(tmp_path: Path) -> None:
    assert not is_own_file(tmp_path / "nothing")


def test_a_link_that_leads_nowhere_is_missing(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    with pytest.raises(MissingFileError, match="There is no file"):
        check_readable(tmp_path / "link")


def test_a_link_to_itself_is_reported(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "link")
    with pytest.raises(FileAccessError, match="symbolic links"):
        check_readable(tmp_path / "link")


def test_a_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="File name too long"):
        check_readable(tmp_path / ("a" * 300))


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_a_character_that_no_name_can_have_is_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="no name can have"):
        checked_path(path)


@pytest.mark.parametrize("path", [None, 3, b"a"])
def test_a_path_is_text(path: object) -> None:
    with pytest.raises(InvalidTypeError, match="path must be text"):
        checked_path(path)


def test_a_name_that_is_no_utf8_is_a_path() -> None:
    assert checked_path(os.fsdecode(b"a\xff")).name == "a\udcff"
