"""`density2d`: where pseudo-inputs lie on synthetic 4 and 5, beside the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cvgp.paper.baselines import METHODS
from cvgp.paper.experiments.experiment import Defaults, Experiment, Results, build, rows_of
from cvgp.paper.experiments.posterior1d import quick_keys
from cvgp.paper.figures import STYLES, grid
from cvgp.paper.markdown import markdown_table, mean_and_error
from cvgp.paper.protocol import Preset
from cvgp.paper.scores import score
from cvgp.paper.splits import fold
from cvgp.paper.store import Key, Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

RESOLUTION = 80
MARGIN = 0.25
BANDWIDTH = 0.2
"""Of every density, in standard deviations of the data: one for all, so that what differs is the points."""


def _defaults(preset: Preset) -> Defaults:
    methods = ("SparseGP", "SVGP", "PPGPR", "CVGP", "RandomCVGP")
    if preset.name == "smoke":
        return Defaults(("synthetic5",), methods, (8,), folds=1)
    return Defaults(("synthetic4", "synthetic5"), methods, (100,))


def _run(key: Key) -> Outcome:
    split = fold(str(key["dataset"]), int(key["fold"] or 0), rows_of(key))
    model = build(key).fit(split.x, split.y, validation=split.validation)
    inducing = model.inducing()
    arrays = {"data": split.x, "points": inducing.X}
    if inducing.weight is not None:
        arrays["weight"] = inducing.weight
    grid_points = _grid(split.x)
    target = density(split.x, None, grid_points)
    distance = total_variation(target, density(inducing.X, inducing.weight, grid_points))
    unweighted = total_variation(target, density(inducing.X, None, grid_points))
    return Outcome(
        {**score(model, split.x_test, split.y_test), "total_variation": distance, "unweighted": unweighted},
        {name: np.asarray(a, dtype=np.float32) for name, a in arrays.items()},
    )


def _grid(data: Array) -> Array:
    """Points [RESOLUTION^2, 2] over the data and a margin around them."""
    low, high = data.min(axis=0), data.max(axis=0)
    margin = MARGIN * (high - low)
    sides = [np.linspace(a, b, RESOLUTION) for a, b in zip(low - margin, high + margin, strict=True)]
    return np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)


def density(points: Array, weight: Array | None, where: Array) -> Array:
    """A kernel density estimate with an isotropic Gaussian of the fixed bandwidth, at `where`."""
    # SciPy scales its bandwidth by the covariance of the points, which differs from system to system.
    squares = np.sum((where[:, None, :] - points[None, :, :]) ** 2, axis=-1)
    shares = np.ones(len(points)) if weight is None else weight
    values = np.exp(-0.5 * squares / BANDWIDTH**2) @ (shares / shares.sum())
    return np.asarray(values / (2.0 * np.pi * BANDWIDTH**2))


def total_variation(p: Array, q: Array) -> float:
    """Half the integral of |p - q| over the grid: 0 for equal densities, 1 for disjoint ones."""
    outside = abs(1.0 - q.sum() / max(p.sum(), 1e-300))  # mass of q that lies off the grid
    return float(min(0.5 * (np.abs(p - q).sum() / p.sum() + outside), 1.0))


def _table(results: Results) -> str:
    columns = {
        "distance from the data's density": "total_variation",
        "without the weights": "unweighted",
        "RMSE": "rmse",
        "log-likelihood": "log_likelihood",
    }
    rows = []
    for dataset in results.values("dataset"):
        for method in METHODS:
            found = results.where(dataset=dataset, method=method)
            if found:
                cells = [mean_and_error([r.number(c) for r in found]) for c in columns.values()]
                rows.append([dataset, method, *cells])
    note = (
        f"Distance: total variation between kernel densities of bandwidth {BANDWIDTH:g} in standardised inputs, of the "
        "(for CVGP and RandomCVGP: weighted) points and of the training inputs; 0 is equal, 1 disjoint."
    )
    return "\n\n".join([markdown_table(["set", "system", *columns], rows, num_text=2), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Figure]:
    methods = [m for m in STYLES if m in results.values("method")]
    datasets, folds = results.values("dataset"), sorted(results.values("fold"))
    made = {"density2d": _panels(results, [(d, 0) for d in datasets], methods)}
    if len(folds) > 1:
        for dataset in datasets:
            made[f"density2d_{dataset}"] = _panels(results, [(dataset, f) for f in folds], methods)
    return made


def _panels(results: Results, rows: list[tuple[str, int]], methods: list[str]) -> Figure:
    figure, axes = grid(len(rows), len(methods) + 1, size=(2.3, 2.2), sharex="row", sharey="row")
    for row, (dataset, number) in enumerate(rows):
        for column, method in enumerate(methods):
            found = results.where(dataset=dataset, method=method, fold=number)
            if found:
                arrays = results.arrays(found[-1])
                where = _grid(arrays["data"])
                if column == 0:
                    _contours(axes[row][0], arrays["data"], None, where, arrays["data"])
                _contours(axes[row][column + 1], arrays["points"], arrays.get("weight"), where, arrays["points"])
        axes[row][0].set_ylabel(f"{dataset}, fold {number}")
    for ax, title in zip(axes[0], ["data", *methods], strict=True):
        ax.set_title(title)
    return figure


def _contours(ax: Axes, points: Array, weight: Array | None, where: Array, shown: Any) -> None:
    values = density(points.astype(np.float64), weight, where).reshape(RESOLUTION, RESOLUTION)
    sides = where.reshape(RESOLUTION, RESOLUTION, 2)
    ax.contourf(sides[..., 0], sides[..., 1], values, levels=12, cmap="cividis")
    ax.scatter(shown[:, 0], shown[:, 1], s=1.5, color="white", lw=0, alpha=0.7, rasterized=True)
    ax.set(
        xlim=(where[:, 0].min(), where[:, 0].max()), ylim=(where[:, 1].min(), where[:, 1].max()), xticks=[], yticks=[]
    )


EXPERIMENT = Experiment(
    "density2d", "where pseudo-inputs lie on synthetic 4 and 5", _defaults, quick_keys, _run, _table, _figures
)
