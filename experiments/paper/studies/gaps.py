"""`gaps`: how far the bound is from log p(y), and the posterior from the exact one, while training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cvgp.errors import FactorizationError
from experiments.divergences import jeffreys, jensen_shannon_marginals
from experiments.figures import grid, label, line_style, shared_legend
from experiments.markdown import markdown_table, number
from experiments.paper.methods import ExactGP, Prediction, Start, common_start
from experiments.paper.study import Plan, Results, Scope, Study, build, product_keys, recipe_of, split_of
from experiments.splits import Split
from experiments.store import Key, Outcome, Record, Store

PRIOR_ROWS = 1000
"""The fixed kernel and noise maximise the exact marginal likelihood of this many training rows."""
TEST_ROWS = 400
LOOKS = 16


def _keys(plan: Plan, store: Store) -> list[Key]:
    # Bounds are compared, so that everything runs in float64 with the same small jitter.
    rates = plan.preset.learning_rates
    return [key | {"dtype": "float64"} for rate in rates for key in product_keys(plan, learning_rate=rate)]


def fixed_prior(split: Split, key: Key) -> tuple[Start, ExactGP]:
    """The kernel and noise that every system keeps, with the exact posterior under them."""
    seed, recipe = int(key["fold"] or 0), replace(recipe_of(key), patience=None, full_batch="lbfgs")
    rows = np.random.default_rng(seed).permutation(len(split.y))[:PRIOR_ROWS]
    learned = ExactGP(recipe=recipe, seed=seed).fit(split.x[rows], split.y[rows])
    start = common_start(split.x, split.y, int(key["size"] or 1), seed=seed)
    start = Start(learned.prior_kernel, learned.noise, start.coreset)
    return start, ExactGP(recipe=recipe, seed=seed, learn_prior=False).fit(split.x, split.y, start=start)


def _run(key: Key) -> Outcome:
    split = split_of(key)
    start, exact = fixed_prior(split, key)
    x_test = split.x_test[:TEST_ROWS]
    truth, log_marginal = exact.predict(x_test, joint=True), exact.bound()
    recipe = replace(recipe_of(key), patience=None)
    model = build(key, learn_prior=False, recipe=recipe)
    length = recipe.num_steps(len(split.y))
    looks = {0} | {round(s) for s in np.geomspace(1, length, LOOKS)}
    seen: dict[int, tuple[float, float, float]] = {}

    def look(step: int) -> None:
        if step in looks:
            found = model.predict(x_test, joint=True)
            seen[step] = ((log_marginal - model.bound()) / len(split.y), *divergences(truth, found))

    model.fit(split.x, split.y, start=start, on_step=look)
    order = sorted(seen)
    gap, jeffreys, jensen_shannon = np.array([seen[s] for s in order]).T
    scales = start.kernel.base_kernel.lengthscale.detach().numpy().reshape(-1)
    return Outcome(
        {
            "gap": gap[-1],
            "jeffreys": None if np.isnan(jeffreys[-1]) else jeffreys[-1],
            "jensen_shannon": jensen_shannon[-1],
            "objective": model.bound() / len(split.y),
            "log_marginal": log_marginal / len(split.y),
            "lengthscale": float(scales[0]),
            "outputscale": float(start.kernel.outputscale.item()),
            "noise": start.noise,
        },
        {"step": np.array(order), "gap": gap, "jeffreys": jeffreys, "jensen_shannon": jensen_shannon},
    )


def divergences(truth: Prediction, found: Prediction) -> tuple[float, float]:
    """Jeffreys of the joint predictive of y per point, and the mean Jensen-Shannon of the marginals of f.

    The joint is taken with the noise: without it, the covariances of an RBF kernel are singular in floating point, and
    their divergence is that of the rounding.
    """
    assert truth.f_covariance is not None
    assert found.f_covariance is not None
    floor = 1e-12
    marginal = jensen_shannon_marginals(
        truth.mean, np.sqrt(truth.f_var + floor), found.mean, np.sqrt(found.f_var + floor)
    )
    n = len(truth.mean)
    S0, S1 = (0.5 * (p.f_covariance + p.f_covariance.T) + p.noise * np.eye(n) for p in (truth, found))  # type: ignore[operator,union-attr]
    try:
        joint = jeffreys(truth.mean, S0, found.mean, S1) / n
    except FactorizationError:
        joint = float("nan")
    return joint, float(marginal.mean())


def _best(results: Results, dataset: Any, method: Any, size: Any) -> Record | None:
    """Of the learning rates, the one whose own objective ended highest."""
    found = results.where(dataset=dataset, method=method, size=size, fold=0)
    return max(found, key=lambda r: r.number("objective"), default=None)


def _table(results: Results) -> str:
    rows = []
    for dataset in results.values("dataset"):
        for size in results.values("size"):
            for method in results.values("method"):
                r = _best(results, dataset, method, size)
                if r is not None:
                    cells = [number(r.number(n), ".4f") for n in ("gap", "jeffreys", "jensen_shannon", "log_marginal")]
                    prior = [number(r.number(n), ".3g") for n in ("lengthscale", "outputscale", "noise")]
                    rate = number(float(r.task["learning_rate"] or 0.0), "g")
                    rows.append([dataset, label(method, size), *cells, rate, *prior])
    header = ["set", "system", "log p(y) - bound", "Jeffreys", "Jensen-Shannon", "log p(y)", "learning rate"]
    header += ["lengthscale", "outputscale", "noise"]
    note = (
        "At the end of training, in nats per point, with the kernel and noise fixed at the last three columns for "
        "every system. PPGPR's objective is no bound, so its first column may be negative."
    )
    return "\n\n".join([markdown_table(header, rows, num_text=2), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    return {
        "gaps": _draw(results, ("SVGP", "CVGP")),
        "gaps_all": _draw(results, ("SVGP", "PPGPR", "CVGP")),
    }


def _draw(results: Results, methods: tuple[str, ...]) -> Any:
    titles = {
        "gap": "log p(y) - bound, nats per point",
        "jeffreys": "Jeffreys, nats per point",
        "jensen_shannon": "Jensen-Shannon",
    }
    datasets = results.values("dataset")
    figure, axes = grid(3, len(datasets), size=(3.6, 2.4), sharex="col")
    for column, dataset in enumerate(datasets):
        for size in results.values("size"):
            for method in methods:
                record = _best(results, dataset, method, size)
                if record is None:
                    continue
                arrays = results.arrays(record)
                for row, name in enumerate(titles):
                    values = arrays[name]
                    axes[row][column].plot(arrays["step"] + 1, values, label=label(method, size), **line_style(method))
        axes[0][column].set_title(dataset)
        axes[2][column].set_xlabel("steps + 1")
        for row in range(3):
            axes[row][column].set_xscale("log")
            axes[row][column].grid(alpha=0.3)
            if row or "PPGPR" not in methods:
                axes[row][column].set_yscale("log")
            else:
                axes[row][column].set_yscale("symlog", linthresh=0.1)
    for row, title in enumerate(titles.values()):
        axes[row][0].set_ylabel(title)
    shared_legend(figure, list(axes.flat))
    return figure


METHODS = ("SVGP", "PPGPR", "CVGP")
STUDIES = (
    Study(
        "gaps",
        "log p(y) minus the bound, and the divergence from the exact posterior, while training",
        Scope(("wine", "skillcraft", "parkinsons"), METHODS, (50,), folds=1),
        Scope(("synthetic1",), METHODS, (8,), folds=1),
        _keys,
        _run,
        _table,
        _figures,
    ),
)
