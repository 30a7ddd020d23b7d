"""Three classes in the plane: the regions of each, which fade where the model has seen nothing.

Run it with ``python examples/decision_regions.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression

from cvgp import CVGPClassifier

COLORS = ("tab:blue", "tab:orange", "tab:green")


def spirals(num_rows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points on three arms of a spiral, and the arm of each."""
    arm = rng.integers(0, 3, num_rows)
    radius = rng.uniform(0.3, 2.0, num_rows)
    angle = 2 * np.pi * arm / 3 + 1.4 * radius + 0.22 * rng.normal(size=num_rows)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), arm


def main(folder: Path) -> None:
    """Fit both classifiers, and draw the classes with the strength of their probabilities."""
    rng = np.random.default_rng(0)
    X, y = spirals(400, rng)
    X_new, y_new = spirals(2000, rng)
    side = np.linspace(-6, 6, 160)
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    models = {"CVGPClassifier": CVGPClassifier(random_state=0), "Logistic regression": LogisticRegression()}
    colors = np.array([to_rgb(color) for color in COLORS])
    for ax, (name, model) in zip(figure.subplots(1, 2, sharey=True), models.items(), strict=True):
        p = model.fit(X, y).predict_proba(grid)
        # Equal probabilities are white, and a certain class has its full color.
        sure = (1.5 * p.max(axis=1) - 0.5)[:, None]
        image = sure * colors[p.argmax(axis=1)] + (1.0 - sure)
        ax.imshow(image.reshape(160, 160, 3), origin="lower", extent=(-6, 6, -6, 6))
        ax.scatter(*X.T, c=colors[y], s=7, edgecolor="black", lw=0.3)
        loss = -np.log(model.predict_proba(X_new)[np.arange(2000), y_new]).mean()
        ax.set(title=f"{name}: log loss {loss:.2f}", xlabel="x0", ylabel="x1")
        corner = model.predict_proba([[6.0, 6.0]]).max()
        print(f"{name}: log loss of new rows {loss:.3f}, the likeliest class in a corner has {corner:.0%}")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "decision_regions.png", dpi=100)
    print(f"picture: {folder / 'decision_regions.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
