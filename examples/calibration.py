"""Do intervals hold what they promise? Coverage on rows that the model has not seen.

Run it with ``python examples/calibration.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor
from cvgp.plots import plot_calibration, plot_predicted


def main(folder: Path) -> None:
    """Fit, and draw coverage and predictions of new rows."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-2, 2, (700, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.2 * rng.normal(size=700)
    model = CVGPRegressor(random_state=0).fit(X[:300], y[:300])
    low, high = model.predict_interval(X[300:], level=0.9).T
    print(f"90 % intervals hold {np.mean((low < y[300:]) & (y[300:] < high)):.0%} of 400 new rows")

    figure = Figure(figsize=(8, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    plot_calibration(model, X[300:], y[300:], left)
    plot_predicted(model, X[300:], y[300:], right)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "calibration.png", dpi=100)
    print(f"picture: {folder / 'calibration.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
