"""Places, cycles and forecasts on the command line."""

import json
from pathlib import Path

import numpy as np
import pandas as pd

from cvgp import load
from tests.cli.conftest import Run, flat


def test_the_command_line_has_places_and_periods(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {"lat": rng.uniform(-9.0, 9.0, 60), "lon": rng.uniform(0.0, 360.0, 60), "hour": np.arange(60) % 24}
    )
    table["t"] = np.sin(table["lon"] / 60.0) + table["lat"] / 9.0
    table.to_csv(tmp_path / "a.csv", index=False)
    words = ("fit", tmp_path / "a.csv", "--target", "t", "--out", tmp_path / "m", "--n-coreset", 8, "--quiet")
    result = run(*words, "--geo", "lat,lon", "--periods", "hour=24")
    assert result.exit_code == 0, result.stderr
    shown = run("info", tmp_path / "m").stdout
    assert "km" in shown
    assert "period 24" in shown
    facts = json.loads(run("info", tmp_path / "m", "--json").stdout)
    assert "lat, lon" in facts["feature_importances"]
    for wrong in ("hour", "hour=day"):
        result = run(*words, "--periods", wrong, "--overwrite")
        assert result.exit_code == 2
        assert "COLUMN=NUMBER" in flat(result.stderr)


def test_the_command_line_holds_out_the_end(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    dates, x = pd.date_range("2020-01-01", periods=260), rng.normal(size=260)
    y = np.sin(x) + 0.1 * rng.normal(size=260)
    pd.DataFrame({"day": dates, "x": x, "y": y}).sample(frac=1.0, random_state=0).to_csv(
        tmp_path / "a.csv", index=False
    )
    words = (
        "fit",
        tmp_path / "a.csv",
        "--target",
        "y",
        "--time",
        "day",
        "--dates",
        "season",
        "--n-coreset",
        8,
        "--max-iter",
        20,
        "--quiet",
        "--out",
    )
    for name, more in {"all": (), "some": ("--test-size", 0.2)}.items():
        result = run(*words, tmp_path / name, *more)
        assert result.exit_code == 0, result.stderr
        assert "latest rows" in load(tmp_path / name).decisions_.audit.reason
    assert "52 rows that were held out" in result.stdout
