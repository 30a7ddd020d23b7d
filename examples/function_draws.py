"""Whole functions that the data allow: draws from the posterior agree at the data and part beyond.

Run it with ``python examples/function_draws.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Draw functions on a grid, jointly."""
    rng = np.random.default_rng(10)
    X = np.r_[rng.uniform(0, 2, (60, 1)), rng.uniform(4, 5, (40, 1))]
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=100)
    model = CVGPRegressor(kernel="matern52", noise="constant", random_state=0).fit(X, y)
    grid = np.linspace(-1, 6.5, 150)[:, None]
    mean, covariance = model.predict(grid, return_cov=True, include_noise=False)
    draws = rng.multivariate_normal(mean, covariance, size=8, method="eigh")
    print(f"draws differ by {draws[:, 40].std():.2f} amid the data and by {draws[:, -1].std():.2f} beyond")

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    ax = figure.add_subplot()
    ax.plot(grid[:, 0], draws.T, lw=1)
    ax.plot(X[:, 0], y, ".", color="black", ms=4)
    ax.set(xlabel="x", ylabel="f")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "function_draws.png", dpi=100)
    print(f"picture: {folder / 'function_draws.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
