"""A weekly series whose season changes slowly: gaps are filled, and two years are forecast.

Run it with ``python examples/forecast.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor

WEEKS, FUTURE = 416, 104  # eight years, of which the last two are to be forecast


def main(folder: Path) -> None:
    """Fit a trend, a drift and a season that changes; the end of the known series judges every choice."""
    rng = np.random.default_rng(3)
    years = np.arange(WEEKS) / 52.0
    drift = np.cumsum(0.05 * rng.normal(size=WEEKS))
    season = (1.0 + 0.1 * years) * np.sin(2.0 * np.pi * years + 0.1 * years)
    y = 0.25 * years + season + drift + 0.25 * rng.normal(size=WEEKS)
    future = np.arange(WEEKS) >= WEEKS - FUTURE
    known = (rng.random(WEEKS) < 0.8) & ~future

    model = CVGPRegressor(kernel="linear+matern12+quasiperiodic", noise="constant", random_state=0)
    model.fit(years[known, None], y[known], time=years[known])
    low, high = model.predict_interval(years[:, None], level=0.9).T
    inside = (low < y) & (y < high)
    gaps = ~known & ~future
    print(f"90 % intervals hold {inside[gaps].mean():.0%} of the gaps, {inside[future].mean():.0%} of the future")
    print(f"audit: {model.decisions_.audit.reason}")

    figure = Figure(figsize=(9, 3.6), layout="constrained")
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
