"""Streams that refuse what is printed: every command ends with a code, and none with a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, shell

COMMANDS = ["--help", "info", "coreset", "info missing", "info --wrong"]


@pytest.fixture(scope="module")
def cvgp_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with shell(tmp_path_factory.mktemp("shell")) as opened:
        yield opened


@pytest.fixture
def words(request: pytest.FixtureRequest, model: Path, tmp_path: Path) -> list[object]:
    """The words of a command."""
    first, *rest = request.param.split()
    if rest == ["missing"]:
        return [first, tmp_path / "missing.cvgp"]
    more = {"coreset": ["--out", tmp_path / "c.csv"]}
    return [first, *([] if first.startswith("-") else [model]), *more.get(first, []), *rest]


def expected(words: list[object]) -> tuple[int, ...]:
    """The codes that a command may have where nothing is printed."""
    return (2,) if "--wrong" in words or "missing" in str(words[-1]) else (0,)


@pytest.mark.parametrize("words", COMMANDS, indirect=True)
@pytest.mark.parametrize("streams", [("closed", ""), ("closed", "closed")], ids=["out", "both"])
def test_a_closed_stream_is_as_good_as_an_empty_one(
    cvgp_in: Shell, words: list[object], streams: tuple[str, str]
) -> None:
    out, err = streams
    ended = cvgp_in.run(*words, out=out, err=err)
    assert ended.code in expected(words), ended.err
    assert b"Traceback" not in ended.err + ended.out


@pytest.mark.parametrize("words", COMMANDS, indirect=True)
@pytest.mark.parametrize("streams", [("left", ""), ("left", "left")], ids=["out", "both"])
def test_a_reader_who_leaves_ends_a_command_quietly(
    cvgp_in: Shell, words: list[object], streams: tuple[str, str]
) -> None:
    out, err = streams
    ended = cvgp_in.run(*words, out=out, err=err)
    assert ended.code in (*expected(words), 1)
    assert not {b"Traceback", b"Broken", b"ignored"} & set((ended.err + ended.out).split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", COMMANDS, indirect=True)
def test_a_full_disk_behind_the_output_is_told(cvgp_in: Shell, words: list[object]) -> None:
    ended = cvgp_in.run(*words, out="/dev/full")
    assert ended.code in (*expected(words), 1)
    assert not {b"Traceback", b"ignored"} & set(ended.err.split())


@pytest.mark.parametrize("words", COMMANDS, indirect=True)
def test_an_encoding_without_a_character_gets_its_escape(cvgp_in: Shell, words: list[object]) -> None:
    ended = cvgp_in.run(*words, encoding="ascii")
    assert ended.code in expected(words), ended.err
    assert (ended.out + ended.err).isascii()


def test_json_in_ascii_has_the_same_value(cvgp_in: Shell, model: Path, tmp_path: Path) -> None:
    renamed = tmp_path / "Größe.cvgp"
    renamed.write_bytes(model.read_bytes())
    for encoding in ("ascii", "utf-8", "latin-1"):
        ended = cvgp_in.run("info", renamed, "--json", encoding=encoding)
        assert json.loads(ended.out.decode(encoding))["model"] == str(renamed)


def test_a_file_that_is_written_does_not_get_the_number_of_a_closed_stream(
    cvgp_in: Shell, model: Path, tmp_path: Path
) -> None:
    ended = cvgp_in.run("coreset", model, "--out", tmp_path / "out.csv", out="closed", err="closed")
    assert ended.code == 0
    assert b"Wrote" not in (tmp_path / "out.csv").read_bytes()
