"""`cvgp explain`."""

import json
from pathlib import Path

import numpy as np
import pytest

import cvgp
from tests.cli.conftest import Run, flat, make_table
from tests.tables.helpers import write

CELLS = "size=1.5,weight=48,colour=red"
COLUMNS = ["size", "weight", "colour"]


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_row_of_a_file_is_explained_as_in_python(run: Run, model: Path, tmp_path: Path, ending: str) -> None:
    frame = make_table(30, seed=1)
    path = write(tmp_path / f"table{ending}", frame)
    found = json.loads(run("explain", model, f"{path}:17", "--json").stdout)
    expected = cvgp.load(model).explain(frame[COLUMNS].iloc[[16]])
    assert found["prediction"] == pytest.approx(expected.prediction)
    effects = [found["columns"][name]["effect"] for name in COLUMNS]
    np.testing.assert_allclose(effects, expected.effects, rtol=1e-8)
    assert sum(effects) == pytest.approx(found["prediction"] - found["baseline"], abs=1e-8)
    assert found["columns"]["colour"]["value"] == frame["colour"][16]


def test_a_row_is_given_by_its_cells(run: Run, model: Path) -> None:
    found = json.loads(run("explain", model, CELLS, "--json").stdout)
    x = make_table(1)[COLUMNS].assign(size=1.5, weight=48.0, colour="red")
    assert found["prediction"] == pytest.approx(cvgp.load(model).predict(x)[0])
    assert {"training row", "pseudo-point"} >= {own["kind"] for own in found["heaviest"]}
    assert "colour" in run("explain", model, CELLS).stdout


def test_a_row_of_several_files_is_counted_over_all(run: Run, model: Path, tmp_path: Path) -> None:
    frame = make_table(20, seed=1)
    (tmp_path / "parts").mkdir()
    for number in range(2):
        write(tmp_path / "parts" / f"{number}.csv", frame[10 * number : 10 * number + 10])
    found = json.loads(run("explain", model, f"{tmp_path / 'parts'}:14", "--json").stdout)
    assert found["prediction"] == pytest.approx(cvgp.load(model).predict(frame[COLUMNS].iloc[[13]])[0])


@pytest.mark.parametrize(
    ("row", "code", "complaint"),
    [
        ("{table}:61", 1, "60 data rows"),
        ("{table}:0", 1, "no row 0"),
        ("{table}", 2, "neither FILE:17 nor name=value"),
        ("absent.csv:3", 2, "absent.csv"),
        ("size=1,weight=2", 1, "lacks the columns ['colour']"),
        ("size=1,weight=2,color=red", 1, "has no column 'color'; did you mean 'colour'?"),
        ("size=1,size=2,weight=2,colour=red", 1, "must be unique"),
        ("size=large,weight=2,colour=red", 1, "'size' must hold numbers"),
    ],
)
def test_a_row_that_is_not_there_is_an_error(
    run: Run, model: Path, table: Path, row: str, code: int, complaint: str
) -> None:
    result = run("explain", model, row.format(table=table))
    assert (result.exit_code, complaint in flat(result.stderr)) == (code, True), result.stderr


def test_the_picture_is_written_and_not_replaced(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "picture.png"
    assert run("explain", model, CELLS, "--out", out).exit_code == 0
    assert out.stat().st_size > 10_000
    assert run("explain", model, CELLS, "--out", out).exit_code == 2
    assert run("explain", model, CELLS, "--out", out, "--overwrite").exit_code == 0
    assert run("explain", model, CELLS, "--out", tmp_path / "picture.txt").exit_code == 2


def test_exposure_is_a_cell_of_the_row(run: Run, tmp_path: Path) -> None:
    frame = make_table(60).assign(claims=np.random.default_rng(0).poisson(3.0, 60), years=1.5)
    path = write(tmp_path / "claims.csv", frame[["size", "weight", "claims", "years"]])
    words = ("--target", "claims", "--likelihood", "poisson", "--exposure", "years", "--n-coreset", 5, "--quiet")
    run("fit", path, *words, "--out", tmp_path / "m")
    one, two = (
        json.loads(run("explain", tmp_path / "m", f"size=1,weight=50,years={years}", "--json").stdout)
        for years in (1, 2)
    )
    assert two["prediction"] == pytest.approx(2.0 * one["prediction"])
    row = json.loads(run("explain", tmp_path / "m", f"{path}:2", "--json").stdout)
    assert row["prediction"] == pytest.approx(
        cvgp.load(tmp_path / "m").predict(frame[["size", "weight", "years"]][1:2])[0]
    )
