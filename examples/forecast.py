"""A monthly series with trend, season and drift: gaps are filled and four years are forecast.

Run it with ``python examples/forecast.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Fit a kernel with a term for each part of the series."""
    rng = np.random.default_rng(3)
    years = np.arange(192) / 12.0
    drift = np.cumsum(0.1 * rng.normal(size=192))
    y = 0.25 * years + 1.2 * np.sin(2.0 * np.pi * years) + drift + 0.2 * rng.normal(size=192)
    known = rng.random(192) < 0.8
    known[144:] = False

    model = CVGPRegressor(kernel="linear+matern12+periodic", noise="constant", random_state=0)
    model.fit(years[known, None], y[known])
    low, high = model.predict_interval(years[:, None], level=0.9).T
    inside = (low < y) & (y < high)
    print(
        f"90 % intervals hold {inside[:144][~known[:144]].mean():.0%} of gaps, {inside[144:].mean():.0%} of the future"
    )

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    ax = figure.add_subplot()
    ax.fill_between(years, low, high, alpha=0.3, label="90 % interval")
    ax.plot(years[known], y[known], ".", ms=4, label="known")
    ax.plot(years[~known], y[~known], "x", ms=4, color="tab:red", label="not shown to the model")
    ax.set(xlabel="years", ylabel="y")
    ax.legend(loc="upper left")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "forecast.png", dpi=100)
    print(f"picture: {folder / 'forecast.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
