"""Three places, three models, no data sent: their coresets merge into one model.

Run it with ``python examples/merged_shards.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import cvgp


def main(folder: Path) -> None:
    """Fit each shard alone, merge the models and draw them."""
    rng = np.random.default_rng(6)
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    ax = figure.add_subplot()
    models = []
    for place, (low, high) in enumerate([(0.0, 2.2), (2.0, 4.2), (4.0, 6.0)]):
        X = rng.uniform(low, high, (120, 1))
        y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=120)
        models.append(cvgp.CVGPRegressor(n_coreset=8, n_neighbors=0, noise="constant", random_state=0).fit(X, y))
        ax.plot(X[:, 0], y, ".", ms=3, alpha=0.4, color=f"C{place}", label=f"rows of place {place + 1}")

    merged = cvgp.merge(models)
    grid = np.linspace(-0.5, 6.5, 200)[:, None]
    mean, sd = merged.predict(grid, return_std=True)
    alone = models[0].predict(grid)
    print(f"{[len(model.coreset_) for model in models]} points became {len(merged.coreset_)}")
    ax.fill_between(grid[:, 0], mean - 2 * sd, mean + 2 * sd, color="grey", alpha=0.3)
    ax.plot(grid[:, 0], mean, color="black", label="merged, ± 2 sd")
    ax.plot(grid[:, 0], alone, "--", color="C0", label="place 1 alone")
    ax.plot(merged.coreset_.X[:, 0], merged.coreset_.y, "o", mfc="none", color="black", ms=7, label="merged coreset")
    ax.set(xlabel="x", ylabel="y", ylim=(-2, 2))
    ax.legend(ncols=3, loc="lower center", fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "merged_shards.png", dpi=100)
    print(f"picture: {folder / 'merged_shards.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
