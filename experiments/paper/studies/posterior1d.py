"""`posterior1d`: what the posteriors of all systems look like on synthetic 1, 2 and 3."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import SYNTHETIC
from experiments.figures import STYLES, grid
from experiments.markdown import markdown_table
from experiments.paper.methods import Inducing
from experiments.paper.study import Results, Scope, Study, build, cells, quick_keys, split_of
from experiments.scores import score
from experiments.splits import Split
from experiments.store import Key, Metrics, Outcome, Record

Array = NDArray[np.float64]

GRID = 220
BEYOND = 0.45
"""How far the grid reaches beyond the data on either side, as a share of their range."""
NOISY = (1.0, 2.0)
"""Where the paper looks at synthetic 3."""


def _run(key: Key) -> Outcome:
    dataset = str(key["dataset"])
    split = split_of(key)
    model = build(key).fit(split.x, split.y, validation=split.validation)
    back = split.scaling
    x_train = back.unscale_x(split.x)
    low, high = x_train.min(), x_train.max()
    reach = BEYOND * (high - low)
    points = np.linspace(low - reach, high + reach, GRID)[:, None]
    found = model.predict(back.scale_x(points))
    scale = float(back.y_scale[0])
    inducing = model.inducing()
    f_test = SYNTHETIC[dataset].truth(back.unscale_x(split.x_test))
    mean_test = back.unscale_y(model.predict(split.x_test).mean[:, None])[:, 0]
    arrays: dict[str, Any] = {
        "x": points[:, 0],
        "mean": back.unscale_y(found.mean[:, None])[:, 0],
        "f_sd": scale * found.f_sd,
        "y_sd": scale * found.y_sd,
        "x_train": x_train[:, 0],
        "y_train": back.unscale_y(split.y[:, None])[:, 0],
    }
    if key["method"] != "ExactGP":  # whose inducing points are the data
        arrays["x_inducing"] = back.unscale_x(inducing.X)[:, 0]
        arrays["y_inducing"] = back.unscale_y(inducing.y[:, None])[:, 0]
        if inducing.weight is not None:
            arrays["weight"] = inducing.weight
    metrics: Metrics = {
        **score(model, split.x_test, split.y_test),
        "rmse_to_truth": float(np.sqrt(np.mean((mean_test - f_test) ** 2))),
        "noise_sd": scale * float(np.sqrt(model.noise)),
        # Far from all data the function's sd should be the prior's.
        "sd_beyond_over_prior": float(max(found.f_sd[0], found.f_sd[-1]) / np.sqrt(_prior_variance(model))),
    }
    if dataset == "synthetic3" and inducing.weight is not None and key["method"] != "ExactGP":
        metrics |= _distance_of_heavy_points(split, inducing)
    return Outcome(metrics, {name: np.asarray(a, dtype=np.float32) for name, a in arrays.items()})


def _prior_variance(model: Any) -> float:
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


def _table(results: Results) -> str:
    columns = {
        "RMSE to y, standardised": ("rmse", ".3f"),
        "RMSE to f, units of y": ("rmse_to_truth", ".3f"),
        "log-likelihood, standardised": ("log_likelihood", ".3f"),
        "noise sd, units of y": ("noise_sd", ".3f"),
        "sd far from the data / prior sd": ("sd_beyond_over_prior", ".3f"),
    }
    parts = [results.by_method(columns)]
    if "synthetic3" in results.values("dataset"):
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
        found = results.where(dataset="synthetic3", method=method)
        if found:
            rows.append([method, *cells(found, columns)])
    return markdown_table(["system", *columns], rows, num_text=1)


def _figures(results: Results) -> Mapping[str, Any]:
    methods = [m for m in STYLES if m in results.values("method")]
    datasets = results.values("dataset")
    made = {"posterior1d": _panels(results, [(d, 0) for d in datasets], methods)}
    folds = sorted(results.values("fold"))
    if len(folds) > 1:
        for dataset in datasets:
            made[f"posterior1d_{dataset}"] = _panels(results, [(dataset, f) for f in folds], methods)
    return made


def _panels(results: Results, rows: list[tuple[str, int]], methods: list[str]) -> Any:
    """A row for each data set and fold, a column for each system."""
    figure, axes = grid(len(rows), len(methods), size=(3.0, 2.3), sharex="row", sharey="row")
    for row, (dataset, number) in enumerate(rows):
        points = None
        for column, method in enumerate(methods):
            found = results.where(dataset=dataset, method=method, fold=number)
            ax = axes[row][column]
            if found:
                points = _panel(ax, results, found[-1]) or points
            if row == 0:
                ax.set_title(method)
        y = np.concatenate([line.get_offsets()[:, 1] for line in axes[row][0].collections[:1]])
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
    if "x_inducing" not in arrays:
        return None
    where: dict[str, Any] = {"s": 14, "ec": "black", "lw": 0.4, "zorder": 3, "label": "inducing or pseudo-points"}
    if "weight" not in arrays:
        ax.scatter(arrays["x_inducing"], arrays["y_inducing"], color="white", **where)
        return None
    order = np.argsort(arrays["weight"])  # the heavy ones on top
    ax.set_xlim(x[0], x[-1])
    return ax.scatter(
        arrays["x_inducing"][order], arrays["y_inducing"][order], c=arrays["weight"][order], cmap="viridis", **where
    )


METHODS = ("ExactGP", "SparseGP", "SVGP", "PPGPR", "CVGP", "RandomCVGP")
STUDIES = (
    Study(
        "posterior1d",
        "the posteriors of all systems on synthetic 1 to 3",
        Scope(("synthetic1", "synthetic2", "synthetic3"), METHODS, (100,)),
        Scope(("synthetic3",), METHODS, (8,), folds=1),
        quick_keys,
        _run,
        _table,
        _figures,
    ),
)
