"""`interpolation`: whether a posterior returns to the prior as noise is added to the targets."""

from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np

from experiments.figures import STYLES, label, line_style, page_grid, shared_legend
from experiments.markdown import markdown_table, mean_and_error
from experiments.paper.study import (
    VALIDATION,
    Plan,
    Results,
    Scope,
    Study,
    build,
    chosen_records,
    product_keys,
    split_of,
    with_rates,
)
from experiments.scores import score
from experiments.store import Key, Outcome, Store

LEVELS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Standard deviations of the added noise, in those of the target."""


def _keys(plan: Plan, store: Store) -> list[Key]:
    levels = LEVELS[::3] if plan.preset.name == "smoke" else LEVELS
    return with_rates(plan, store, [key | {"added_sd": level} for level in levels for key in product_keys(plan)])


def _run(key: Key) -> Outcome:
    split = split_of(key)
    rng = np.random.default_rng([int(key["fold"] or 0), 7])
    added = float(key["added_sd"] or 0.0)
    y = split.y + added * rng.standard_normal(len(split.y))
    validation = split.x_validation, split.y_validation + added * rng.standard_normal(len(split.y_validation))
    model = build(key).fit(split.x, y, validation=validation)
    chosen_by = score(model, *validation)["log_likelihood"]
    found = model.predict(split.x_test)
    return Outcome(
        {
            VALIDATION: chosen_by,
            "kl": model.kl(),
            "noise_sd": float(np.sqrt(model.noise)),
            "mean_size": float(np.sqrt(np.mean(found.mean**2))),
            "rmse": float(np.sqrt(np.mean((found.mean - split.y_test) ** 2))),
        }
    )


def _table(results: Results) -> str:
    levels = sorted(results.values("added_sd"))
    rows = []
    for dataset in results.values("dataset"):
        for method in results.values("method"):
            for size in results.values("size", results.where(method=method)):
                for name, title in (("kl", "KL, nats"), ("noise_sd", "learned noise sd")):
                    what = {"dataset": dataset, "method": method, "size": size}
                    by_level = [chosen_records(results, **what, added_sd=s) for s in levels]
                    cells = [mean_and_error([r.number(name) for r in found], ".3g") for found in by_level]
                    rows.append([dataset, label(method, size), title, *cells])
    header = ["set", "system", "", *(f"added sd {level:g}" for level in levels)]
    note = (
        "KL of the posterior from the prior at the system's own inducing inputs; targets have a standard deviation of "
        "1 before noise is added."
    )
    return "\n\n".join([markdown_table(header, rows, num_text=3), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    datasets = results.values("dataset")
    figure, axes = page_grid(len(datasets), 2, 2.2)
    for number, dataset in enumerate(datasets):
        for ax, name, title in zip(
            axes[number],
            ("kl", "noise_sd"),
            ("KL(posterior || prior), nats", "learned noise sd"),
            strict=True,
        ):
            for method in STYLES:
                for size in results.values("size", results.where(dataset=dataset, method=method)):
                    what = {"dataset": dataset, "method": method, "size": size}
                    by_level = {
                        s: chosen_records(results, **what, added_sd=s) for s in sorted(results.values("added_sd"))
                    }
                    known = {s: mean(r.number(name) for r in found) for s, found in by_level.items() if found}
                    ax.plot(known.keys(), known.values(), label=label(method, size), **line_style(method))
            ax.set(xlabel="sd of the added noise", ylabel=title, title=dataset, yscale="log")
            ax.set_xscale("symlog", linthresh=0.5)
            ticks = sorted(results.values("added_sd"))
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks], minor=False)
            ax.xaxis.minorticks_off()
            ax.set_xlim(-0.15, 1.2 * ticks[-1])
            ax.grid(alpha=0.3)
    shared_legend(figure, list(axes.flat))
    return {"interpolation": figure}


METHODS = ("SVGP", "PPGPR", "CVGP")
STUDIES = (
    Study(
        "interpolation",
        "KL of the posterior from the prior as noise is added to the targets",
        Scope(("bike",), METHODS, (50,), folds=3),
        Scope(("synthetic4",), METHODS, (8,), folds=1),
        _keys,
        _run,
        _table,
        _figures,
        "As noise is added to the targets, a posterior should return to the prior: its divergence (left) should fall "
        "towards zero while the learned noise (right) rises with the added one.",
    ),
)
