"""Activities of molecules from their fingerprints: the Tanimoto kernel beside distances between the same bits.

The fingerprints are made up: families of molecules share a scaffold, and each molecule changes a few of its bits. The
activity is a sum of the effects of bits and of pairs of them. New molecules are of the same families. Distances suit a
sum over bits, so Matern 3/2 is somewhat more accurate here; the intervals of both cover nine of ten molecules.

Run it with ``python examples/molecules.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor

BITS, FAMILIES = 256, 10


def make_molecules(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fingerprints [count, BITS] of molecules, and their activities."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    scaffolds = fixed.random((FAMILIES, BITS)) < 0.12
    effects, pairs = fixed.normal(size=BITS), fixed.integers(BITS, size=(60, 2))
    bits = scaffolds[rng.integers(FAMILIES, size=count)] ^ (rng.random((count, BITS)) < 0.03)
    activity = bits @ effects + 1.5 * (bits[:, pairs[:, 0]] & bits[:, pairs[:, 1]]) @ fixed.normal(size=60)
    return bits.astype(float), activity + 0.5 * rng.normal(size=count)


def main(folder: Path) -> None:
    """Fit both models and draw."""
    X, y = make_molecules(300, seed=1)
    new, observed = make_molecules(150, seed=2)
    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, kernel in zip(figure.subplots(1, 2, sharex=True, sharey=True), ("tanimoto", "matern32"), strict=True):
        model = CVGPRegressor(kernel=kernel, ard=False, noise="constant", random_state=0).fit(X, y)
        mean = model.predict(new)
        low, high = model.predict_interval(new, level=0.9).T
        inside, error = np.mean((low <= observed) & (observed <= high)), np.sqrt(np.mean((mean - observed) ** 2))
        print(f"{kernel}: RMSE {error:.2f}, {inside:.0%} within the 90 % interval, sd of y {observed.std():.2f}")
        axes.errorbar(observed, mean, yerr=[mean - low, high - mean], fmt="o", ms=3, lw=0.5, label=f"RMSE {error:.2f}")
        ends = [observed.min(), observed.max()]
        axes.plot(ends, ends, color="k", lw=0.8)
        axes.set(title=f'kernel="{kernel}"', xlabel="observed activity")
        axes.legend()
    figure.axes[0].set_ylabel("predicted activity, with 90 % intervals")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "molecules.png", dpi=100)
    print(f"picture: {folder / 'molecules.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
