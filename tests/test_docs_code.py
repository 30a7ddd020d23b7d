"""Every block of code and every command in the pages runs, and prints what the page says that it prints."""

import contextlib
import inspect
import io
import re
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import cvgp
from cvgp import CVGPRegressor, TrainingOptions
from cvgp.cli import app

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {"scaling.md": "test_docs_scaling.py"}
"""Pages whose code a test of its own runs."""
SMALLER = {
    "tutorials/million_rows.md": [("1_000_000", "400"), ("200", "20")],
}
"""Numbers that a page has for people and that would take a test too long."""
ON_A_CLUSTER = "import ray"


def wave(rows: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (rows, 1))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=rows)


def names_of_the_regressor(folder: Path) -> dict[str, Any]:
    (X, y), (X_test, y_test) = wave(60), wave(20, seed=1)
    new = {"X_new": X_test[:5], "y_new": y_test[:5], "patients": [1, 1, 2, 3, 3]}
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test, "price": np.exp(y), **new} | modules()


def names_of_merging(folder: Path) -> dict[str, Any]:
    shards = [wave(60), wave(60, seed=1)]
    return {
        "shards": shards,
        "first": cvgp.CVGPRegressor(8, random_state=0, training=cvgp.TrainingOptions(max_iter=5)).fit(*shards[0]),
    }


def names_of_tables(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    area, sold = rng.normal(100, 20, 80), pd.date_range("2024-01-01", periods=80)
    table = pd.DataFrame(
        {"id": np.arange(80), "area": area, "sold": sold, "price": 50 * np.sin(area / 10) + 5 * rng.normal(size=80)}
    )
    table.to_csv(folder / "sales.csv", index=False)
    table[:5].drop(columns="price").to_csv(folder / "new.csv", index=False)
    return {}


def names_of_processes(folder: Path) -> dict[str, Any]:
    (folder / "taxi").mkdir()
    X, y = wave(60)
    pd.DataFrame({"km": X[:, 0], "fare": y}).to_parquet(folder / "taxi" / "part.parquet")
    return {}


def files_of_commands(folder: Path) -> dict[str, Any]:
    X, y = wave(60)
    table = pd.DataFrame({"x": X[:, 0], "price": y})
    for name in ("train", "test", "new"):
        table.to_csv(folder / f"{name}.csv", index=False)
    cvgp.CVGPRegressor(8, random_state=0, training=cvgp.TrainingOptions(max_iter=5)).fit(table, "price").save(
        folder / "model.cvgp"
    )
    return {}


def files_of_flowers(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    size = rng.normal(size=90)
    table = pd.DataFrame({"size": size, "species": np.select([size > 0.7, size > -0.5], ["iris", "rose"], "lily")})
    for name in ("flowers", "test", "new"):
        table.to_csv(folder / f"{name}.csv", index=False)
    return {}


def modules() -> dict[str, Any]:
    from cvgp import plots

    return {"cvgp": cvgp, "plots": plots}


BEFORE: dict[str, Callable[[Path], dict[str, Any]]] = {
    "regressor.md": names_of_the_regressor,
    "merging.md": names_of_merging,
    "tables.md": names_of_tables,
    "classifier.md": files_of_flowers,
    "report.md": files_of_commands,
    "api/distributed.md": names_of_processes,
    "explanation/noise.md": files_of_commands,
    "howto/saving_and_serving.md": files_of_commands,
}
"""What a page takes for granted: the reader's own data."""


def blocks(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    for large, small in SMALLER.get(page, []):
        text = text.replace(large, small)
    return BLOCK.findall(text)


def run_commands(text: str) -> None:
    for line in text.strip().splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "cvgp", f"a block of `sh` holds commands of cvgp alone: {line}"
        result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, result.output


PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
WITH_CODE = [page for page in PAGES if page not in ELSEWHERE and {"python", "sh"} & {kind for kind, _ in blocks(page)}]
LONG = ("classifier.md", "defaults.md", "report.md", "tables.md", "time_series.md", "tutorials/your_table.md")
"""Pages that fit several models of real size."""


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow if p in LONG else ()) for p in WITH_CODE])
@pytest.mark.filterwarnings("ignore:Optimization failed")
@pytest.mark.filterwarnings("ignore:Left out, since they are not informative")
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as in a session of Python that was started there
    names = BEFORE[page](tmp_path) if page in BEFORE else {}
    printed = ""
    for kind, text in blocks(page):
        if kind == "text" and printed:
            assert printed == text
        printed = ""
        if kind == "python" and ON_A_CLUSTER not in text:
            with contextlib.redirect_stdout(io.StringIO()) as shown:
                exec(compile(text, page, "exec"), names)
            printed = shown.getvalue()
        elif kind == "sh":
            run_commands(text)


def command_lines() -> list[tuple[str, str]]:
    """Commands of cvgp in blocks that are not run, as they hold names of the reader's own files."""
    pages = [DOCS.parent / "README.md", *(DOCS / page for page in PAGES)]
    return [
        (page.relative_to(DOCS.parent).as_posix(), line)
        for page in pages
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if kind == ""
        for line in text.splitlines()
        if line.startswith("cvgp ") and not line.startswith("cvgp COMMAND")
    ]


@pytest.fixture(scope="module")
def help_of() -> Callable[[tuple[str, ...]], str]:
    """What a command prints about itself, asked for once."""
    return cache(
        lambda words: (
            CliRunner().invoke(app, [*words, "--help-all" if words else "--help"], env={"COLUMNS": "300"}).output
        )
    )


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_a_command_in_a_page_has_only_flags_that_exist(
    page: str, line: str, help_of: Callable[[tuple[str, ...]], str]
) -> None:
    words = shlex.split(line, comments=True)[1:]
    called = tuple(words[: 2 if words[0] == "paper" else 1])
    shown = help_of(() if called[0].startswith("-") else called)
    assert "No such command" not in shown
    assert [word for word in words if word.startswith("--") and word not in shown] == []


@pytest.mark.slow
def test_models_of_shards_are_merged_on_a_cluster_as_the_page_says(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, place in enumerate(("north", "south")):
        (tmp_path / "shards" / place).mkdir(parents=True)
        X, y = wave(60, seed)
        pd.DataFrame({"x": X[:, 0], "y": y}).to_parquet(tmp_path / "shards" / place / "part.parquet")
    monkeypatch.chdir(tmp_path)
    (code,) = [text.replace("100", "8") for _, text in blocks("merging.md") if ON_A_CLUSTER in text]
    names: dict[str, Any] = {"cvgp": cvgp}
    exec(compile(code, "merging.md", "exec"), names)
    assert len(names["model"].merged_["rows"]) == 2


def table_of_defaults() -> dict[str, str]:
    rows = re.findall(
        r"^\| (`.*?) \| (`.*?) \|", (DOCS / "regressor.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    names = [name for cell, _ in rows for name in re.findall(r"`(\w+)`", cell)]
    defaults = []
    for cell, default in rows:
        values = re.findall(r"`(.*?)`", default)
        defaults += values * (cell.count("`") // 2 // len(values))
    return dict(zip(names, defaults, strict=True))


def test_every_parameter_is_listed_with_its_default() -> None:
    parameters = [p for c in (CVGPRegressor, TrainingOptions) for p in inspect.signature(c).parameters.values()]
    expected = {p.name: f'"{p.default}"' if isinstance(p.default, str) else str(p.default) for p in parameters}
    listed = table_of_defaults()
    assert {name: default.replace("1e-4", "0.0001") for name, default in listed.items()} == expected
