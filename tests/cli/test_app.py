"""The command line as a whole: help, options that are those of the library, completion, exit codes."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import cvgp
from cvgp.cli.options import command, joined_numbers, options_of
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.fitting.options import TrainingOptions
from tests.cli.conftest import Run, flat

COMMANDS = ["fit", "predict", "evaluate", "report", "info", "coreset", "plot", "demo", "merge"]
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


def test_fit_offers_each_parameter_of_the_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    text = flat(run("fit", "--help").stdout)
    left_out = {"verbose", "training", "callbacks", "heuristics"}
    for source in (CVGPRegressor, TrainingOptions, cvgp.read_table):
        names = set(inspect.signature(source).parameters) - left_out - {"data", "target"}
        missing = [name for name in names if f"--{name.replace('_', '-')}" not in text]
        assert missing == []
    assert "one lengthscale per column" in text


def example(
    size: int = 3, *, kind: str | None = None, names: str | list[str] = (), path: os.PathLike[str] | None = None
) -> None:
    """Something.

    Parameters
    ----------
    size : int
        How many of them, up to 1.5 million. The rest does not matter.
    kind, path : str or None
        Of ``which`` kind.
    names : str or list of str
        Some.

    Returns
    -------
    None
        Nothing.
    """


def test_names_types_defaults_and_help_come_from_the_signature_and_the_docstring() -> None:
    found = {option.name: option for option in options_of(example, "Panel")}
    kinds = {name: option.annotation.__origin__ for name, option in found.items()}
    assert kinds == {"size": int, "kind": str | None, "names": list[str] | None, "path": Path | None}
    helps = {name: option.annotation.__metadata__[0].help for name, option in found.items()}
    assert helps["size"] == "How many of them, up to 1.5 million."
    assert helps["kind"] == helps["path"] == "Of which kind."
    assert (found["size"].default, found["kind"].default) == (3, None)


def test_a_command_gets_its_groups_as_dictionaries() -> None:
    got: list[Any] = []

    def work(first: str, group: dict[str, Any], last: Annotated[int, typer.Option()] = 1) -> None:
        got.append((first, group, last))

    built = command(work, group=options_of(example, "Panel", only=("size", "kind")))
    built.main(["a", "--kind", "b", "--last", "2"], standalone_mode=False)
    assert got == [("a", {"size": 3, "kind": "b"}, 2)]


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["--quantiles", ".1", ".5", "model", "data.csv"], ["--quantiles", ".1,.5", "model", "data.csv"]),
        (["--quantiles", ".1,.5", ".9"], ["--quantiles", ".1,.5,.9"]),
        (["--level", ".9", "5"], ["--level", ".9", "5"]),
    ],
)
def test_numbers_after_an_option_are_its_values(words: list[str], joined: list[str]) -> None:
    assert joined_numbers(words, "--quantiles") == joined


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
