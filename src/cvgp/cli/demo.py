"""`cvgp demo`: the other commands one after the other, on a table that it makes."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from cvgp.cli.console import note
from cvgp.errors import FileAccessError
from cvgp.files import make_folder
from cvgp.tables.files import write_table

TRAINING_ROWS, TEST_ROWS = 1000, 300
COLUMNS = ("hour", "day", "temperature", "wind", "demand")


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="The folder for everything that is written.")] = Path("demo"),
) -> None:
    """Make a table of electricity demand; fit, predict, evaluate and draw it."""
    make_folder(out)
    train, test, model = out / "train.csv", out / "test.csv", out / "model.cvgp"
    is_own = train.is_file() and train.read_bytes().startswith(",".join(COLUMNS).encode())
    if any(out.iterdir()) and not is_own:
        raise FileAccessError(f"{out} has files that are not of the demo; choose a new folder with --out.")
    table = _electricity_demand(TRAINING_ROWS + TEST_ROWS)
    write_table(table.slice(0, TRAINING_ROWS), train)
    write_table(table.slice(TRAINING_ROWS), test)
    note(f"Wrote {train} and {test}: electricity demand by hour, day and weather, with noise of 2.")
    application: Any = context.find_root().command
    for words in (
        ["fit", train, "--target", "demand", "--out", model, "--overwrite"],
        ["predict", model, test, "--out", out / "predictions.csv", "--overwrite"],
        ["evaluate", model, test],
        ["coreset", model, "--out", out / "coreset.csv", "--overwrite"],
        ["plot", model, "--data", test, "--out", out / "pictures.png", "--overwrite"],
    ):
        arguments = list(map(str, words))
        note(f"\n$ {shlex.join(['cvgp', *arguments])}")
        if code := application.main(args=arguments, prog_name="cvgp", standalone_mode=False):
            raise typer.Exit(code)


def _electricity_demand(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    hour = rng.integers(0, 24, rows)
    day = rng.choice(["workday", "saturday", "sunday"], rows, p=[5 / 7, 1 / 7, 1 / 7])
    temperature = rng.normal(12.0, 8.0, rows).round(1)
    wind = rng.gamma(2.0, 2.0, rows).round(1)
    daily = np.where(day == "workday", 12.0, 6.0) * np.sin(2 * np.pi * (hour - 9) / 24)
    weekend = np.select([day == "saturday", day == "sunday"], [-4.0, -8.0], 0.0)
    weather = 0.05 * (temperature - 18.0) ** 2 + 0.1 * wind * np.maximum(18.0 - temperature, 0.0) / 5
    demand = (45.0 + daily + weekend + weather + rng.normal(0.0, 2.0, rows)).round(2)
    return pa.table(dict(zip(COLUMNS, (hour, day, temperature, wind, demand), strict=True)))
