"""Where pseudo-points lie in two dimensions, and how many rows each of them stands for.

Run it with ``python examples/coreset_in_the_plane.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor
from cvgp.plots import plot_coreset, plot_weights


def main(folder: Path) -> None:
    """Fit rows that are dense in two places and draw the coreset over them."""
    rng = np.random.default_rng(4)
    X = np.r_[rng.normal([-1.0, 0.0], 0.5, (500, 2)), rng.normal([1.5, 0.5], 0.7, (300, 2))]
    y = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=800)
    model = CVGPRegressor(n_coreset=30, n_neighbors=0, noise="constant", random_state=0).fit(X, y)
    coreset = model.coreset_
    print(f"{len(coreset)} points that count as {coreset.beta.min():.1f} to {coreset.beta.max():.0f} rows each")

    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.5, 1))
    left.plot(*X.T, ".", color="silver", ms=3, zorder=0)
    plot_coreset(model, ["x0", "x1"], left)
    plot_weights(model, right).set_title("weights")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "coreset_in_the_plane.png", dpi=100)
    print(f"picture: {folder / 'coreset_in_the_plane.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
