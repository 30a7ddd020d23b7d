"""Which columns matter: Friedman's function of five columns, beside three that do nothing.

Run it with ``python examples/importance.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Compare total Sobol indices with those that are known."""
    rng = np.random.default_rng(7)
    X = rng.uniform(size=(500, 8))
    y = (
        10 * np.sin(np.pi * X[:, 0] * X[:, 1])
        + 20 * (X[:, 2] - 0.5) ** 2
        + 10 * X[:, 3]
        + 5 * X[:, 4]
        + rng.normal(size=500)
    )
    model = CVGPRegressor(kernel="rbf", input_warp="identity", noise="constant", random_state=0).fit(X, y)
    found = model.sobol_indices()
    known = [0.27, 0.27, 0.09, 0.35, 0.09, 0.0, 0.0, 0.0]
    print("found", found.total.round(2).tolist())
    print("known", known)

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    ax = figure.add_subplot()
    places = np.arange(8)
    ax.bar(places - 0.2, found.total, 0.4, yerr=2 * found.total_error, label="found, ± 2 standard errors")
    ax.bar(places + 0.2, known, 0.4, label="known")
    ax.set(xticks=places, xticklabels=[f"x{i}" for i in places], ylabel="share of the variance that needs it")
    ax.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "importance.png", dpi=100)
    print(f"picture: {folder / 'importance.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
