"""A stream that drifts: batches are learned without another fit, and the density of each tells how well it fits.

Run it with ``python examples/stream.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from copy import deepcopy
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Follow inputs that move to places that the first rows do not reach."""
    rng = np.random.default_rng(3)

    def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
        X = rng.uniform(0, 3, (60, 1)) + 0.25 * number
        return X, np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=60)

    first = CVGPRegressor(n_coreset=12, kernel="rbf", noise="constant", n_neighbors=0, random_state=0).fit(*batch(0))
    models = {"fixed points": first, "adapt=True": deepcopy(first)}
    for number in range(1, 25):
        X, y = batch(number)
        models["fixed points"].partial_fit(X, y)
        models["adapt=True"].forget(0.9).partial_fit(X, y, adapt=True)

    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = np.linspace(0, 10, 300)[:, None]
    left.plot(X[:, 0], y, ".", color="grey", ms=3)
    for (title, model), color in zip(models.items(), ("tab:red", "tab:blue"), strict=True):
        mean, sd = model.predict(grid, return_std=True)
        left.fill_between(grid[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.2, color=color)
        left.plot(grid[:, 0], mean, color=color)
        left.plot(
            model.coreset_.X[:, 0], np.full(len(model.coreset_), -3.2 if title[0] == "f" else -3.5), "|", color=color
        )
        right.plot(model.batch_log_densities_, color=color, label=title)
        print(f"{title}: {model.batch_log_densities_[-5:].mean():.2f} nats per new row at the end")
    left.set(title="after the last batch", xlabel="x", ylim=(-4, 3))
    right.set(title="log density of each batch before it is learned", xlabel="batch", ylabel="nats per row")
    right.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "stream.png", dpi=100)
    print(f"picture: {folder / 'stream.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
