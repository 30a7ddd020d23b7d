"""A small table, a model of it, and a way to run commands inside the test's own process."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from cvgp.cli import app

Run = Callable[..., Result]


def make_table(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size, weight = rng.uniform(0.0, 4.0, rows), rng.normal(50.0, 10.0, rows)
    colour = rng.choice(["red", "blue"], rows)
    price = np.sin(size) + 0.05 * weight + (colour == "red") + rng.normal(0.0, 0.1, rows)
    return pd.DataFrame({"size": size, "weight": weight, "colour": colour, "price": price})


def flat(text: str) -> str:
    """A message as one line, without the box that typer draws around errors."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


@pytest.fixture(scope="session")
def run() -> Run:
    def invoke(*arguments: object) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="cvgp")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception  # what would be a traceback
        return result

    return invoke


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    make_table(60).to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def model(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 60 rows, fitted by the command line."""
    folder = tmp_path_factory.mktemp("model")
    make_table(60).to_csv(folder / "train.csv", index=False)
    out = folder / "model.cvgp"
    result = run(
        "fit", folder / "train.csv", "--target", "price", "--out", out, "--n-coreset", 10, "--max-iter", 20, "--quiet"
    )
    assert result.exit_code == 0, result.stderr
    return out
