"""Files that are written completely or not at all, and states that come back or raise."""

import errno
import json
import os
import pickle
import resource
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)
from cvgp.files import (
    MAX_NESTED,
    Fields,
    atomic_write,
    check_readable,
    checked_path,
    is_own_file,
    read_state,
    state_bytes,
    write_state,
)


def write(path: Path | str, text: str = "new", failure: BaseException | None = None) -> None:
    with atomic_write(path) as temporary:
        temporary.write_text(text)
        if failure is not None:
            raise failure


def refuse(*arguments: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def content(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


@pytest.mark.parametrize("name", ["a.txt", "a" * 255], ids=["short", "longest"])
def test_content_arrives_when_the_block_ends_and_nothing_else_is_left(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("old")
    with atomic_write(str(tmp_path / name)) as temporary:
        temporary.write_text("new")
        assert (tmp_path / name).read_text() == "old"
    assert content(tmp_path) == {name: "new"}


@pytest.mark.parametrize("failure", [ValueError(), KeyboardInterrupt(), OSError(errno.ENOSPC, "full")], ids=repr)
def test_a_failed_block_keeps_the_old_file(tmp_path: Path, failure: BaseException) -> None:
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(type(failure)):
        write(tmp_path / "a.txt", "half", failure)
    assert content(tmp_path) == {"a.txt": "old"}


@pytest.mark.parametrize("function", ["fsync", "open", "replace"])
def test_a_system_that_refuses_is_reported_and_leaves_nothing(
    tmp_path: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, function, refuse)
    with pytest.raises(FileAccessError, match=r"Could not write .*a\.txt \(No space left on device\)"):
        write(tmp_path / "a.txt")
    assert content(tmp_path) == {}


@pytest.mark.parametrize("error", [FileFormatError("mine"), FileAccessError("mine")], ids=repr)
def test_an_error_of_cvgp_passes_unchanged(tmp_path: Path, error: CVGPError) -> None:
    with pytest.raises(type(error), match=r"^mine$"):
        write(tmp_path / "a.txt", "half", error)


def test_a_disk_that_fills_up_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    # A limit on the size of files makes the system refuse the write half-way, as a full disk does.
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from cvgp.files import write_state\n"
        "from cvgp.errors import FileAccessError\n"
        "try:\n"
        "    write_state(sys.argv[1], {'a': np.zeros(100_000)})\n"
        "except FileAccessError:\n"
        "    sys.exit(3)\n"
    )
    (tmp_path / "a").write_text("old")
    finished = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        check=False,
    )
    assert (finished.returncode, content(tmp_path)) == (3, {"a": "old"})


def test_permissions_are_those_of_the_umask_or_of_the_old_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "new.txt")
    finally:
        os.umask(before)
    (tmp_path / "old.txt").touch(0o600)
    write(tmp_path / "old.txt")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new.txt", "old.txt")]
    assert modes == [0o640, 0o600]


@pytest.mark.parametrize("target", ["a.txt", "nothing.txt"])
def test_nothing_is_written_through_a_symbolic_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / target)
    for use in (write, is_own_file):
        with pytest.raises(FileAccessError, match="symbolic link"):
            use(tmp_path / "link")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert not (tmp_path / "nothing.txt").exists()


def test_a_folder_may_be_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link" / "a.txt")
    assert content(tmp_path / "real") == {"a.txt": "new"}


@pytest.mark.parametrize("place", ["no/a.txt", "file/a.txt"])
def test_a_missing_folder_is_reported(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MissingFileError, match="folder does not exist"):
        write(tmp_path / place)


def make_odd(kind: str, folder: Path) -> Path:
    """Something that is not a regular file."""
    path = folder / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    return Path(os.devnull) if kind == "device" else path


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket"])
def test_what_is_not_a_regular_file_is_neither_read_nor_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    odd = make_odd(kind, Path())
    Path("link").symlink_to(odd)
    for use in (write, is_own_file, check_readable, read_state):
        with pytest.raises(FileAccessError, match="not a regular file"):
            use(odd)
    with pytest.raises(FileAccessError, match="not a regular file"):
        check_readable(Path("link"))


def test_links_and_missing_files_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for name, target in {"link": "a", "dangling": "nothing", "circle": "circle"}.items():
        (tmp_path / name).symlink_to(tmp_path / target)
    check_readable(tmp_path / "link")
    assert is_own_file(tmp_path / "a")
    assert not is_own_file(tmp_path / "nothing")
    with pytest.raises(MissingFileError, match="There is no file"):
        check_readable(tmp_path / "dangling")
    for name, message in (("circle", "symbolic links"), ("a" * 300, "File name too long")):
        with pytest.raises(FileAccessError, match=message):
            check_readable(tmp_path / name)


def test_a_path_is_text_without_impossible_characters() -> None:
    assert checked_path(os.fsdecode(b"a\xff")).name == "a\udcff"
    for path in (None, 3, b"a"):
        with pytest.raises(InvalidTypeError, match="path must be text"):
            checked_path(path)
    for path in ("a\0b", "a\ud800b"):
        with pytest.raises(InvalidInputError, match="is not a path"):
            checked_path(path)


STATE = {
    "number": 1.5,
    "nested": {"matrix": np.arange(6.0).reshape(2, 3), "list": [1, {"a": None}], "empty": {}},
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "scalar": np.array(2),
    "short": np.array([1.0], dtype=np.float32),
    "names.with.dots": {"x": np.ones(1)},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_state(tmp_path / "a.cvgp", STATE)
    return tmp_path / "a.cvgp"


def test_a_state_comes_back(file: Path) -> None:
    state = read_state(str(file))
    nested = state.pop("names")
    np.testing.assert_equal(nested["with"]["dots"]["x"], np.ones(1))
    del state["names.with.dots"]
    np.testing.assert_equal(state, {name: value for name, value in STATE.items() if "." not in name})
    assert (state["short"].dtype, state["scalar"].shape) == (np.float32, ())


def test_tensors_become_arrays(tmp_path: Path) -> None:
    write_state(tmp_path / "a.cvgp", {"a": torch.nn.Parameter(torch.ones(2))})
    np.testing.assert_equal(read_state(tmp_path / "a.cvgp"), {"a": np.ones(2, np.float32)})


def test_the_same_state_is_the_same_file(file: Path) -> None:
    before = file.read_bytes()
    write_state(file, STATE)
    assert file.read_bytes() == before


@pytest.mark.parametrize("value", [print, {1, 2}, [np.ones(2)]], ids=str)
def test_what_is_neither_json_nor_an_array_leaves_the_old_file(file: Path, value: object) -> None:
    before = file.read_bytes()
    with pytest.raises(InvalidTypeError, match="JSON values and arrays"):
        write_state(file, {"a": value})
    assert file.read_bytes() == before


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="There is no file"):
        read_state(tmp_path / "no.cvgp")


FOREIGN = {
    "empty": b"",
    "text": b"garbage" * 100,
    "zeros": bytes(1000),
    "pickle": pickle.dumps({"a": [1, 2, 3]}),
    "json": b'{"json": true}',
    "safetensors": save({"a": np.ones(3)}, {"format": "np"}),
    "no checksum": save({"a": np.ones(3)}, {"cvgp": "{}"}),
    "list": state_bytes({}, "[1]"),
    "not json": state_bytes({}, "{"),
    "deep": state_bytes({}, "[" * 100_000),
    "long number": state_bytes({}, "1" * 10_000),
    "half of a pair": state_bytes({}, json.dumps({"a": ["\ud800"]})),
    "stored twice": state_bytes({"a.b": np.ones(1)}, '{"a": {"b": 1}}'),
    "value and part": state_bytes({"a.b": np.ones(1)}, '{"a": 1}'),
    "very many lists": state_bytes({}, '{"a": [' + "[]," * MAX_NESTED + "[]]}"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_cvgp_did_not_write_raises(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.cvgp").write_bytes(FOREIGN[name])
    with pytest.raises(FileFormatError, match=r"a\.cvgp"):
        read_state(tmp_path / "a.cvgp")


def test_a_file_of_holes_raises_before_it_takes_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.cvgp").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(FileFormatError, match="holes"):
        read_state(tmp_path / "a.cvgp")


@pytest.mark.parametrize(
    "damage",
    [
        lambda data, at: data[:at],
        lambda data, at: data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :],
    ],
    ids=["cut", "flipped bit"],
)
def test_damage_anywhere_is_found(file: Path, damage: Callable[[bytes, int], bytes]) -> None:
    whole = file.read_bytes()
    for at in range(0, len(whole), 3):
        file.write_bytes(damage(whole, at))
        with pytest.raises(FileFormatError):
            read_state(file)


def fields(**values: Any) -> Fields:
    return Fields(values, "thing")


WRONG: list[tuple[str, tuple[Any, ...], list[Any]]] = [
    ("text", (("x", "y"),), [None, 1, ["x"], "other"]),
    ("text", (), [None, "x" * 1001]),
    ("integer", (1,), [None, True, 0, 1.0, "1", float("nan"), 10**400]),
    ("number", (), [None, True, 1, "1", float("nan"), float("inf"), 10**400]),
    ("number", (0.0, 1.0), [-0.1, 1.1]),
    ("flag", (), [None, 0, 1, "true", "x" * 10_000]),
    ("items", (), [None, "ab", {"a": 1}]),
    (
        "array",
        ((2, None),),
        [None, *(np.ones(shape) for shape in [(), (2,), (2, 3, 1), (3, 3), (0, 3), (2, 0)])],
    ),
    ("array", ((2,),), [np.ones(2, dtype) for dtype in ("int64", "float16", "bool", "float32")]),
    ("array", ((2,),), [np.array([1.0, value]) for value in (np.nan, np.inf)]),
    ("part", (lambda part: part,), [None, [1], {"left": 1}]),
]


@pytest.mark.parametrize(("kind", "arguments", "values"), WRONG)
def test_a_field_of_another_kind_is_named(kind: str, arguments: tuple[Any, ...], values: list[Any]) -> None:
    for value in values:
        with pytest.raises(FileFormatError, match=r"thing\.a ") as caught:
            getattr(fields(a=value), kind)("a", *arguments)
        assert len(str(caught.value)) < 300


def test_limits_of_an_array_exclude_nan() -> None:
    for value in (-1.0, 2.0, np.nan):
        with pytest.raises(FileFormatError, match="from 0 to 1"):
            fields(a=np.array([value])).array("a", (1,), limits=(0.0, 1.0), finite=False)


def test_each_field_is_taken_once_and_none_may_remain() -> None:
    given = fields(a="x", b=3, c=0.5, d=True, e=[1], f={"g": 1}, h=None, i=np.ones((2, 3)), j=None)
    taken = [given.text("a"), given.integer("b", 3), given.number("c"), given.flag("d"), given.items("e")]
    taken += [given.part("f", lambda part: part.integer("g")), given.optional("h", given.integer)]
    taken.append(given.array("i", (3,), (2, None)).shape)
    assert taken == ["x", 3, 0.5, True, [1], 1, None, (2, 3)]
    with pytest.raises(FileFormatError, match=r"thing has unknown fields \['j'\]"):
        given.close()
    with pytest.raises(FileFormatError, match=r"thing\.a is missing"):
        given.take("a")
