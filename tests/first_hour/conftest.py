"""Tables as new users have them, and one model of them that tests share."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import Run, run  # noqa: F401 - a fixture

QUICK = ("--n-coreset", 10, "--max-iter", 20, "--kernel", "matern32", "--input-warp", "identity", "--quiet")
QUICK_KINDS = ("--n-coreset", 5, "--kernel", "matern32", "--input-warp", "identity")


def houses(rows: int, seed: int = 0) -> pd.DataFrame:
    """Numbers with gaps, text, dates, an empty column, and some rows without a target."""
    rng = np.random.default_rng(seed)
    area, city = rng.normal(90.0, 25.0, rows).round(), rng.choice(["Bonn", "Cork", "Lyon"], rows)
    price = (2.0 * area + 40.0 * (city == "Lyon") + rng.normal(0.0, 15.0, rows)).round(1)
    days = pd.date_range("2020-01-01", periods=rows, freq="3D").astype(str)
    table = pd.DataFrame({"area": area, "city": city, "day": days, "agent": rng.integers(0, 12, rows), "price": price})
    table.loc[::15, "area"] = None
    table.loc[[3, rows // 2], "price"] = None
    return table.assign(remark=None)


@pytest.fixture(scope="session")
def folder(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """Tables, and the models `model.cvgp` and `line.cvgp` of one of them."""
    folder = tmp_path_factory.mktemp("hour")
    houses(90).to_csv(folder / "train.csv", index=False)
    houses(60, seed=1).drop(columns="day").to_csv(folder / "no_day.csv", index=False)
    houses(60, seed=1).to_csv(folder / "test.csv", index=False)
    for name, kernel in (("model", "matern32"), ("line", "linear")):
        words = ("fit", folder / "train.csv", "--target", "price", "--drop", "day,agent", *QUICK, "--kernel", kernel)
        result = run(*words, "--out", folder / f"{name}.cvgp")
        assert result.exit_code == 0, result.stderr
    return folder
