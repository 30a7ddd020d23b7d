"""A messy CSV file to predictions with intervals: dates, cities, missing values, an ID and thousands separators.

Run it with ``python examples/messy_table.py [FOLDER]``; table and picture land in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cvgp import CVGPRegressor

NUM_ROWS, NUM_CITIES = 600, 40


def write_table(path: Path) -> None:
    """Sales of houses as somebody's program exported them."""
    rng = np.random.default_rng(0)
    city = rng.integers(NUM_CITIES, size=NUM_ROWS)
    sold = pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 700, NUM_ROWS), "D")
    area = rng.lognormal(7.0, 0.3, NUM_ROWS)
    level = 50.0 * rng.normal(size=NUM_CITIES)
    season = 30.0 * np.sin(2.0 * np.pi * sold.day_of_year / 365.25)
    price = 200.0 + 0.1 * area + level[city] + season + 15.0 * rng.normal(size=NUM_ROWS)
    table = pd.DataFrame(
        {
            "id": [f"H-{i:05}" for i in range(NUM_ROWS)],
            "sold": sold.strftime("%Y-%m-%d"),
            "city": [f"City {i}" for i in city],
            "area": [f"{value:,.0f}" for value in area],
            "garden": rng.choice(["yes", "no"], NUM_ROWS),
            "price": price.round(1),
        }
    )
    table.loc[rng.random(NUM_ROWS) < 0.1, "area"] = None
    table.loc[rng.random(NUM_ROWS) < 0.05, "city"] = None
    table.to_csv(path, index=False)


def main(folder: Path) -> None:
    """Write the table, learn from its first 500 rows and predict the others."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "houses.csv")

    houses = pd.read_csv(folder / "houses.csv", thousands=",").drop(columns="id")
    train, new = houses[:500], houses[500:]
    model = CVGPRegressor(dates="features", random_state=0).fit(train, "price")
    mean, sd = model.predict(new, return_std=True)
    low, high = model.predict_quantiles(new, [0.05, 0.95]).T

    inside = ((low <= new["price"]) & (new["price"] <= high)).mean()
    print(f"error {np.sqrt(np.mean((mean - new['price']) ** 2)):.1f}, {inside:.0%} inside the 90 % intervals")
    gaps = new["area"].isna().to_numpy()
    print(f"sd {sd[~gaps].mean():.1f}, and {sd[gaps].mean():.1f} where the area is missing")

    figure = Figure(figsize=(6, 4), layout="constrained")
    ax = figure.add_subplot()
    ax.errorbar(mean, new["price"], xerr=(mean - low, high - mean), fmt="o", ms=3, lw=0.6, color="tab:blue")
    ax.axline((mean.mean(), mean.mean()), slope=1.0, color="grey", lw=0.8)
    ax.set(xlabel="predicted price, with 90 % intervals", ylabel="price")
    figure.savefig(folder / "messy_table.png", dpi=100)
    print(f"picture: {folder / 'messy_table.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
