"""Noise that grows with x: the width of the intervals is learned from the data.

Run it with ``python examples/uneven_noise.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Fit one noise level and one that depends on x, and draw both beside each other."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, (300, 1)), axis=0)
    y = np.sin(2.0 * X[:, 0]) + (0.05 + 0.12 * X[:, 0]) * rng.normal(size=300)

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for ax, noise in zip(figure.subplots(1, 2, sharey=True), ("constant", "input-dependent"), strict=True):
        model = CVGPRegressor(noise=noise, random_state=0).fit(X, y)
        low, high = model.predict_interval(X, level=0.9).T
        ax.plot(X[:, 0], y, ".", color="grey", ms=3)
        ax.fill_between(X[:, 0], low, high, alpha=0.3, label="90 % interval")
        ax.plot(X[:, 0], model.predict(X), label="mean")
        quiet = X[:, 0] < 2.0
        inside = (low < y) & (y < high)
        ax.set(title=f'noise="{noise}"', xlabel="x")
        ax.legend(loc="upper left")
        print(f"{noise}: {inside[quiet].mean():.0%} inside where it is quiet, {inside[~quiet].mean():.0%} elsewhere")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "uneven_noise.png", dpi=100)
    print(f"picture: {folder / 'uneven_noise.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
