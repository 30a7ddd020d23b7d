"""`gaps`: how far the bound is from log p(y), and the posterior from the exact one, while training."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from cvgp.errors import FactorizationError
from experiments.divergences import jeffreys, jensen_shannon_marginals
from experiments.figures import label, line_style, page_grid, shared_legend
from experiments.markdown import markdown_table, mean_and_error, number
from experiments.paper.methods import ExactGP, Prediction, Start, plain_start
from experiments.paper.study import (
    Plan,
    Results,
    Scope,
    Study,
    build,
    chosen_records,
    product_keys,
    recipe_of,
    split_of,
    with_rates,
)
from experiments.splits import Split
from experiments.store import Key, Outcome, Store

PRIOR_ROWS = 1000
"""The fixed kernel and noise maximize the exact marginal likelihood of this many training rows."""
TEST_ROWS = 400
PRIOR = ("lengthscale", "outputscale", "noise")
LOOKS = 16
SMALL = 50
"""The size at which PPGPR is drawn; the others are drawn at every size."""
OBJECTIVE = "objective"
"""What chooses a learning rate here: every system's own objective, since bounds are compared."""


def _keys(plan: Plan, store: Store) -> list[Key]:
    pairs = [(method, size) for method in plan.methods for size in plan.sizes if method != "PPGPR" or size == SMALL]
    wanted = pairs if plan.preset.name != "smoke" else [(method, plan.sizes[0]) for method in plan.methods]
    return with_rates(plan, store, [k for k in product_keys(plan) if (k["method"], k["size"]) in wanted], OBJECTIVE)


def fixed_prior(split: Split, key: Key) -> tuple[Start, ExactGP]:
    """The kernel and noise that every system keeps, with the exact posterior under them."""
    seed, recipe = int(key["fold"] or 0), replace(recipe_of(key), patience=None, full_batch="lbfgs")
    rows = np.random.default_rng(seed).permutation(len(split.y))[:PRIOR_ROWS]
    learned = ExactGP(recipe=recipe, seed=seed).fit(split.x[rows], split.y[rows])
    start = plain_start(split.x, split.y, int(key["size"] or 1), seed=seed)
    start = Start(learned.prior_kernel, learned.noise, start.coreset)
    return start, ExactGP(recipe=recipe, seed=seed, learn_prior=False).fit(split.x, split.y, start=start)


def _run(key: Key) -> Outcome:
    split = split_of(key)
    start, exact = fixed_prior(split, key)
    x_test = split.x_test[:TEST_ROWS]
    truth, log_marginal = exact.predict(x_test, joint=True), exact.bound()
    model = build(key, learn_prior=False)
    length = recipe_of(key).num_steps(len(split.y))
    looks = {0} | {round(s) for s in np.geomspace(1, length, LOOKS)}
    seen: dict[int, tuple[float, float, float]] = {}

    def look(step: int) -> None:
        if step in looks:
            found = model.predict(x_test, joint=True)
            seen[step] = ((log_marginal - model.bound()) / len(split.y), *divergences(truth, found))

    model.fit(split.x, split.y, validation=split.validation, start=start, on_step=look)
    order = sorted(seen)
    gap, jeffreys, jensen_shannon = np.array([seen[s] for s in order]).T
    scales = start.kernel.base_kernel.lengthscale.detach().numpy().reshape(-1)
    return Outcome(
        {
            "gap": gap[-1],
            "jeffreys": None if np.isnan(jeffreys[-1]) else jeffreys[-1],
            "jensen_shannon": jensen_shannon[-1],
            OBJECTIVE: model.bound() / len(split.y),
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


def _table(results: Results) -> str:
    rows = []
    for dataset in results.values("dataset"):
        for size in results.values("size"):
            for method in results.values("method"):
                found = chosen_records(results, OBJECTIVE, dataset=dataset, method=method, size=size)
                if found:
                    names = ("gap", "jeffreys", "jensen_shannon", "log_marginal")
                    cells = [mean_and_error([r.number(n) for r in found], ".4f") for n in names]
                    prior = [mean_and_error([r.number(n) for r in found], ".3g") for n in PRIOR]
                    rate = number(float(found[0].task["learning_rate"] or 0.0), "g")
                    rows.append([dataset, label(method, size), *cells, rate, *prior, str(len(found))])
    header = ["set", "system", "log p(y) - bound", "Jeffreys", "Jensen-Shannon", "log p(y)", "learning rate"]
    header += [*PRIOR, "folds"]
    note = (
        "At the end of training, in nats per point, with the same fixed kernel and noise for every system. PPGPR's "
        "objective is not a bound, so its first column may be negative."
    )
    return "\n\n".join([markdown_table(header, rows, num_text=2), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    return {
        "gaps": _draw(results, ("SVGP", "CVGP")),
        "gaps_all": _draw(results, ("SVGP", "PPGPR", "CVGP")),
    }


def _draw(results: Results, methods: tuple[str, ...]) -> Any:
    titles = {
        "gap": "log p(y) - bound",
        "jeffreys": "Jeffreys",
        "jensen_shannon": "Jensen-Shannon",
    }
    datasets = results.values("dataset")
    figure, axes = page_grid(3, len(datasets), 1.5, sharex="col")
    for column, dataset in enumerate(datasets):
        for size in results.values("size"):
            for method in methods:
                found = chosen_records(results, OBJECTIVE, dataset=dataset, method=method, size=size)
                style = line_style(method) | {"ms": 3, "lw": 1.1} | ({} if size == SMALL else {"mfc": "white"})
                for record in found[:1]:
                    arrays = results.arrays(record)
                    for row, name in enumerate(titles):
                        axes[row][column].plot(arrays["step"] + 1, arrays[name], label=label(method, size), **style)
        axes[0][column].set_title(dataset)
        axes[2][column].set_xlabel("steps + 1")
        for row in range(3):
            axes[row][column].set_xscale("log")
            axes[row][column].grid(alpha=0.3)
            axes[row][column].margins(y=0.1)
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
        Scope(("wine", "skillcraft", "parkinsons", "bike"), METHODS, (50, 200), folds=3),
        Scope(("synthetic1",), METHODS, (8,), folds=1),
        _keys,
        _run,
        _table,
        _figures,
        "Distance from the exact GP over training on the first fold, in nats per row, lower is better: of the bound "
        "(top), of the joint predictive (middle) and of the posterior of f (bottom). Filled marks are M = 50.",
    ),
)
