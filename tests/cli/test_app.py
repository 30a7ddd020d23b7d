"""The command line as a whole: help, options that are those of the library, completion, errors and exit codes."""

import errno
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import cvgp
from cvgp.cli.console import GuardedGroup, Terminated
from cvgp.errors import InvalidInputError, MissingFileError
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.fitting.options import TrainingOptions
from tests.cli.conftest import Run, flat

COMMANDS = ["fit", "predict", "evaluate", "explain", "report", "info", "coreset", "plot", "demo", "merge", "update"]
HEAVY = ["torch", "gpytorch", "pandas", "sklearn", "matplotlib", "scipy", "numpy"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run: Run, command: str) -> None:
    text = run(command, "--help").stdout
    assert f"Usage: cvgp {command}" in text
    assert run(command, "-h").stdout == text
    assert command in run("--help").stdout


def test_help_imports_nothing_that_takes_time() -> None:
    code = (
        "import sys\nfrom cvgp.cli import app\ntry:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"sys.exit(' '.join(set({HEAVY}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_python_m_cvgp_is_the_command(run: Run) -> None:
    done = subprocess.run([sys.executable, "-m", "cvgp", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == run("--version").stdout == f"{cvgp.__version__}\n"


@pytest.mark.parametrize("words", [["fitt"], ["fit", "table.csv"], ["info", "--wrong"]], ids=" ".join)
def test_an_unknown_or_incomplete_command_is_wrong_use(run: Run, words: list[str]) -> None:
    assert run(*words).exit_code == 2


def test_fit_offers_each_parameter_of_the_library_with_its_description(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    text = flat(run("fit", "--help-all").stdout)
    left_out = {"verbose", "training", "callbacks", "heuristics", "missing_targets", "output_covariance"}
    for source in (CVGPRegressor, TrainingOptions, cvgp.read_table):
        names = set(inspect.signature(source).parameters) - left_out - {"data", "target"}
        missing = [name for name in names if f"--{name.replace('_', '-')}" not in text]
        assert missing == []
    assert "one lengthscale per column" in text


@pytest.mark.parametrize(("words", "expected"), [("cvgp pre", "predict"), ("cvgp predict --qu", "--quantiles")])
def test_commands_and_options_are_completed(words: str, expected: str) -> None:
    code = "from cvgp.__main__ import main; main()"
    asked = {"_CVGP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert done.stdout.split() == [expected]


@pytest.mark.slow
def test_an_error_while_arrow_still_reads_ends_with_its_code(tmp_path: Path) -> None:
    lines = [f"{i};K\u00f6ln {i},1;{i % 7}\n" for i in range(800)]
    (tmp_path / "t.csv").write_bytes(("a;b;y\n" + "".join(lines)).encode("cp1252"))
    words = ["fit", "t.csv", "--target", "y", "--out", "m.cvgp", "--sep", ","]
    for _ in range(3):  # threads that end later than Python brought every second of these processes down
        done = subprocess.run(
            [sys.executable, "-m", "cvgp", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, "could not be read" in done.stderr) == (1, True)


def run_command_that_raises(error: BaseException) -> Result:
    app = typer.Typer(cls=GuardedGroup)

    @app.callback()
    def nothing() -> None: ...

    @app.command()
    def work() -> None:
        raise error

    return CliRunner().invoke(app, ["work"])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (InvalidInputError("Bad table."), 1, "Bad table."),
        (MissingFileError("No file."), 2, "No file."),
        (KeyboardInterrupt("Go on."), 130, "Go on."),
        (Terminated("Go on."), 143, "Go on."),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "free space"),
        (MemoryError(), 1, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes."), 1, "not enough memory"),
    ],
    ids=repr,
)
def test_an_error_is_one_line_and_a_code(error: BaseException, code: int, message: str) -> None:
    result = run_command_that_raises(error)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (code, "", 1)
    assert message in result.stderr


def test_a_programming_error_keeps_its_traceback() -> None:
    error = RuntimeError("a bug")
    assert run_command_that_raises(error).exception is error
