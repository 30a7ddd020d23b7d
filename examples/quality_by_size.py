"""How many points are enough: quality against the size of the coreset.

Run it with ``python examples/quality_by_size.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import cvgp
from cvgp.plots import plot_quality_by_size


def main(folder: Path) -> None:
    """Prune and grow copies of one model, and score each on held-out rows."""
    rng = np.random.default_rng(9)
    X = rng.uniform(0, 10, (600, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=600)
    settings = {"n_neighbors": 0, "noise": "constant", "input_warp": "identity", "kernel": "matern32"}
    model = cvgp.CVGPRegressor(n_coreset=32, random_state=0, **settings).fit(X[:400], y[:400])
    quality = cvgp.quality_by_size(model, X[:400], y[:400], held_out=(X[400:], y[400:]))
    for size, rmse in zip(quality["size"], quality["rmse"], strict=True):
        print(f"{size:.0f} points: RMSE {rmse:.2f}")

    figure = Figure(figsize=(6.5, 4), layout="constrained")
    plot_quality_by_size(quality, figure.add_subplot())
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "quality_by_size.png", dpi=100)
    print(f"picture: {folder / 'quality_by_size.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
