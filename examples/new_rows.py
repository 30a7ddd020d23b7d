"""New rows arrive: the model takes them in without another fit.

Run it with ``python examples/new_rows.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Condition a fitted model on rows from a place it has not seen."""
    rng = np.random.default_rng(11)
    X = rng.uniform(0, 4, (120, 1))
    y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=120)
    X_new = rng.uniform(4, 6, (25, 1))
    y_new = np.sin(2.0 * X_new[:, 0]) + 0.2 * rng.normal(size=25)
    before = CVGPRegressor(kernel="rbf", noise="constant", random_state=0).fit(X, y)
    after = before.condition(X_new, y_new)

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    grid = np.linspace(0, 7, 200)[:, None]
    for ax, model, title in zip(figure.subplots(1, 2, sharey=True), (before, after), ("before", "after"), strict=True):
        mean, sd = model.predict(grid, return_std=True, include_noise=False)
        ax.fill_between(grid[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.3)
        ax.plot(grid[:, 0], mean)
        ax.plot(X[:, 0], y, ".", color="grey", ms=3)
        if title == "after":
            ax.plot(X_new[:, 0], y_new, "x", color="tab:red", ms=4)
        ax.set(title=title, xlabel="x")
        print(f"{title}: sd of the function at x = 5 is {sd[np.argmin(abs(grid[:, 0] - 5))]:.2f}")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "new_rows.png", dpi=100)
    print(f"picture: {folder / 'new_rows.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
