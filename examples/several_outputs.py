"""Two outputs in one model: they share a kernel and a coreset, and each has noise of its own.

Run it with ``python examples/several_outputs.py [FOLDER]``; the picture lands in FOLDER (``demo`` by default).
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from cvgp import CVGPRegressor


def main(folder: Path) -> None:
    """Fit an accurate and a noisy sensor, the second of which was off for a while."""
    rng = np.random.default_rng(5)
    t = np.sort(rng.uniform(0, 10.0, (300, 1)), axis=0)
    truth = np.c_[np.sin(t[:, 0]), np.cos(t[:, 0])]
    Y = truth + [0.03, 0.5] * rng.normal(size=(300, 2))
    Y[(t[:, 0] > 4.0) & (t[:, 0] < 6.5), 1] = np.nan  # the second sensor was off
    model = CVGPRegressor(noise="constant", missing_targets=True, random_state=0).fit(t, Y)
    grid = np.linspace(0, 10.0, 300)[:, None]
    mean, sd = model.predict(grid, return_std=True)
    _, f_sd = model.predict(grid, return_std=True, include_noise=False)
    print(f"predictions have the shape {mean.shape}; noise sd {np.sqrt(model.noise_variance_).round(2)}")

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    names = ("accurate sensor", "noisy sensor, off from 4 to 6.5")
    for output, (axes, name) in enumerate(zip(figure.subplots(1, 2, sharey=True), names, strict=True)):
        center, color = mean[:, output], f"C{output}"
        for width, alpha, label in ((sd, 0.2, "90 %, new observation"), (f_sd, 0.45, "90 %, function")):
            low, high = center - 1.645 * width[:, output], center + 1.645 * width[:, output]
            axes.fill_between(grid[:, 0], low, high, color=color, alpha=alpha, lw=0, label=label)
        axes.plot(grid[:, 0], center, color=color)
        axes.plot(t[:, 0], Y[:, output], ".", color="0.3", ms=2.5)
        axes.set(xlabel="time", title=name, ylim=(-2.6, 2.9))
        axes.legend(loc="upper center", fontsize=8, ncols=2)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "several_outputs.png", dpi=100)
    print(f"picture: {folder / 'several_outputs.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
