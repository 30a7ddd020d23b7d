"""Two outputs in one model: they share a coreset and a covariance.

Run it with ``python examples/several_outputs.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Fit a moving point: its two coordinates as functions of time."""
    rng = np.random.default_rng(5)
    t = np.sort(rng.uniform(0, 2.0 * np.pi, (120, 1)), axis=0)
    Y = np.c_[np.cos(t[:, 0]), np.sin(2.0 * t[:, 0])] + 0.1 * rng.normal(size=(120, 2))
    model = CVGPRegressor(noise="constant", random_state=0).fit(t, Y)
    grid = np.linspace(0, 2.0 * np.pi, 200)[:, None]
    mean, sd = model.predict(grid, return_std=True)
    print(f"predictions have the shape {mean.shape}; noise variances {np.round(model.noise_variance_, 3)}")

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for output, name in enumerate(("x", "y")):
        low, high = mean[:, output] - 2 * sd[:, output], mean[:, output] + 2 * sd[:, output]
        left.fill_between(grid[:, 0], low, high, alpha=0.3)
        left.plot(grid[:, 0], mean[:, output], label=name)
    left.set(xlabel="time", title="each output, ± 2 standard deviations")
    left.legend()
    right.plot(*Y.T, ".", color="grey", ms=3)
    right.plot(*mean.T)
    right.set(xlabel="x", ylabel="y", title="the path")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "several_outputs.png", dpi=100)
    print(f"picture: {folder / 'several_outputs.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
