"""Prices: intervals of a logarithm are skewed, and stay above zero.

Run it with ``python examples/skewed_target.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Fit y itself and its logarithm, and draw the 90 % intervals of both."""
    rng = np.random.default_rng(2)
    X = np.sort(rng.uniform(0, 5, (150, 1)), axis=0)
    y = np.exp(0.5 * X[:, 0] + 0.6 * rng.normal(size=150))

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for ax, target in zip(figure.subplots(1, 2, sharey=True), ("identity", "log"), strict=True):
        model = CVGPRegressor(target_transform=target, noise="constant", random_state=0).fit(X, y)
        low, high = model.predict_interval(X, level=0.9).T
        ax.plot(X[:, 0], y, ".", color="grey", ms=3)
        ax.fill_between(X[:, 0], low, high, alpha=0.3, label="90 % interval")
        ax.plot(X[:, 0], model.predict(X), label="mean")
        ax.axhline(0.0, color="black", lw=0.6)
        ax.set(title=f'target_transform="{target}"', xlabel="x")
        ax.legend(loc="upper left")
        print(f"{target}: mean log density {model.log_predictive_density(X, y).mean():.2f} nats per row")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "skewed_target.png", dpi=100)
    print(f"picture: {folder / 'skewed_target.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
