"""`compression`: other learners trained on a weighted coreset, against random rows and k-means of the same size."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import RidgeCV

from cvgp.coreset import Coreset
from experiments.figures import page_grid, shared_legend
from experiments.markdown import markdown_table, mean_and_error
from experiments.paper.methods import plain_start
from experiments.paper.study import Results, Scope, Study, build, chosen_records, fold_scores, split_of, tuned_keys
from experiments.store import Key, Metrics, Outcome

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]

NOISES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""Noise variances that the exact GP chooses from, by its marginal likelihood."""
MOST_EXACT = 2000
"""Rows of the exact GP where it learns from all: a random choice, which takes a minute."""
SOURCES = {"coreset": ("#0072B2", "o"), "k-means": ("#E69F00", "s"), "random rows": ("#7F7F7F", "^")}
"""Colors and markers."""


def _ridge(x: Array, y: Array, weight: Array) -> Predict:
    return RidgeCV(np.geomspace(1e-3, 1e3, 13)).fit(x, y, sample_weight=weight).predict


def _boosting(x: Array, y: Array, weight: Array) -> Predict:
    model = HistGradientBoostingRegressor(min_samples_leaf=min(20, max(len(x) // 20, 2)), random_state=0)
    return model.fit(x, y, sample_weight=weight).predict


def _exact_gp(x: Array, y: Array, weight: Array) -> Predict:
    """Each row has the noise of a mean of `weight` observations."""
    if len(x) > MOST_EXACT:
        chosen = np.random.default_rng(0).permutation(len(x))[:MOST_EXACT]
        x, y, weight = x[chosen], y[chosen], weight[chosen]
    kernel = ConstantKernel(1.0) * RBF(np.sqrt(x.shape[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of a scale at its limit, where the noise is far off
        models = [GaussianProcessRegressor(kernel, alpha=noise / weight).fit(x, y) for noise in NOISES]
    return max(models, key=lambda model: model.log_marginal_likelihood_value_).predict


LEARNERS = {"ridge": _ridge, "gradient boosting": _boosting, "exact GP": _exact_gp}


def _run(key: Key) -> Outcome:
    split, seed, size = split_of(key), int(key["fold"] or 0), int(key["size"] or 1)
    model = build(key).fit(split.x, split.y, validation=split.validation)
    inducing = model.inducing()
    assert inducing.weight is not None, "only coresets are asked"
    used = inducing.weight > 0.0
    rows = np.random.default_rng([seed, 11]).permutation(len(split.y))[:size]
    sources = {
        "coreset": Coreset(inducing.X[used], inducing.y[used], inducing.weight[used]),
        "k-means": plain_start(split.x, split.y, size, seed=seed).coreset,
        "random rows": Coreset(split.x[rows], split.y[rows], np.full(len(rows), len(split.y) / len(rows))),
        "all rows": Coreset(split.x, split.y, np.ones(len(split.y))),
    }
    metrics: Metrics = fold_scores(model, split)
    for source, data in sources.items():
        for name, learn in LEARNERS.items():
            predicted = learn(data.X, data.y, data.beta)(split.x_test)
            metrics[f"{source}: {name}"] = float(np.sqrt(np.mean((predicted - split.y_test) ** 2)))
    return Outcome(metrics)


def _table(results: Results) -> str:
    rows = []
    for dataset in results.values("dataset"):
        for size in sorted(results.values("size")):
            found = chosen_records(results, dataset=dataset, size=size)
            for name in LEARNERS if found else ():
                cells = [mean_and_error([r.number(f"{s}: {name}") for r in found]) for s in (*SOURCES, "all rows")]
                rows.append([dataset, str(size), name, *cells])
    note = (
        "RMSE on test rows. The weights of the coreset, and the sizes of clusters, count as sample weights. The exact "
        f"GP learns from {MOST_EXACT} random rows in place of all where there are more."
    )
    table = markdown_table(["set", "M", "learner", *SOURCES, "all rows"], rows, num_text=3)
    return "\n\n".join([table, note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    datasets, sizes = results.values("dataset"), sorted(results.values("size"))
    figure, axes = page_grid(len(sizes), len(datasets), 1.7, sharex=True, sharey="col")
    for row, size in enumerate(sizes):
        for ax, dataset in zip(axes[row], datasets, strict=True):
            found = chosen_records(results, dataset=dataset, size=size)
            for place, name in enumerate(LEARNERS if found else ()):
                for offset, (source, (color, marker)) in enumerate(SOURCES.items()):
                    values = [r.number(f"{source}: {name}") for r in found]
                    x = place + 0.25 * (offset - 1)
                    ax.plot([x, x], [min(values), max(values)], color=color, lw=1.0)
                    ax.plot(x, np.mean(values), color=color, marker=marker, ms=4, ls="none", label=source)
                level = np.mean([r.number(f"all rows: {name}") for r in found])
                ax.plot([place - 0.4, place + 0.4], [level, level], color="black", lw=1.0, label="all rows")
            ax.set_xticks(range(len(LEARNERS)), [name.replace(" ", "\n") for name in LEARNERS])
            ax.grid(axis="y", alpha=0.3)
            if row == 0:
                ax.set_title(dataset)
        axes[row][0].set_ylabel(f"RMSE, M = {size}")
    shared_legend(figure, list(axes.flat))
    return {"compression": figure}


STUDIES = (
    Study(
        "compression",
        "other learners trained on the coreset, against k-means and random rows",
        Scope(("wine", "skillcraft", "parkinsons", "bike"), ("CVGP",), (50, 200), folds=3),
        Scope(("synthetic4",), ("CVGP",), (12,), folds=1),
        tuned_keys,
        _run,
        _table,
        _figures,
        "RMSE of other learners trained on M weighted points; marks are means, lines span the folds. The closer to the "
        "black line, the learner trained on all rows, the less is lost.",
    ),
)
