"""Synthetic 1 to 5: what posteriors look like (`posterior1d`), where points lie (`density2d`), their `weights`.

The three figures draw the same fits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import SYNTHETIC
from experiments.figures import STYLES, grid
from experiments.markdown import markdown_table
from experiments.paper.methods import Baseline, Inducing
from experiments.paper.study import (
    Results,
    Scope,
    Study,
    build,
    cells,
    chosen_records,
    fold_scores,
    split_of,
    tuned_keys,
)
from experiments.splits import Split
from experiments.store import Key, Metrics, Outcome, Record

Array = NDArray[np.float64]

GRID = 220
BEYOND = 0.45
"""How far the grid reaches beyond the data on either side, as a share of their range."""
NOISY = (1.0, 2.0)
"""Where the paper looks at synthetic 3."""
RESOLUTION = 80
MARGIN = 0.25
BANDWIDTH = 0.2
"""Of every density, in standard deviations of the data: one for all, so that what differs is the points."""
NEGLIGIBLE = 0.01
"""A weight below this share of N / M counts as none."""
CORESETS = ("CVGP", "RandomCVGP")
SYSTEMS = ("SparseGP", "SVGP", "PPGPR", *CORESETS)
ONE_D, TWO_D = ("synthetic1", "synthetic2", "synthetic3"), ("synthetic4", "synthetic5")


def _run(key: Key) -> Outcome:
    """Fit one system to one fold, and keep what the three figures draw."""
    split = split_of(key)
    model = build(key).fit(split.x, split.y, validation=split.validation)
    metrics = {**fold_scores(model, split), "noise_sd": float(split.scaling.y_scale[0]) * float(np.sqrt(model.noise))}
    arrays: dict[str, Any] = {}
    inducing = model.inducing()
    if key["method"] != "ExactGP":  # whose inducing points are the data
        arrays |= {"points": split.scaling.unscale_x(inducing.X)}
        arrays |= {"outputs": split.scaling.unscale_y(inducing.y[:, None])[:, 0]}
        if inducing.weight is not None:
            arrays["weight"] = inducing.weight
            metrics |= _weight_metrics(inducing.weight, len(split.y))
    if split.x.shape[1] == 1:
        found, posterior = _posterior(str(key["dataset"]), model, split)
        metrics, arrays = metrics | found, arrays | posterior
    elif key["method"] != "ExactGP":
        metrics |= _density_metrics(split.x, inducing)
        arrays["data"] = split.scaling.unscale_x(split.x)
    return Outcome(metrics, {name: np.asarray(a, dtype=np.float32) for name, a in arrays.items()})


def _weight_metrics(beta: Array, num_rows: int) -> Metrics:
    return {
        "negligible": float(np.mean(beta < NEGLIGIBLE * num_rows / len(beta))),
        "smallest": float(beta.min()),
        "median": float(np.median(beta)),
        "largest": float(beta.max()),
        "total_over_rows": float(beta.sum() / num_rows),
        "effective_size": float(beta.sum() ** 2 / np.sum(beta**2)),
    }


def _density_metrics(data: Array, inducing: Inducing) -> Metrics:
    where = _grid(data)
    target = density(data, None, where)
    return {
        "total_variation": total_variation(target, density(inducing.X, inducing.weight, where)),
        "unweighted": total_variation(target, density(inducing.X, None, where)),
    }


def _posterior(dataset: str, model: Baseline, split: Split) -> tuple[Metrics, dict[str, Any]]:
    """The posterior on a grid that reaches beyond the data, and its distance from the truth."""
    back, inducing = split.scaling, model.inducing()
    x_train = back.unscale_x(split.x)
    low, high = x_train.min(), x_train.max()
    reach = BEYOND * (high - low)
    points = np.linspace(low - reach, high + reach, GRID)[:, None]
    found, scale = model.predict(back.scale_x(points)), float(back.y_scale[0])
    f_test = SYNTHETIC[dataset].truth(back.unscale_x(split.x_test))
    mean_test = back.unscale_y(model.predict(split.x_test).mean[:, None])[:, 0]
    arrays = {
        "x": points[:, 0],
        "mean": back.unscale_y(found.mean[:, None])[:, 0],
        "f_sd": scale * found.f_sd,
        "y_sd": scale * found.y_sd,
        "x_train": x_train[:, 0],
        "y_train": back.unscale_y(split.y[:, None])[:, 0],
    }
    metrics: Metrics = {
        "rmse_to_truth": float(np.sqrt(np.mean((mean_test - f_test) ** 2))),
        # Far from all data the function's sd should be the prior's.
        "sd_beyond_over_prior": float(max(found.f_sd[0], found.f_sd[-1]) / np.sqrt(_prior_variance(model))),
    }
    if dataset == "synthetic3" and inducing.weight is not None and model.name != "ExactGP":
        metrics |= _distance_of_heavy_points(split, inducing)
    return metrics, arrays


def _prior_variance(model: Baseline) -> float:
    return float(model.prior_kernel.outputscale.item())


def _distance_of_heavy_points(split: Split, inducing: Inducing) -> Metrics:
    """How far pseudo-outputs above the median weight lie from f where synthetic 3 is noisy, in its own units."""
    assert inducing.weight is not None
    x = split.scaling.unscale_x(inducing.X)
    y = split.scaling.unscale_y(inducing.y[:, None])[:, 0]
    distance = np.abs(y - SYNTHETIC["synthetic3"].truth(x))
    heavy = inducing.weight > np.median(inducing.weight)
    noisy = (x[:, 0] > NOISY[0]) & (x[:, 0] < NOISY[1])
    quiet = (x[:, 0] > 0.0) & (x[:, 0] < NOISY[0])

    def mean(chosen: NDArray[np.bool_]) -> float | None:
        return float(distance[chosen].mean()) if chosen.any() else None

    x_data = split.scaling.unscale_x(split.x)
    data = np.abs(split.scaling.unscale_y(split.y[:, None])[:, 0] - SYNTHETIC["synthetic3"].truth(x_data))
    in_noise = (x_data[:, 0] > NOISY[0]) & (x_data[:, 0] < NOISY[1])
    return {
        "heavy_points_noisy": float((heavy & noisy).sum()),
        "heavy_distance_noisy": mean(heavy & noisy),
        "light_distance_noisy": mean(~heavy & noisy),
        "heavy_distance_quiet": mean(heavy & quiet),
        "data_distance_noisy": float(data[in_noise].mean()),
    }


def _posterior_table(results: Results) -> str:
    columns = {
        "RMSE to y, standardized": ("rmse", ".3f"),
        "RMSE to f, units of y": ("rmse_to_truth", ".3f"),
        "log-likelihood, standardized": ("log_likelihood", ".3f"),
        "noise sd, units of y": ("noise_sd", ".3f"),
        "sd far from the data / prior sd": ("sd_beyond_over_prior", ".3f"),
    }
    parts = [results.by_method(columns, ONE_D)]
    if "synthetic3" in _in(results, ONE_D):
        parts += [
            "Mean distance |y_c - f| on synthetic 3 in units of y, by weight (heavy: above the median) and place:",
            _far(results),
        ]
    return "\n\n".join([*parts, results.origin()])


def _far(results: Results) -> str:
    columns = {
        "heavy points in (1, 2)": ("heavy_points_noisy", ".2f"),
        "heavy, x in (1, 2)": ("heavy_distance_noisy", ".2f"),
        "light, x in (1, 2)": ("light_distance_noisy", ".2f"),
        "heavy, x in (0, 1)": ("heavy_distance_quiet", ".2f"),
        "data, x in (1, 2)": ("data_distance_noisy", ".2f"),
    }
    rows = []
    for method in ("CVGP", "RandomCVGP"):
        found = chosen_records(results, dataset="synthetic3", method=method)
        if found:
            rows.append([method, *cells(found, columns)])
    return markdown_table(["system", *columns], rows, num_text=1)


def _posterior_figures(results: Results) -> Mapping[str, Any]:
    methods = [m for m in STYLES if m in results.values("method")]
    datasets = _in(results, ONE_D)
    made = {"posterior1d": _posterior_panels(results, [(d, 0) for d in datasets], methods)}
    folds = sorted(results.values("fold"))
    if len(folds) > 1:
        for dataset in datasets:
            made[f"posterior1d_{dataset}"] = _posterior_panels(results, [(dataset, f) for f in folds], methods)
    return made


def _posterior_panels(results: Results, rows: list[tuple[str, int]], methods: list[str]) -> Any:
    """A row for each data set and fold, a column for each system."""
    figure, axes = grid(len(rows), len(methods), size=(3.0, 2.3), sharex="row", sharey="row")
    for row, (dataset, number) in enumerate(rows):
        points = None
        for column, method in enumerate(methods):
            found = [r for r in chosen_records(results, dataset=dataset, method=method) if r.task["fold"] == number]
            ax = axes[row][column]
            if found:
                points = _panel(ax, results, found[-1]) or points
            if row == 0:
                ax.set_title(method)
        y = np.concatenate([dots.get_offsets()[:, 1] for ax in axes[row] for dots in ax.collections[:1]])
        spread = y.max() - y.min()
        axes[row][0].set_ylim(y.min() - 0.25 * spread, y.max() + 0.25 * spread)
        axes[row][0].set_ylabel(f"{dataset}, fold {number}")
        if points is not None:
            figure.colorbar(points, ax=axes[row][-1], label="weight")
    handles, labels = axes[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    return figure


def _panel(ax: Any, results: Results, record: Record) -> Any:
    arrays, style = results.arrays(record), STYLES[str(record.task["method"])]
    x, mean = arrays["x"], arrays["mean"]
    ax.scatter(arrays["x_train"], arrays["y_train"], s=2, color="0.7", lw=0, label="data", rasterized=True)
    ax.fill_between(
        x, mean - 2 * arrays["y_sd"], mean + 2 * arrays["y_sd"], color=style.color, alpha=0.15, lw=0, label="±2 sd of y"
    )
    ax.fill_between(
        x, mean - 2 * arrays["f_sd"], mean + 2 * arrays["f_sd"], color=style.color, alpha=0.35, lw=0, label="±2 sd of f"
    )
    ax.plot(
        x,
        SYNTHETIC[str(record.task["dataset"])].truth(x[:, None].astype(np.float64)),
        color="#D00000",
        lw=0.9,
        ls="--",
        label="truth",
    )
    ax.plot(x, mean, color="black", lw=1.0, label="mean")
    if "points" not in arrays:
        return None
    where: dict[str, Any] = {"s": 14, "ec": "black", "lw": 0.4, "zorder": 3, "label": "inducing or pseudo-points"}
    if "weight" not in arrays:
        ax.scatter(arrays["points"][:, 0], arrays["outputs"], color="white", **where)
        return None
    order = np.argsort(arrays["weight"])  # the heavy ones on top
    ax.set_xlim(x[0], x[-1])
    return ax.scatter(
        arrays["points"][:, 0][order], arrays["outputs"][order], c=arrays["weight"][order], cmap="viridis", **where
    )


def _in(results: Results, names: tuple[str, ...]) -> list[str]:
    """The data sets of a figure that have results."""
    return [name for name in names if name in results.values("dataset")]


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
        f"Distance: total variation between kernel densities of bandwidth {BANDWIDTH:g} in standardized inputs, of the "
        "(for CVGP and RandomCVGP: weighted) points and of the training inputs; 0 is equal, 1 disjoint."
    )
    return "\n\n".join([results.by_method(columns, TWO_D), note, results.origin()])


def _density_figures(results: Results) -> Mapping[str, Any]:
    methods = [m for m in SYSTEMS if m in results.values("method")]
    datasets, folds = _in(results, TWO_D), sorted(results.values("fold"))
    made = {"density2d": _density_panels(results, [(d, 0) for d in datasets], methods)}
    if len(folds) > 1:
        for dataset in datasets:
            made[f"density2d_{dataset}"] = _density_panels(results, [(dataset, f) for f in folds], methods)
    return made


def _density_panels(results: Results, rows: list[tuple[str, int]], methods: list[str]) -> Any:
    figure, axes = grid(len(rows), len(methods) + 1, size=(2.3, 2.2), sharex="row", sharey="row")
    for row, (dataset, number) in enumerate(rows):
        for column, method in enumerate(methods):
            found = [r for r in chosen_records(results, dataset=dataset, method=method) if r.task["fold"] == number]
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


def _weights_table(results: Results) -> str:
    columns = {
        f"share below {NEGLIGIBLE:g} N / M": ("negligible", ".3f"),
        "smallest": ("smallest", ".2g"),
        "median": ("median", ".2g"),
        "largest": ("largest", ".3g"),
        "sum / N": ("total_over_rows", ".2f"),
        "effective size": ("effective_size", ".1f"),
    }
    return "\n\n".join([results.by_method(columns, methods=CORESETS), results.origin()])


def _weights_figures(results: Results) -> Mapping[str, Any]:
    datasets = results.values("dataset")
    figure, axes = grid(len(CORESETS), len(datasets), size=(2.6, 2.1), sharex="col")
    for row, method in enumerate(CORESETS):
        for column, dataset in enumerate(datasets):
            found = chosen_records(results, dataset=dataset, method=method)
            beta = np.concatenate([results.arrays(r)["weight"] for r in found]) if found else np.zeros(0)
            ax = axes[row][column]
            # Weights span many orders of magnitude; what is smaller than the first bin is counted in it.
            ax.hist(np.clip(beta, 1e-3, None), bins=np.geomspace(1e-3, 300.0, 36), color=STYLES[method].color)
            if found:
                share = float(np.sum(beta)) / (len(beta) * found[0].number("total_over_rows"))
                ax.axvline(share, color="black", lw=0.9, ls="--", label="N / M")
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
        "posterior1d",
        "the posteriors of all systems on synthetic 1 to 3",
        Scope(ONE_D, ("ExactGP", *SYSTEMS), (100,)),
        Scope(("synthetic3",), ("ExactGP", *SYSTEMS), (8,), folds=1),
        tuned_keys,
        _run,
        _posterior_table,
        _posterior_figures,
        store="synthetic",
    ),
    Study(
        "density2d",
        "where pseudo-inputs lie on synthetic 4 and 5",
        Scope(TWO_D, SYSTEMS, (100,)),
        Scope(("synthetic5",), SYSTEMS, (8,), folds=1),
        tuned_keys,
        _run,
        _density_table,
        _density_figures,
        store="synthetic",
    ),
    Study(
        "weights",
        "histograms of the learned weights",
        Scope(tuple(SYNTHETIC), CORESETS, (100,)),
        Scope(("synthetic1",), CORESETS, (8,), folds=1),
        tuned_keys,
        _run,
        _weights_table,
        _weights_figures,
        store="synthetic",
    ),
)
