"""The commands on many processes and on a cluster run as they stand in the page on scaling."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import cvgp
from cvgp.cli import app
from cvgp.parallel import group as distributed
from tests.parallel.groups import RAY_WARNINGS, torchrun
from tests.tables.helpers import frame, read_frame, write_parts

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def blocks(section: str, kind: str) -> list[str]:
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{kind}\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    write_parts(tmp_path / "data", frame(300).assign(y=lambda t: t["a"] % 7), cuts=(100, 200), group=50)
    monkeypatch.chdir(tmp_path)
    return tmp_path


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
def test_the_commands_on_a_cluster_run(data: Path) -> None:
    (commands,) = blocks("A Ray cluster", "sh")
    for line in commands.strip().splitlines():
        result = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
    assert sum(len(read_frame(path)) for path in (data / "predictions").iterdir()) == 300


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings(*RAY_WARNINGS)
def test_the_code_on_a_cluster_runs(data: Path) -> None:
    (code,) = blocks("A Ray cluster", "python")
    namespace: dict[str, object] = {}
    exec(compile(code, "scaling.md", "exec"), namespace)
    assert isinstance(model := namespace["model"], cvgp.CVGPRegressor)
    assert model.n_rows_ == 300


def test_the_timeout_in_the_page_is_that_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"wait for it for {distributed.DEFAULT_TIMEOUT:.0f} seconds (`{distributed.TIMEOUT_VARIABLE}`" in text
