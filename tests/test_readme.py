"""The code in README.md runs and prints what README.md says: it rounds to the digits that all machines agree on."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cvgp.cli import app
from experiments.__main__ import app as benchmarks
from experiments.__main__ import readme

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(python|text)\n(.*?)```", README, flags=re.DOTALL)


@pytest.fixture(scope="module")
def outputs() -> tuple[str, str]:
    """What the blocks of code print, one after the other in one namespace, and what the README says they print."""
    printed, namespace = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        for kind, text in BLOCKS:
            if kind == "python":
                exec(compile(text, "README.md", "exec"), namespace)
    return printed.getvalue(), "".join(text for kind, text in BLOCKS if kind == "text")


def test_the_output_is_what_the_page_says(outputs: tuple[str, str]) -> None:
    printed, promised = outputs
    assert printed == promised


def test_the_commands_lead_from_a_table_to_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"area": rng.normal(100, 20, 60), "city": rng.choice(["Bonn", "Cork"], 60)})
    table["price"] = 50 * np.sin(table["area"] / 20) + 10 * (table["city"] == "Bonn") + rng.normal(size=60)
    for name in ("train", "test", "new"):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    monkeypatch.chdir(tmp_path)
    section = README.split("## Your own table")[1].split("\n## ")[0]
    lines = [line.strip("`") for line in re.findall(r"^cvgp .*$|`cvgp [^`]+`", section, flags=re.MULTILINE)]
    assert len(lines) > 5
    for line in lines:
        result = CliRunner().invoke(app, shlex.split(line)[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")[:200]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\((?!https:)([^)]+)\)", README))))
def test_what_is_linked_exists(target: str) -> None:
    path, _, anchor = target.partition("#")
    assert (ROOT / path).is_file()
    assert not anchor or anchor in anchors(ROOT / path)


def test_the_command_fills_the_measured_tables(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    empty = re.sub(r"(<!-- readme-(\w+):begin -->).*?(<!-- readme-\2:end -->)", r"\1\n\3", README, flags=re.DOTALL)
    page.write_text(empty, encoding="utf-8")
    readme(write=page)
    filled = page.read_text(encoding="utf-8")
    assert "| data | cvgp | LightGBM |" in filled
    assert "`python -m experiments race`" in filled
    assert "| fit to 10,000,000 rows of 10 columns" in filled


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`python -m experiments (\w+)[^`]*`", README))))
def test_a_command_behind_a_figure_exists(command: str) -> None:
    assert command in {
        found.name or found.callback.__name__ for found in benchmarks.registered_commands if found.callback
    }
