"""Synthetic 1 to 5: what posteriors look like (`posterior1d`), where points lie (`density2d`), their `weights`.

The three figures draw the same fits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import SYNTHETIC
from experiments.figures import STYLES, page_grid, shared_legend
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
from experiments.store import Key, Metrics, Outcome

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
BAND = "#56B4E9"
NEGLIGIBLE = 0.01
"""A weight below this share of N / M counts as none."""
LIGHTEST = 1e-3
"""Where the histogram of weights begins."""
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
            made[f"posterior1d_{dataset}"] = _posterior_panels(results, _folds(results, dataset), methods)
    return made


def _posterior_panels(results: Results, cases: list[tuple[str, int]], methods: list[str]) -> Any:
    """A row for each system, a column for each data set and fold."""
    figure, axes = page_grid(len(methods), len(cases), 1.15, sharex="col", sharey="col")
    records = {
        (row, column): found[-1]
        for column, (dataset, number) in enumerate(cases)
        for row, method in enumerate(methods)
        if (found := [r for r in chosen_records(results, dataset=dataset, method=method) if r.task["fold"] == number])
    }
    arrays = {place: results.arrays(record) for place, record in records.items()}
    heaviest = max((float(a["weight"].max()) for a in arrays.values() if "weight" in a), default=1.0)
    points = None
    for place, found in arrays.items():
        points = (
            _panel(axes[place], found, str(records[place].task["dataset"]), heaviest, 24 / max(len(cases), 2)) or points
        )
    for column, (dataset, number) in enumerate(cases):
        axes[0][column].set_title(f"{dataset}\nfold {number}")
    for row, method in enumerate(methods):
        axes[row][0].set_ylabel(method)
    if points is not None:
        figure.colorbar(points, ax=axes[:, -1].tolist(), label="weight of a pseudo-point", aspect=60, pad=0.02)
    shared_legend(figure, list(axes.flat), columns=4)
    return figure


def _panel(ax: Any, arrays: Mapping[str, Any], dataset: str, heaviest: float, area: float) -> Any:
    """Draw a posterior; returns the weighted points if there are any. One color serves all systems and the legend."""
    x, mean = arrays["x"], arrays["mean"]
    ax.scatter(arrays["x_train"], arrays["y_train"], s=2, color="0.45", lw=0, label="data", rasterized=True)
    for name, alpha in (("y", 0.2), ("f", 0.45)):
        low, high = (mean + sign * 2 * arrays[f"{name}_sd"] for sign in (-1, 1))
        ax.fill_between(x, low, high, color=BAND, alpha=alpha, lw=0, label=f"±2 sd of {name}")
    truth = SYNTHETIC[dataset].truth(x[:, None].astype(np.float64))
    ax.plot(x, truth, color="#D55E00", lw=0.9, ls="--", label="truth")
    ax.plot(x, mean, color="black", lw=0.9, label="mean")
    ax.set_xlim(x[0], x[-1])
    if "points" not in arrays:
        return None
    inside = (arrays["points"][:, 0] >= x[0]) & (arrays["points"][:, 0] <= x[-1])
    places, outputs = arrays["points"][inside, 0], arrays["outputs"][inside]
    marks: dict[str, Any] = {"s": area, "ec": "black", "lw": 0.3, "zorder": 3}
    if "weight" not in arrays:
        ax.scatter(places, outputs, color="white", label="inducing points", **marks)
        return None
    weight = arrays["weight"][inside]
    order = np.argsort(weight)  # the heavy ones on top
    marks |= {"cmap": "viridis", "vmin": 0.0, "vmax": heaviest, "label": "weighted pseudo-points"}
    return ax.scatter(places[order], outputs[order], c=weight[order], **marks)


def _folds(results: Results, dataset: str) -> list[tuple[str, int]]:
    """The folds of a data set that were run."""
    return [(dataset, number) for number in sorted(results.values("fold", results.where(dataset=dataset)))]


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
    datasets, folds = _in(results, TWO_D), sorted(results.values("fold"))
    known = results.values("method", [record for dataset in datasets for record in results.where(dataset=dataset)])
    methods = [method for method in SYSTEMS if method in known]
    made = {"density2d": _density_panels(results, [(d, 0) for d in datasets], methods)}
    if len(folds) > 1:
        for dataset in datasets:
            made[f"density2d_{dataset}"] = _density_panels(results, _folds(results, dataset), methods)
    return made


def _density_panels(results: Results, rows: list[tuple[str, int]], methods: list[str]) -> Any:
    figure, axes = page_grid(len(rows), len(methods) + 1, 1.25, sharex="row", sharey="row")
    for row, (dataset, number) in enumerate(rows):
        drawn: dict[str, tuple[Array, Array]] = {}  # points and density by title
        for method in methods:
            found = [r for r in chosen_records(results, dataset=dataset, method=method) if r.task["fold"] == number]
            if found:
                arrays = results.arrays(found[-1])
                where = _grid(arrays["data"])
                drawn.setdefault("data", (arrays["data"], density(arrays["data"], None, where)))
                drawn[method] = arrays["points"], density(arrays["points"], arrays.get("weight"), where)
        levels = np.linspace(0.0, max((values.max() for _, values in drawn.values()), default=1.0), 13)
        for ax, title in zip(axes[row], ["data", *methods], strict=True):
            if title in drawn:
                filled = _contours(ax, *drawn[title], where, levels)
            if row == 0:
                ax.set_title(title)
        if drawn:
            figure.colorbar(filled, ax=axes[row].tolist(), ticks=levels[::6], format="%.2f", label="density", pad=0.01)
        axes[row][0].set_ylabel(f"{dataset}, fold {number}")
    return figure


def _contours(ax: Any, points: Array, values: Array, where: Array, levels: Array) -> Any:
    sides = where.reshape(RESOLUTION, RESOLUTION, 2)
    filled = ax.contourf(
        sides[..., 0], sides[..., 1], values.reshape(RESOLUTION, RESOLUTION), levels=levels, cmap="cividis"
    )
    alpha = min(0.8, 80.0 / len(points))  # rows of data would hide their density
    ax.scatter(points[:, 0], points[:, 1], s=1.5, color="white", lw=0, alpha=alpha, rasterized=True)
    ax.set(
        xlim=(where[:, 0].min(), where[:, 0].max()), ylim=(where[:, 1].min(), where[:, 1].max()), xticks=[], yticks=[]
    )
    return filled


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
    figure, axes = page_grid(len(CORESETS), len(datasets), 1.5, sharex=True, sharey=True)
    for row, method in enumerate(CORESETS):
        for ax, dataset in zip(axes[row], datasets, strict=True):
            found = chosen_records(results, dataset=dataset, method=method)
            beta = np.concatenate([results.arrays(r)["weight"] for r in found]) if found else np.zeros(0)
            # Weights span many orders of magnitude; what is smaller than the first bin is counted in it.
            bins, shares = np.geomspace(LIGHTEST, 300.0, 36), np.full(len(beta), 1.0 / max(len(beta), 1))
            ax.hist(np.clip(beta, LIGHTEST, None), bins=bins, weights=shares, color=STYLES[method].color)
            if found:
                share = float(np.sum(beta)) / (len(beta) * found[0].number("total_over_rows"))
                ax.axvline(share, color="black", lw=0.9, ls="--", label="N / M")
            ax.set_xscale("log")
            ax.set_xticks([LIGHTEST, 0.1, 10.0], [f"≤{LIGHTEST:g}", "0.1", "10"])
            ax.set_xticks([], minor=True)
            if row == 0:
                ax.set_title(dataset)
            else:
                ax.set_xlabel("weight")
        axes[row][0].set_ylabel(f"{method},\nshare of points")
    shared_legend(figure, list(axes.flat))
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
        "Posteriors on the first fold, one system a row; bands are two standard deviations of f (dark) and of y "
        "(pale). The closer to the top row, the exact GP, the better; beyond the data, bands should be those of the "
        "prior.",
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
        "Density of the training inputs (left) and of each system's points (white), weighted where they have weights, "
        "on one scale in a row. The more a panel resembles the left one, the better its points summarize the inputs.",
        store="synthetic",
    ),
    Study(
        "weights",
        "histograms of the learned weights",
        Scope(tuple(SYNTHETIC), CORESETS, (100,)),
        Scope(("synthetic3",), CORESETS, (8,), folds=1),
        tuned_keys,
        _run,
        _weights_table,
        _weights_figures,
        "Learned weights around the equal share N / M (dashed). Points that were dropped would be in the leftmost bin.",
        store="synthetic",
    ),
)
