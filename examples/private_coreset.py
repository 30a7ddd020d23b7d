"""The coreset of a fit has training rows among its points; that of a private fit has none.

Run it with ``python examples/private_coreset.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Fit the same rows with and without private=True, and draw both coresets."""
    rng = np.random.default_rng(1)
    X = np.r_[
        rng.normal([-1.0, 0.0], 0.6, (300, 2)), rng.normal([1.5, 0.5], 0.8, (297, 2)), [[4.5, 3], [-4, 2.5], [4, -3]]
    ]
    y = np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.normal(size=600)
    X_new = np.r_[rng.normal([-1.0, 0.0], 0.6, (1000, 2)), rng.normal([1.5, 0.5], 0.8, (1000, 2))]
    f_new = np.sin(2.0 * X_new[:, 0]) * np.cos(X_new[:, 1])

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, private in zip(axes, (False, True), strict=True):
        model = CVGPRegressor(n_neighbors=0, private=private, random_state=0).fit(X, y)
        points = model.coreset_.X
        is_row = (np.abs(points[:, None] - X[None]).max(axis=2) < 1e-9).any(axis=1)
        rmse = np.sqrt(np.mean((model.predict(X_new) - f_new) ** 2))
        print(f"private={private}: {is_row.sum()} of {len(points)} points are rows, RMSE {rmse:.3f}")
        ax.plot(*X.T, ".", color="silver", ms=3, zorder=0, label="rows")
        ax.plot(*points[~is_row].T, "o", color="C0", ms=5, label="points")
        ax.plot(*points[is_row].T, "o", color="C3", ms=5, label="points that are rows")
        ax.set(title=f"private={private}: {is_row.sum()} of {len(points)} points are rows", xlabel="x0")
    axes[0].set_ylabel("x1")
    axes[0].legend(loc="lower left")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "private_coreset.png", dpi=100)
    print(f"picture: {folder / 'private_coreset.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
