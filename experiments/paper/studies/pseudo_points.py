"""`density2d`: where pseudo-inputs lie on synthetic 4 and 5; `weights`: the learned weights of coresets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import SYNTHETIC
from experiments.figures import STYLES, grid
from experiments.paper.study import Results, Scope, Study, build, quick_keys, split_of
from experiments.scores import score
from experiments.store import Key, Outcome

Array = NDArray[np.float64]

RESOLUTION = 80
MARGIN = 0.25
BANDWIDTH = 0.2
"""Of every density, in standard deviations of the data: one for all, so that what differs is the points."""
NEGLIGIBLE = 0.01
"""A weight below this share of N / M counts as none."""
CORESETS = ("CVGP", "RandomCVGP")
SYSTEMS = ("SparseGP", "SVGP", "PPGPR", *CORESETS)


def _run_density(key: Key) -> Outcome:
    split = split_of(key)
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


def _density_table(results: Results) -> str:
    columns = {
        "distance from the data's density": ("total_variation", ".3f"),
        "without the weights": ("unweighted", ".3f"),
        "RMSE": ("rmse", ".3f"),
        "log-likelihood": ("log_likelihood", ".3f"),
    }
    note = (
        f"Distance: total variation between kernel densities of bandwidth {BANDWIDTH:g} in standardised inputs, of the "
        "(for CVGP and RandomCVGP: weighted) points and of the training inputs; 0 is equal, 1 disjoint."
    )
    return "\n\n".join([results.by_method(columns), note, results.origin()])


def _density_figures(results: Results) -> Mapping[str, Any]:
    methods = [m for m in STYLES if m in results.values("method")]
    datasets, folds = results.values("dataset"), sorted(results.values("fold"))
    made = {"density2d": _panels(results, [(d, 0) for d in datasets], methods)}
    if len(folds) > 1:
        for dataset in datasets:
            made[f"density2d_{dataset}"] = _panels(results, [(dataset, f) for f in folds], methods)
    return made


def _panels(results: Results, rows: list[tuple[str, int]], methods: list[str]) -> Any:
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


def _contours(ax: Any, points: Array, weight: Array | None, where: Array, shown: Any) -> None:
    values = density(points.astype(np.float64), weight, where).reshape(RESOLUTION, RESOLUTION)
    sides = where.reshape(RESOLUTION, RESOLUTION, 2)
    ax.contourf(sides[..., 0], sides[..., 1], values, levels=12, cmap="cividis")
    ax.scatter(shown[:, 0], shown[:, 1], s=1.5, color="white", lw=0, alpha=0.7, rasterized=True)
    ax.set(
        xlim=(where[:, 0].min(), where[:, 0].max()), ylim=(where[:, 1].min(), where[:, 1].max()), xticks=[], yticks=[]
    )


def _run_weights(key: Key) -> Outcome:
    split = split_of(key)
    model = build(key).fit(split.x, split.y, validation=split.validation)
    beta = model.inducing().weight
    assert beta is not None, "only coresets are asked"
    share = len(split.y) / len(beta)
    return Outcome(
        {
            "negligible": float(np.mean(beta < NEGLIGIBLE * share)),
            "smallest": float(beta.min()),
            "median": float(np.median(beta)),
            "largest": float(beta.max()),
            "total_over_rows": float(beta.sum() / len(split.y)),
            "effective_size": float(beta.sum() ** 2 / np.sum(beta**2)),
        },
        {"beta": beta.astype(np.float32), "share": np.array(share)},
    )


def _weights_table(results: Results) -> str:
    columns = {
        f"share below {NEGLIGIBLE:g} N / M": ("negligible", ".3f"),
        "smallest": ("smallest", ".2g"),
        "median": ("median", ".2g"),
        "largest": ("largest", ".3g"),
        "sum / N": ("total_over_rows", ".2f"),
        "effective size": ("effective_size", ".1f"),
    }
    return "\n\n".join([results.by_method(columns), results.origin()])


def _weights_figures(results: Results) -> Mapping[str, Any]:
    datasets = results.values("dataset")
    figure, axes = grid(len(CORESETS), len(datasets), size=(2.6, 2.1), sharex="col")
    for row, method in enumerate(CORESETS):
        for column, dataset in enumerate(datasets):
            found = results.where(dataset=dataset, method=method)
            beta = np.concatenate([results.arrays(r)["beta"] for r in found]) if found else np.zeros(0)
            ax = axes[row][column]
            # Weights span many orders of magnitude; what is smaller than the first bin is counted in it.
            ax.hist(np.clip(beta, 1e-3, None), bins=np.geomspace(1e-3, 300.0, 36), color=STYLES[method].color)
            if found:
                ax.axvline(float(results.arrays(found[0])["share"]), color="black", lw=0.9, ls="--", label="N / M")
            ax.set_xscale("log")
            if row == 0:
                ax.set_title(dataset)
            else:
                ax.set_xlabel("weight")
        axes[row][0].set_ylabel(f"{method}\npoints, all folds")
    axes[0][0].legend(fontsize=8)
    return {"weights": figure}


STUDIES = (
    Study(
        "density2d",
        "where pseudo-inputs lie on synthetic 4 and 5",
        Scope(("synthetic4", "synthetic5"), SYSTEMS, (100,)),
        Scope(("synthetic5",), SYSTEMS, (8,), folds=1),
        quick_keys,
        _run_density,
        _density_table,
        _density_figures,
    ),
    Study(
        "weights",
        "histograms of the learned weights",
        Scope(tuple(SYNTHETIC), CORESETS, (100,)),
        Scope(("synthetic1",), CORESETS, (8,), folds=1),
        quick_keys,
        _run_weights,
        _weights_table,
        _weights_figures,
    ),
)
