"""Accidents on roads that were watched for different times: the rate per year, with the expected and the counted ones.

Run it with ``python examples/counts_with_exposure.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def true_rate(traffic: np.ndarray) -> np.ndarray:
    """Accidents per year at some thousands of cars per day."""
    return 0.15 * traffic * np.exp(0.5 * np.sin(0.8 * traffic))


def main(folder: Path) -> None:
    """Fit a rate to counts, and draw it with the counts of one year and of ten years."""
    rng = np.random.default_rng(1)
    traffic = np.sort(rng.uniform(0.5, 12, 200))
    years = rng.choice([0.5, 1.0, 2.0, 5.0, 10.0], 200)
    accidents = rng.poisson(years * true_rate(traffic))
    model = CVGPRegressor(likelihood="poisson", random_state=0)
    model.fit(traffic[:, None], accidents, exposure=years)

    grid = np.linspace(0.5, 12, 300)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    rate_ax, one_ax, ten_ax = figure.subplots(1, 3)
    rate, sd = model.predict(grid[:, None], exposure=1.0, return_std=True, include_noise=False)
    rate_ax.scatter(traffic, accidents / years, s=6 * years, color="grey", alpha=0.6, lw=0, label="counts / years")
    rate_ax.fill_between(grid, rate - 2 * sd, rate + 2 * sd, alpha=0.3, label="rate ± 2 sd")
    rate_ax.plot(grid, rate, label="rate")
    rate_ax.plot(grid, true_rate(grid), "k--", lw=0.8, label="truth")
    rate_ax.set(title="Accidents per year", ylim=(0, 8))
    for ax, time in ((one_ax, 1.0), (ten_ax, 10.0)):
        low, high = model.predict_interval(grid[:, None], level=0.9, exposure=time).T
        ax.fill_between(grid, low, high, step="mid", alpha=0.3, label="90 % interval")
        ax.plot(grid, model.predict(grid[:, None], exposure=time), label="mean")
        ax.plot(traffic[years == time], accidents[years == time], ".", color="grey", label="counted")
        ax.set(title=f"Counts in {time:.0f} year{'s' * (time > 1)}")
    for ax in (rate_ax, one_ax, ten_ax):
        ax.set(xlabel="thousand cars per day")
        ax.legend(loc="upper left", fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "counts_with_exposure.png", dpi=100)
    inside = np.mean(np.abs(rate - true_rate(grid)) < 2 * sd)
    print(f"the true rate is inside ± 2 sd at {inside:.0%} of the grid")
    print(f"picture: {folder / 'counts_with_exposure.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
