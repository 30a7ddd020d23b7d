"""The commands of the page on scaling run as they stand there, and its numbers are those of the code."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.peers.environments import ROOT
from benchmarks.scaling import streaming
from cvgp.cli import app
from cvgp.data.tables import blocks, reservoir
from cvgp.data.tables import shuffle as windows
from cvgp.data.tables import training_table as table
from cvgp.paper.markdown import fill
from tests.data.tables.tables import frame, read_table, write_parts

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
    monkeypatch.setattr(table, "IN_MEMORY_BYTES", 0)
    return tmp_path


def test_the_section_has_commands_and_code() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "python"}


def test_the_commands_run(in_a_folder_with_data: Path) -> None:
    for kind, text in BLOCKS:
        if kind == "sh":
            for line in text.strip().splitlines():
                result = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
                assert result.exit_code == 0, result.stderr
    assert len(read_table(in_a_folder_with_data / "predictions.parquet")) == 300


def test_the_code_runs(in_a_folder_with_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    for kind, text in BLOCKS:
        if kind == "python":
            exec(compile(text, "scaling.md", "exec"), namespace)
    assert capsys.readouterr().out == "0 rows were left out\n"


@pytest.mark.parametrize(
    "sentence",
    [
        f"take at most {table.IN_MEMORY_BYTES / 1e6:.0f} MB in float64, they are loaded",
        f"a uniform sample of {reservoir.RESERVOIR_ROWS:,} rows",
        f"up to {windows.MOST_OPEN} at a time, {blocks.BLOCK_ROWS} rows of each in turn",
        f"{windows.WINDOW_BYTES / 1e6:.0f} MB of these are shuffled together",
        f"holds out at most {reservoir.RESERVOIR_ROWS // 2:,} rows",
    ],
)
def test_a_number_in_the_page_is_that_of_the_code(sentence: str) -> None:
    assert sentence in " ".join(PAGE.split())


def all_tests() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", PAGE))))
def test_a_test_that_the_page_names_exists(name: str) -> None:
    assert f"def {name}(" in all_tests()


def test_the_page_has_a_place_for_the_table(tmp_path: Path) -> None:
    page = tmp_path / "scaling.md"
    page.write_text(PAGE)
    fill(page, "scaling-streaming", "a table")
    assert "a table" in page.read_text()


def test_files_of_the_measurement_hold_all_rows(tmp_path: Path) -> None:
    streaming.write_files(tmp_path, 100, num_files=3)
    assert sum(len(read_table(path)) for path in tmp_path.iterdir()) == 100
