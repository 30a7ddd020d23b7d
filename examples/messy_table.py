"""A messy CSV file to predictions with intervals: dates, cities, missing values, an ID and thousands separators.

Run it with ``python examples/messy_table.py [FOLDER]``; tables and picture land in FOLDER (``demo`` by default). Three
commands give the same numbers there::

    cvgp fit houses.csv --target price --out houses.cvgp
    cvgp predict houses.cvgp new_houses.csv --level .9 --out predictions.csv
    cvgp evaluate houses.cvgp new_houses.csv
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from cvgp import CVGPRegressor

NUM_ROWS, NUM_NEW, NUM_CITIES = 600, 100, 40


def write_tables(folder: Path) -> None:
    """Sales of houses as somebody's program exported them, and new ones."""
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
    table[:-NUM_NEW].to_csv(folder / "houses.csv", index=False)
    table[-NUM_NEW:].to_csv(folder / "new_houses.csv", index=False)


def predict(folder: Path) -> pd.DataFrame:
    """Learn from one table and predict the other, in five lines: the new table with predictions and 90 % intervals."""
    houses, new = (pd.read_csv(folder / name).drop(columns="id") for name in ("houses.csv", "new_houses.csv"))
    model = CVGPRegressor(random_state=0).fit(houses, "price")
    mean, sd = model.predict(new, return_std=True)
    low, high = model.predict_interval(new, level=0.9).T
    return new.assign(mean=mean, sd=sd, low=low, high=high)


def main(folder: Path) -> None:
    """Write the tables, predict, and compare with what the new houses were sold for."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tables(folder)
    new = predict(folder)
    mean, sd, low, high = (new[name].to_numpy() for name in ("mean", "sd", "low", "high"))

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
