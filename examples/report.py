"""The report about a model of a table, in a browser: scores beside simpler models, calibration, errors by column.

Run it with ``python examples/report.py [FOLDER]``; page and picture land in FOLDER (``demo`` by default). The picture
needs Chromium or Chrome; the page needs no network.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from cvgp import CVGPRegressor

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
SIZE = 1240, 1580  # of the picture, in pixels
PER_METER = {"Amsterdam": 6200, "Rotterdam": 3900, "Utrecht": 5100, "Den Haag": 4200, "Bergen op Zoom": 3000}


def houses(num_rows: int, seed: int) -> pd.DataFrame:
    """Sales with text, dates and gaps; the noise is a share of the price."""
    rng = np.random.default_rng(seed)
    city = rng.choice(list(PER_METER), num_rows, p=[0.35, 0.25, 0.2, 0.15, 0.05])
    area = rng.lognormal(4.6, 0.4, num_rows).round()
    days = rng.integers(0, 3000, num_rows)
    days[:2] = 0, 2999  # the same range in every table
    garden, noise = rng.random(num_rows) < 0.4, rng.normal(size=num_rows)
    price = area * pd.Series(city).map(PER_METER).to_numpy() * (1.0 + 0.00012 * days) * np.exp(0.12 * noise)
    sold = pd.Timestamp("2015-01-01") + pd.to_timedelta(days, "D")
    table = pd.DataFrame({"living area": area, "city": city, "sold on": sold, "garden": garden})
    table["price"] = (price + 20_000 * garden).round(-2)
    table.loc[rng.random(num_rows) < 0.05, "living area"] = None
    return table


def picture_of(page: Path, picture: Path) -> None:
    """What a browser shows of the upper part of a page."""
    assert BROWSER is not None, "the picture needs chromium or google-chrome on the PATH"
    with tempfile.TemporaryDirectory() as profile:
        size = f"--window-size={SIZE[0]},{SIZE[1]}"
        where = [f"--user-data-dir={profile}", size, f"--screenshot={picture.resolve()}", page.resolve().as_uri()]
        subprocess.run([BROWSER, *QUIET, *where], check=True, capture_output=True, timeout=120)


def main(folder: Path) -> None:
    """Fit to some houses, report on others, and look at the page."""
    train, test = houses(800, seed=0), houses(400, seed=1)
    model = CVGPRegressor(random_state=0).fit(train, "price")
    report = model.report(test, "price", train=(train, "price"))
    folder.mkdir(parents=True, exist_ok=True)
    report.save(folder / "report.html")
    print(f"{report}; page: {folder / 'report.html'}")
    picture_of(folder / "report.html", folder / "report.png")
    print(f"picture: {folder / 'report.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
