"""Paths that are no files, cannot be names or cannot be written: a message and a code from every command."""

import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run

LONG, ZERO, OTHER = "a" * 300, "a\0b", os.fsdecode(b"a\xff")
QUICK = ["--coreset", 3, "--max-iter", 2, "--quiet"]


def commands(model: object, table: object, out: object) -> dict[str, list[object]]:
    return {
        "info": ["info", model],
        "predict": ["predict", model, table, "--out", f"{out}.csv"],
        "predict to Parquet": ["predict", model, table, "--out", f"{out}.parquet"],
        "evaluate": ["evaluate", model, table],
        "coreset": ["coreset", model, "--out", f"{out}.csv"],
        "plot": ["plot", model, "--out", f"{out}.png"],
        "report": ["report", model, table, "--out", f"{out}.html"],
        "fit": ["fit", table, "--target", "price", "--out", f"{out}.cvgp", *QUICK],
    }


READING = ["info", "predict", "evaluate", "coreset", "plot", "report"]
WRITING = ["predict", "predict to Parquet", "coreset", "plot", "report", "fit"]
TABLES = ["predict", "evaluate", "report", "fit"]


@pytest.mark.parametrize("name", [LONG, ZERO, OTHER], ids=["long", "zero", "bytes"])
@pytest.mark.parametrize("command", READING)
def test_a_model_of_an_odd_name_is_told(run: Run, table: Path, tmp_path: Path, command: str, name: str) -> None:
    result = run(*commands(tmp_path / name, table, tmp_path / "out")[command])
    assert result.exit_code in (1, 2)
    assert "Error" in result.stderr


@pytest.mark.parametrize("name", [LONG, ZERO, OTHER], ids=["long", "zero", "bytes"])
@pytest.mark.parametrize("command", TABLES)
def test_a_table_of_an_odd_name_is_told(run: Run, model: Path, tmp_path: Path, command: str, name: str) -> None:
    result = run(*commands(model, tmp_path / f"{name}.csv", tmp_path / "out")[command])
    assert result.exit_code in (1, 2)
    assert "Error" in result.stderr


@pytest.mark.parametrize("name", [LONG, ZERO, "no/folder", "file/inside", "/proc/self/none"])
@pytest.mark.parametrize("command", WRITING)
def test_a_result_that_cannot_be_written_is_told(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str, name: str
) -> None:
    (tmp_path / "file").touch()
    result = run(*commands(model, table, tmp_path / name)[command])
    assert result.exit_code in (1, 2)
    assert "Error" in result.stderr


@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
@pytest.mark.parametrize("command", WRITING)
def test_nothing_is_written_into_what_is_no_file(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str, kind: str
) -> None:
    words = commands(model, table, tmp_path / "out")[command]
    out = Path(str(words[words.index("--out") + 1]))
    (tmp_path / "precious").write_text("old")
    if kind == "pipe":
        os.mkfifo(out)
    else:
        out.symlink_to(tmp_path / "precious" if kind == "link" else "/dev/null")
    result = run(*words)
    assert result.exit_code == 1
    assert ("a pipe" if kind == "pipe" else "symbolic link") in result.stderr
    assert (tmp_path / "precious").read_text() == "old"


@pytest.mark.parametrize("command", ["predict", "predict to Parquet", "coreset"])
def test_a_name_that_is_no_utf8_can_be_written(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str
) -> None:
    folder = tmp_path / OTHER
    folder.mkdir()
    result = run(*commands(model, table, folder / OTHER)[command])
    assert result.exit_code == 0, result.stderr
    assert r"a\udcff" in result.stdout
    assert len(list(folder.iterdir())) == 1


def test_a_model_whose_name_is_no_utf8_can_be_read(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / OTHER).write_bytes(model.read_bytes())
    assert run("info", tmp_path / OTHER).exit_code == 0


def test_a_pipe_as_a_model_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = run("info", tmp_path / "pipe")
    assert result.exit_code == 1
    assert "a pipe" in result.stderr


def test_a_link_to_a_model_is_read(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(model)
    assert run("info", tmp_path / "link").exit_code == 0


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nothing"])
def test_a_checkpoint_that_is_no_file_is_refused(run: Run, table: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "precious").write_text("13 bytes long")
    if kind == "pipe":
        os.mkfifo(folder / "journal.bin")
    else:
        (folder / "journal.bin").symlink_to(tmp_path / ("precious" if kind == "link" else "nothing"))
    words = ["fit", table, "--target", "price", "--out", tmp_path / "m.cvgp", *QUICK, "--checkpoint-dir", folder]
    assert run(*words).exit_code == 2
    result = run(*words, "--resume")
    assert result.exit_code == 1
    assert ("a pipe" if kind == "pipe" else "symbolic link") in result.stderr
    assert (tmp_path / "precious").read_text() == "13 bytes long"
    assert not (tmp_path / "nothing").exists()
