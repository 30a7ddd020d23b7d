"""Gross outliers in y are detected, and do not bend the function.

Run it with ``python examples/outliers.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Fit rows of which one in fifty is wrong, with and without the search for outliers."""
    rng = np.random.default_rng(1)
    X = np.sort(rng.uniform(0, 6, (300, 1)), axis=0)
    truth = np.sin(X[:, 0])
    y = truth + 0.1 * rng.normal(size=300)
    wrong = rng.choice(300, 6, replace=False)
    y[wrong] += rng.choice([-1.0, 1.0], 6) * rng.uniform(8, 15, 6)

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    ax = figure.add_subplot()
    ax.plot(X[:, 0], y, ".", color="grey", ms=4, label="observations")
    for noise in ("constant", "auto"):
        model = CVGPRegressor(noise=noise, random_state=0).fit(X, y)
        mean = model.predict(X)
        ax.plot(X[:, 0], mean, label=f'noise="{noise}"')
        error = np.sqrt(np.mean((mean - truth) ** 2))
        print(f"{noise}: error of the function {error:.2f}, share of outliers {model.outlier_share_:.1%}")
    # Six values lie far beyond the frame: triangles at its edge say where.
    ax.plot(X[wrong, 0], 2.8 * np.sign(y[wrong]), "^", color="tab:red", label="far outside")
    ax.set(xlabel="x", ylabel="y", ylim=(-3, 3))
    ax.legend()
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "outliers.png", dpi=100)
    print(f"picture: {folder / 'outliers.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
