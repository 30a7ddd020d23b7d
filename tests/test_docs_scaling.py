"""The commands of the page on scaling run as they stand there, and its numbers are those of the code."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cvgp.cli import app
from cvgp.tables import stream
from tests.tables.helpers import frame, read_frame, write_parts

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
SECTION = PAGE.split("## Data beyond memory")[1].split("\n## ")[0]
BLOCKS = re.findall(r"```(sh|python)\n(.*?)```", SECTION, flags=re.DOTALL)


@pytest.fixture
def in_a_folder_with_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table too large to be loaded, as far as the code knows."""
    (tmp_path / "data").mkdir()
    write_parts(
        tmp_path / "data",
        frame(300).assign(id=lambda t: t.index * 0.5, y=lambda t: t["a"] % 7),
        cuts=(100, 200),
        group=50,
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    return tmp_path


def test_the_section_has_commands_and_code() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "python"}


def test_the_commands_run(in_a_folder_with_data: Path) -> None:
    for kind, text in BLOCKS:
        if kind == "sh":
            for line in text.strip().splitlines():
                result = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
                assert result.exit_code == 0, result.stderr
    assert len(read_frame(in_a_folder_with_data / "predictions.parquet")) == 300


def test_the_code_runs(in_a_folder_with_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "scaling.md", "exec"), namespace)
    assert capsys.readouterr().out == "0 rows were left out\n"
