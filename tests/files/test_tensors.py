import errno
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from cvgp.errors import FileAccessError, FileFormatError, InvalidTypeError, MissingFileError
from cvgp.files.tensors import read_tensors, write_tensors

ARRAYS = {
    "number": np.array(1.5),
    "matrix": np.arange(6.0).reshape(2, 3),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "whole": np.array([1, 2]),
    "short": np.array([1.0], dtype=np.float32),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "a.cvgp", ARRAYS, {"answer": 42})
    return tmp_path / "a.cvgp"


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_with_its_shape_dtype_and_values(file: Path, name: str) -> None:
    array = read_tensors(file)[0][name]
    expected = ARRAYS[name]
    assert (array.shape, array.dtype, array.tolist()) == (expected.shape, expected.dtype, expected.tolist())


def test_metadata_come_back(file: Path) -> None:
    assert read_tensors(str(file))[1] == {"answer": 42}


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="There is no file"):
        read_tensors(tmp_path / "no.cvgp")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="not a regular file"):
        read_tensors(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileAccessError, match="not a regular file"):
        read_tensors(tmp_path / "pipe")


def test_a_file_that_may_not_be_read_is_reported(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **keywords: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("safetensors.safe_open", refuse)
    with pytest.raises(FileAccessError, match="Permission denied"):
        read_tensors(file)


@pytest.mark.parametrize("path", [None, 3, b"a.cvgp"])
def test_a_path_of_another_type_is_refused(path: Any) -> None:
    with pytest.raises(InvalidTypeError, match="path must be text"):
        read_tensors(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x",
        b"garbage" * 100,
        bytes(1000),
        b"\xff" * 1000,
        pickle.dumps({"a": [1, 2, 3]}),
        b'{"json": true}',
        save({"a": np.ones(3)}),
        save({"a": np.ones(3)}, {"format": "np"}),
        save({"a": np.ones(3)}, {"cvgp": "{}"}),
    ],
)
def test_what_cvgp_did_not_write_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.cvgp").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.cvgp"):
        read_tensors(tmp_path / "a.cvgp")


def test_a_file_cut_short_anywhere_is_refused(file: Path) -> None:
    content = file.read_bytes()
    for length in range(len(content)):
        file.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            read_tensors(file)


def test_a_bit_changed_anywhere_is_found(file: Path) -> None:
    content = file.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        file.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            read_tensors(file)


@pytest.mark.parametrize("text", ["[1]", "1", "null"])
def test_metadata_that_are_no_object_are_refused(file: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.dumps", lambda metadata: text)
    write_tensors(file, {}, {})
    with pytest.raises(FileFormatError, match="not a JSON object"):
        read_tensors(file)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "1" * 10_000])
def test_metadata_that_are_no_json_are_refused(file: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("json.dumps", lambda metadata: text)
    write_tensors(file, {}, {})
    with pytest.raises(FileFormatError, match="not JSON"):
        read_tensors(file)


def test_metadata_of_very_many_lists_are_refused_before_they_take_memory(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cvgp.files.tensors.json.dumps", lambda value: '{"a": [' + "[]," * 600_000 + "[]]}")
    write_tensors(file, {}, {})
    monkeypatch.setattr("cvgp.files.tensors.json.loads", None)
    with pytest.raises(FileFormatError, match="600003 lists and objects; a model has at most 500000"):
        read_tensors(file)


def test_metadata_that_are_no_json_values_leave_the_old_file(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(TypeError):
        write_tensors(file, {}, {"function": print})
    assert file.read_bytes() == before


def test_a_folder_that_may_not_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(FileAccessError, match="Permission denied"):
        write_tensors(tmp_path / "a.cvgp", ARRAYS, {})


def test_a_disk_that_fills_up_leaves_the_old_file(file: Path) -> None:
    # A limit on the size of files makes the system refuse the write half-way, as a full disk does.
    before = file.read_bytes()
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from cvgp.files.tensors import write_tensors\n"
        "from cvgp.errors import FileAccessError\n"
        "try:\n"
        "    write_tensors(sys.argv[1], {'a': np.zeros(100_000)}, {})\n"
        "except FileAccessError:\n"
        "    sys.exit(3)\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, file],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        check=False,
    )
    left = {path.name: path.read_bytes() for path in file.parent.iterdir()}
    assert (finished.returncode, left) == (3, {"a.cvgp": before})
