"""The picture of the first page: four hundred observations with a gap, and the few points that stand for them.

Run it with ``python examples/first_fit.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor
from cvgp.plots import plot_posterior


def main(folder: Path) -> None:
    """Fit and draw."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.uniform(0, 5, (200, 1)), rng.uniform(7, 12, (200, 1))]
    y = np.sin(X[:, 0]) + 0.1 * X[:, 0] + rng.normal(0, 0.3, 400)
    model = CVGPRegressor(random_state=0).fit(X, y)
    mean, sd = model.predict([[3.0], [6.0]], return_std=True)
    print(f"mean {mean.round(2)}, sd {sd.round(2)}, from {len(model.coreset_)} points instead of {len(y)}")

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    plot_posterior(model, X, y, figure.add_subplot())
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "first_fit.png", dpi=100)
    print(f"picture: {folder / 'first_fit.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
