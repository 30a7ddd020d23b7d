"""The course of a fit: the bound rises, and a callback may look on or end it.

Run it with ``python examples/training.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor, TrainingOptions
from cvgp.fitting.monitor import FitEvent
from cvgp.plots import plot_training


def main(folder: Path) -> None:
    """Fit by Adam and by L-BFGS, and draw the bound of both."""
    rng = np.random.default_rng(12)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.sin(3.0 * X[:, 0]) * X[:, 1] + 0.2 * rng.normal(size=400)
    seen: list[FitEvent] = []

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for ax, solver in zip(figure.subplots(1, 2), ("adam", "lbfgs"), strict=True):
        model = CVGPRegressor(
            n_coreset=30, noise="constant", random_state=0, training=TrainingOptions(solver=solver, max_iter=100)
        )
        model.set_params(training__callbacks=[seen.append]).fit(X, y)
        plot_training(model, ax).set_ylabel("bound, nats per row")
        print(f"{solver}: {model.elbo_ / len(y):.2f} nats per row after {model.n_iter_} iterations")
    print(f"callbacks were told of {len(seen)} iterations")

    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "training.png", dpi=100)
    print(f"picture: {folder / 'training.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
