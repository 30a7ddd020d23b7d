"""What commands write: never over their own input or a file of the user's, never through links, and never in part."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import cvgp
from tests.cli.conftest import Run, flat, make_table

LONG, ZERO, OTHER = "a" * 300, "a\0b", os.fsdecode(b"a\xff")
QUICK = ["--n-coreset", 3, "--max-iter", 2, "--quiet"]


def commands(model: object, table: object, out: object) -> dict[str, list[object]]:
    return {
        "info": ["info", model],
        "predict": ["predict", model, table, "--out", f"{out}.csv"],
        "predict to Parquet": ["predict", model, table, "--out", f"{out}.parquet"],
        "evaluate": ["evaluate", model, table],
        "coreset": ["coreset", model, "--out", f"{out}.csv"],
        "plot": ["plot", model, "--data", table, "--out", f"{out}.png"],
        "report": ["report", model, table, "--out", f"{out}.html"],
        "fit": ["fit", table, "--target", "price", "--out", f"{out}.cvgp", *QUICK],
        "merge": ["merge", model, "--out", f"{out}.cvgp"],
    }


WRITING = ["predict", "predict to Parquet", "coreset", "plot", "report", "fit", "merge"]


PLACES = {
    "file": ("data/table.csv", "data/table.csv"),
    "dots": ("data/table.csv", "data/../data/table.csv"),
    "link": ("link.csv", "data/table.csv"),
    "hard link": ("data/table.csv", "other.csv"),
    "linked folder": ("data/table.csv", "linked/table.csv"),
    "folder": ("data", "data/table.csv"),
    "glob": ("data/*.csv", "data/table.csv"),
}
"""A table as a command is told it, and a path that stands for one of its files."""


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("command", ["fit", "predict"])
def test_a_result_never_replaces_the_table_that_it_is_made_from(
    run: Run, model: Path, tmp_path: Path, command: str, kind: str
) -> None:
    table = tmp_path / "data" / "table.csv"
    table.parent.mkdir()
    make_table(30).to_csv(table, index=False)
    (tmp_path / "link.csv").symlink_to(table)
    (tmp_path / "linked").symlink_to(table.parent)
    os.link(table, tmp_path / "other.csv")
    given, out = (tmp_path / place for place in PLACES[kind])
    before = out.read_bytes()
    words = ["fit", given, "--target", "price", *QUICK] if command == "fit" else ["predict", model, given]
    result = run(*words, "--out", out, "--overwrite")
    assert (result.exit_code, "is read by this command" in flat(result.stderr)) == (2, True)
    assert out.read_bytes() == before


@pytest.mark.parametrize("command", ["coreset", "merge", "plot", "report"])
def test_a_result_never_replaces_the_model_or_a_table_of_the_command(
    run: Run, model: Path, tmp_path: Path, command: str
) -> None:
    ending = {"coreset": ".csv", "merge": ".cvgp", "plot": ".png", "report": ".html"}[command]
    own = tmp_path / f"own{ending}"
    own.write_bytes(model.read_bytes())
    words = commands(own, model.with_name("train.csv"), tmp_path / "own")[command]
    result = run(*words, "--overwrite")
    assert (result.exit_code, "is read by this command" in flat(result.stderr)) == (2, True)
    assert own.read_bytes() == model.read_bytes()


@pytest.mark.parametrize("command", WRITING)
def test_a_file_of_the_user_is_replaced_only_on_request(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str
) -> None:
    words = commands(model, table, tmp_path / "out")[command]
    out = Path(str(words[words.index("--out") + 1]))
    out.write_text("a,b\n1,2\n")
    result = run(*words)
    assert (result.exit_code, "add --overwrite" in flat(result.stderr)) == (2, True)
    assert out.read_text() == "a,b\n1,2\n"
    assert run(*words, "--overwrite").exit_code == 0


def test_the_demo_replaces_no_table_of_the_user(run: Run, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("mine\n1\n")
    assert run("demo", "--out", tmp_path).exit_code == 1
    assert (tmp_path / "train.csv").read_text() == "mine\n1\n"


@pytest.mark.parametrize("name", [LONG, ZERO, OTHER], ids=["long", "zero", "bytes"])
@pytest.mark.parametrize(("command", "part"), [("info", "model"), ("predict", "table"), ("fit", "table")])
def test_an_input_of_an_odd_name_is_reported(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str, part: str, name: str
) -> None:
    inputs = {"model": model, "table": table} | {part: tmp_path / f"{name}.csv"}
    result = run(*commands(**inputs, out=tmp_path / "out")[command])
    assert result.exit_code in (1, 2)
    assert "Error" in result.stderr


@pytest.mark.parametrize("name", [LONG, ZERO, "no/folder", "file/inside", "/proc/self/none"])
@pytest.mark.parametrize("command", ["predict", "plot", "fit"])
def test_a_result_that_cannot_be_written_is_reported(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str, name: str
) -> None:
    (tmp_path / "file").touch()
    result = run(*commands(model, table, tmp_path / name)[command])
    assert result.exit_code in (1, 2)
    assert "Error" in result.stderr


@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
@pytest.mark.parametrize("command", ["predict", "report", "fit"])
def test_nothing_is_written_into_what_is_not_a_file(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str, kind: str
) -> None:
    words = commands(model, table, tmp_path / "out")[command]
    out = Path(str(words[words.index("--out") + 1]))
    (tmp_path / "precious").write_text("old")
    if kind == "pipe":
        os.mkfifo(out)
    else:
        out.symlink_to(tmp_path / "precious" if kind == "link" else "/dev/null")
    result = run(*words, "--overwrite")
    assert result.exit_code == 1
    assert "not a regular file" in result.stderr
    assert (tmp_path / "precious").read_text() == "old"


def test_a_model_is_read_through_a_link_and_under_any_name_but_not_from_a_pipe(
    run: Run, model: Path, tmp_path: Path
) -> None:
    (tmp_path / OTHER).write_bytes(model.read_bytes())
    (tmp_path / "link").symlink_to(model)
    os.mkfifo(tmp_path / "pipe")
    assert [run("info", tmp_path / name).exit_code for name in (OTHER, "link", "pipe")] == [0, 0, 1]


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("command", WRITING)
def test_a_full_disk_ends_a_command_with_a_message_and_leaves_the_old_result(
    run: Run, model: Path, table: Path, tmp_path: Path, command: str
) -> None:
    words = commands(model, table, tmp_path / "out")[command]
    out = Path(str(words[words.index("--out") + 1]))
    out.write_text("old")
    files = {path.name for path in tmp_path.iterdir()}
    with disk_of(1000):
        result = run(*words, "--overwrite")
    assert (result.exit_code, "free space" in result.stderr) == (1, True)
    assert ({path.name for path in tmp_path.iterdir()}, out.read_text()) == (files, "old")


@pytest.mark.parametrize("size", [100, 5000])
def test_a_fit_that_a_full_disk_ended_can_be_resumed(run: Run, table: Path, tmp_path: Path, size: int) -> None:
    words = ("fit", table, "--target", "price", "--out", tmp_path / "m", "--checkpoint-dir", tmp_path / "c", *QUICK)
    with disk_of(size):
        result = run(*words)
    assert (result.exit_code, "free space" in result.stderr) == (1, True)
    assert run(*words).exit_code == 0
    assert len(cvgp.load(tmp_path / "m").coreset_) == 3
