"""Names and values of a stranger's table and model, printed by every command: a terminal obeys none of them."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import Result

from cvgp.files import read_state, write_state
from tests.cli.conftest import Run, make_table

NAMES = {
    "size": "size\x1b[31m[red]",
    "weight": "weight\x07\x9b2J$x_{",
    "colour": "colour\u202e\u2066\u200f\u061c$",
    "price": "price\u2028\x7f\r\n$y^",
}
VALUES = {"red": "red\x1b]0;title\x07", "blue": "blue\x85[bold]$\\frac"}
TARGET = NAMES["price"]
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.fixture(scope="module")
def hostile_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "table.csv"
    frame = make_table(60).replace({"colour": VALUES}).rename(columns=NAMES)
    with path.open("w", encoding="utf-8", newline="") as stream:
        frame.to_csv(stream, index=False)
    return path


@pytest.fixture(scope="module")
def hostile_model(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the other tests, under other names."""
    metadata = read_state(model)
    schema = metadata["schema"]
    for column in schema["columns"]:
        column["name"] = NAMES[column["name"]]
        column["categories"] = sorted(VALUES[value] for value in column["categories"])
    schema["target"] = TARGET
    metadata["fit"]["feature_names"] = [NAMES[name] for name in metadata["fit"]["feature_names"]]
    metadata["fit"]["solver"] = "lbfgs\x1b[2J$_{"
    path = tmp_path_factory.mktemp("hostile") / "model.cvgp"
    write_state(path, metadata)
    return path


def check(result: Result, code: int = 0) -> str:
    """The bytes of both streams hold nothing that a terminal obeys; all that was printed."""
    assert result.exit_code == code, result.stderr
    for content in (result.stdout_bytes, result.stderr_bytes):
        assert OBEYED.findall(content.decode("utf-8")) == []
    return result.stdout + result.stderr


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("command", ["info", "predict", "evaluate", "coreset"])
def test_a_command_shows_a_hostile_model_by_escapes(
    run: Run, hostile_model: Path, hostile_table: Path, tmp_path: Path, command: str, options: list[str]
) -> None:
    arguments: list[object] = [hostile_model]
    arguments += [hostile_table] if command in ("predict", "evaluate") else []
    arguments += ["--out", tmp_path / "out.csv"] if command in ("predict", "coreset") else []
    result = run(command, *arguments, *options)
    assert "price" in check(result)
    assert not options or json.loads(result.stdout)


def test_a_name_is_no_markup_and_begins_no_line(run: Run, hostile_model: Path) -> None:
    shown = run("info", hostile_model).stdout
    assert r"size\x1b[31m[red]" in shown
    assert r"price\u2028\x7f\r\n$y^" in shown


def test_names_with_formulas_can_be_drawn(run: Run, hostile_model: Path, hostile_table: Path, tmp_path: Path) -> None:
    shown = check(run("plot", hostile_model, "--data", hostile_table, "--out", tmp_path / "out.svg"))
    assert "Wrote" in shown
    drawn = (tmp_path / "out.svg").read_text(encoding="utf-8")
    assert OBEYED.findall(drawn) == []


def test_a_fit_of_a_hostile_table_is_told_by_escapes(run: Run, hostile_table: Path, tmp_path: Path) -> None:
    quick = ["--n-coreset", 3, "--solver", "adam", "--max-iter", 2, "--n-neighbors", 0, "--noise", "constant"]
    out = tmp_path / "model.cvgp"
    shown = check(run("fit", hostile_table, "--target", TARGET, "--out", out, "--input-warp", "identity", *quick))
    assert r"size\x1b[31m[red]" in shown


@pytest.mark.parametrize("option", [["--target", "other\x1b[2J"], ["--target", TARGET, "--drop", "other\x9b"]])
def test_an_error_names_hostile_columns_by_escapes(
    run: Run, hostile_table: Path, tmp_path: Path, option: list[str]
) -> None:
    result = run("fit", hostile_table, *option, "--out", tmp_path / "model.cvgp")
    shown = check(result, result.exit_code)
    assert result.exit_code in (1, 2)
    assert r"size\x1b[31m[red]" in shown.replace("\n", "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "no\x1b[2J.cvgp"],
        ["predict", "no\x1b[2J.cvgp", "no\x9b.csv", "--out", "no\x1b[2J/out.csv"],
        ["fit", "no\x1b[2J.csv", "--target", "y\x1b", "--out", "\u202e.cvgp"],
        ["no\x1b[2J"],
        ["info", "--no\x1b[2J"],
        ["info", "a", "b\x1b[2J"],
        ["fit", "t.csv", "--target", "y", "--out", "m", "--n-coreset", "\x1b[2J"],
    ],
    ids=ascii,
)
def test_words_of_the_command_line_are_shown_by_escapes(
    run: Run, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    check(result, result.exit_code)
    assert result.exit_code in (1, 2)
