"""Tables as they are, through the commands: flags, lines that say what was found, and errors with flags to paste."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import Run, flat, make_table

FIT = ("--n-coreset", 5, "--max-iter", 2, "--n-neighbors", 0)


def german(frame: pd.DataFrame) -> str:
    return frame.to_csv(index=False, sep=";", decimal=",", lineterminator="\r\n")


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    """Semicolons, decimal commas, thousands, percent, Windows-1252, an ID and a constant."""
    table = make_table(60)
    table["colour"] = table["colour"].map({"red": "röd", "blue": "blå"})
    table["weight"] = [f"{1000 * weight:,.0f}".replace(",", ".") for weight in table["weight"]]
    table.insert(0, "id", np.arange(1, 61))
    table.insert(1, "land", "SE")
    table["share"] = [f"{share} %" for share in np.arange(60) % 17]
    (tmp_path / "messy.csv").write_bytes(german(table).encode("cp1252"))
    return tmp_path / "messy.csv"


@pytest.mark.filterwarnings("always::cvgp.errors.CVGPWarning")
def test_a_messy_table_becomes_predictions_in_three_commands(run: Run, messy: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "m.cvgp", tmp_path / "out.csv"
    fitted = run("fit", messy, "--target", "price", "--out", model, *FIT)
    assert fitted.exit_code == 0, fitted.stderr
    assert "--always-keep id,land" in fitted.stderr
    assert f"{messy}: columns separated by semicolons, encoding cp1252, decimal comma" in fitted.stderr
    predicted = run("predict", model, messy, "--out", out)
    assert predicted.exit_code == 0, predicted.stderr
    assert "columns separated by semicolons" in predicted.stderr
    written = pd.read_csv(out)
    assert written["weight"].between(10_000, 100_000).all()
    assert written["price_mean"].notna().all()
    assert run("evaluate", model, messy).exit_code == 0


def test_flags_say_how_the_text_is_written(run: Run, tmp_path: Path) -> None:
    make_table(40).to_csv(tmp_path / "a.csv", index=False, sep="^", decimal=",", encoding="utf-16-le")
    said = ("--sep", "^", "--decimal", ",", "--encoding", "utf-16-le")
    result = run("fit", tmp_path / "a.csv", "--target", "price", "--out", tmp_path / "m.cvgp", *FIT, *said)
    assert result.exit_code == 0, result.stderr
    for command in (["predict", "--out", tmp_path / "out.csv"], ["evaluate"]):
        result = run(command[0], tmp_path / "m.cvgp", tmp_path / "a.csv", *command[1:], *said)
        assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("flags", "features"),
    [
        (["--drop", "size,weight"], ["colour=blue", "colour=red"]),
        (["--drop", "size", "--drop", "colour"], ["weight"]),
        (["--features", "size, weight"], ["size", "weight"]),
    ],
)
def test_columns_are_chosen_by_flags_that_predicting_does_not_need(
    run: Run, table: Path, tmp_path: Path, flags: list[str], features: list[str]
) -> None:
    out = tmp_path / "m.cvgp"
    result = run("fit", table, "--target", "price", "--out", out, *FIT, *flags)
    assert result.exit_code == 0, result.stderr
    assert json.loads(run("info", out, "--json").stdout)["features"] == features
    few = make_table(5)[[name for name in make_table(5) if any(f.startswith(name) for f in features)]]
    few.to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", out, tmp_path / "new.csv", "--out", tmp_path / "out.csv").exit_code == 0


def test_the_flag_in_the_error_mends_all_columns_at_once(run: Run, tmp_path: Path) -> None:
    table = make_table(30).assign(**{"first hour": "10:30", "last": "18:15"})
    table.to_csv(tmp_path / "a.csv", index=False)
    command = ["fit", tmp_path / "a.csv", "--target", "price", "--out", tmp_path / "m.cvgp", *FIT]
    refused = run(*command)
    assert refused.exit_code == 1
    assert "2 columns cannot be used" in refused.stderr
    flags = refused.stderr.partition("To leave out what cannot be used: ")[2].partition(" (in Python")[0]
    assert run(*command, *shlex.split(flags)).exit_code == 0


def test_a_target_that_a_wrong_separator_hides_is_refused_with_what_was_read(
    run: Run, messy: Path, tmp_path: Path
) -> None:
    result = run("fit", messy, "--target", "price", "--out", tmp_path / "m.cvgp", "--sep", "|")
    assert result.exit_code == 2
    assert "read with columns separated by bars" in flat(result.stderr)
