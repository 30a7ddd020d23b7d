"""Streams that refuse what is printed: every command ends with a code, and none with a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell, shell

COMMANDS: dict[str, int] = {
    "--help": 0,
    "info MODEL": 0,
    "coreset MODEL --out OUT": 0,
    "info missing": 2,
    "info --wrong": 2,
}
"""The words of commands, and the code of each where all is well."""
STREAMS = {
    "closed": {"out": "closed"},
    "both closed": {"out": "closed", "err": "closed"},
    "left by the reader": {"out": "left"},
    "both left": {"out": "left", "err": "left"},
    "full": {"out": "/dev/full"},
    "ascii": {"encoding": "ascii"},
}


@pytest.fixture(scope="module")
def cvgp_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with shell(tmp_path_factory.mktemp("shell")) as opened:
        yield opened


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("kind", STREAMS)
def test_a_command_ends_with_a_code_and_no_traceback_whatever_its_streams_are(
    cvgp_in: Shell, model: Path, tmp_path: Path, words: str, kind: str
) -> None:
    given = {"MODEL": model, "OUT": tmp_path / "c.csv"}
    ended = cvgp_in.run(*(given.get(word, word) for word in words.split()), **STREAMS[kind])
    may_fail = "left" in kind or kind == "full"  # what was to be printed is lost
    assert ended.code in ({COMMANDS[words], 1} if may_fail else {COMMANDS[words]}), ended.err
    assert not {b"Traceback", b"Broken", b"ignored"} & set((ended.err + ended.out).split())
    assert kind != "ascii" or (ended.out + ended.err).isascii()


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
