"""The commands and the code of the page on scaling run as they stand there."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cvgp
from cvgp.cli import app
from cvgp.tables import stream
from tests.parallel.groups import RAY_WARNINGS, torchrun
from tests.tables.helpers import frame, read_frame, write_parts

PAGE = (Path(__file__).parent.parent / "docs" / "scaling.md").read_text(encoding="utf-8")


def blocks(section: str, kind: str) -> list[str]:
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)


def run(commands: str) -> None:
    for line in commands.strip().splitlines():
        result = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    table = frame(300).assign(id=lambda t: t.index * 0.5, y=lambda t: t["a"] % 7)
    write_parts(tmp_path / "data", table, cuts=(100, 200), group=50)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_data_beyond_memory(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    run("".join(blocks("Data beyond memory", "sh")))
    assert len(read_frame(data / "predictions.parquet")) == 300
    capsys.readouterr()
    exec(compile("".join(blocks("Data beyond memory", "python")), "scaling.md", "exec"), {})
    assert capsys.readouterr().out == "0 rows were left out\n"


@pytest.mark.slow
def test_the_command_of_torchrun_runs(data: Path) -> None:
    (command,) = blocks("Many processes", "sh")
    program, _, world, *arguments = shlex.split(command)
    assert program == "torchrun"
    process = torchrun(*arguments, world=int(world))
    error = process.communicate(timeout=200)[1]
    assert process.returncode == 0, error
    assert cvgp.load(data / "model.cvgp").n_rows_ == 300


def test_the_program_runs_as_one_process(data: Path) -> None:
    (code,) = blocks("Many processes", "python")
    exec(compile(code, "scaling.md", "exec"), {})
    assert cvgp.load(data / "model.cvgp").n_rows_ == 300


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings(*RAY_WARNINGS)
def test_the_code_on_a_cluster_runs(data: Path) -> None:
    (code,) = blocks("A Ray cluster", "python")
    namespace: dict[str, object] = {}
    exec(compile(code, "scaling.md", "exec"), namespace)
    assert isinstance(model := namespace["model"], cvgp.CVGPRegressor)
    assert model.n_rows_ == 300
