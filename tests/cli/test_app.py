import os
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import get_args

import pytest

import cvgp
from cvgp.cli import options
from cvgp.cli.fit import Bound, Init, Solver
from cvgp.data.schema import Impute
from cvgp.training.initialise import InitName
from cvgp.training.plan import BoundName, SolverName
from tests.cli.conftest import Run

COMMANDS = ["fit", "predict", "evaluate", "coreset", "info", "plot", "demo", "paper"]
HEAVY = ["torch", "gpytorch", "pandas", "sklearn", "matplotlib", "scipy", "numpy"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    assert f"Usage: cvgp {command}" in run(command, "--help").stdout


def test_help_imports_nothing_that_takes_time() -> None:
    code = (
        "import sys\nfrom cvgp.cli import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"sys.exit(' '.join(set({HEAVY}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").stdout == f"{cvgp.__version__}\n"


def test_an_unknown_command_is_wrong_use(run: Run) -> None:
    assert run("fitt").exit_code == 2


def test_a_missing_option_is_wrong_use(run: Run) -> None:
    assert run("fit", "table.csv").exit_code == 2


def test_python_m_cvgp_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "cvgp", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == cvgp.__version__


@pytest.mark.parametrize(
    ("offered", "known"),
    [
        (Init, get_args(InitName)),
        (Solver, get_args(SolverName)),
        (Bound, get_args(BoundName)),
        (options.Impute, get_args(Impute)),
    ],
)
def test_the_choices_are_those_of_the_library(offered: type[StrEnum], known: tuple[str, ...]) -> None:
    assert tuple(choice.value for choice in offered) == known


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["paper", "run"]], ids=" ".join)
def test_h_is_short_for_help(run: Run, command: list[str]) -> None:
    assert run(*command, "-h").stdout == run(*command, "--help").stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete_commands(run: Run, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "_CVGP_COMPLETE=complete_" in run("--show-completion", shell).stdout


@pytest.mark.parametrize(("words", "expected"), [("cvgp pre", "predict"), ("cvgp predict --qu", "--quantiles")])
def test_commands_and_options_are_completed(words: str, expected: str) -> None:
    code = "from cvgp.__main__ import main; main()"
    asked = {"_CVGP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert done.stdout.split() == [expected]


def test_an_error_while_arrow_still_reads_ends_with_its_code(tmp_path: Path) -> None:
    lines = [f"{i};K\u00f6ln {i},1;{i % 7}\n" for i in range(800)]
    (tmp_path / "t.csv").write_bytes(("a;b;y\n" + "".join(lines)).encode("cp1252"))
    words = ["fit", "t.csv", "--target", "y", "--out", "m.cvgp", "--sep", ","]
    for _ in range(4):  # threads that end later than Python brought every second of these processes down
        done = subprocess.run(
            [sys.executable, "-m", "cvgp", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "could not be read" in done.stderr) == (1, True)
