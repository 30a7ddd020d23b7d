"""`evolution`: RMSE and log-likelihood over epochs, and whether PPGPR overfits."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from experiments.figures import grid, label, line_style, shared_legend
from experiments.markdown import markdown_table, mean_and_error
from experiments.paper.study import Plan, Results, Scope, Study, build, product_keys, recipe_of, split_of
from experiments.scores import score
from experiments.store import Key, Metrics, Outcome, Store

EPOCHS = {"paper": 10_000, "fair": 1600, "smoke": 8}
JANKOWIAK_EPOCHS = 400
"""How long PPGPR's authors trained it."""
LEARNING_RATE = 0.01
LOOKS = 40


def _keys(plan: Plan, store: Store) -> list[Key]:
    own: Key = {"steps": None, "epochs": EPOCHS[plan.preset.name], "schedule": "constant"}
    return [key | own for key in product_keys(plan, learning_rate=LEARNING_RATE)]


def _run(key: Key) -> Outcome:
    split = split_of(key)
    recipe = replace(recipe_of(key), patience=None)  # all epochs are looked at, whatever the validation rows say
    model = build(key, recipe=recipe)
    per_epoch, epochs = recipe.steps_per_epoch(len(split.y)), int(key["epochs"] or 1)
    looks = {round(e) for e in np.geomspace(1, epochs, LOOKS)} | {min(JANKOWIAK_EPOCHS, epochs)}
    seen: dict[int, dict[str, Metrics]] = {}

    def look(step: int) -> None:
        epoch, rest = divmod(step, per_epoch)
        if rest == 0 and epoch in looks:
            parts = {"train": (split.x, split.y), "validation": split.validation, "test": (split.x_test, split.y_test)}
            seen[epoch] = {name: score(model, *rows) for name, rows in parts.items()}

    model.fit(split.x, split.y, on_step=look)
    order = sorted(seen)
    arrays: dict[str, Any] = {"epoch": np.array(order)}
    for part in ("train", "validation", "test"):
        for name in ("rmse", "log_likelihood"):
            arrays[f"{part}_{name}"] = np.array([seen[e][part][name] for e in order], dtype=np.float32)
    test = arrays["test_log_likelihood"]
    at_400 = order.index(min(JANKOWIAK_EPOCHS, epochs))
    return Outcome(
        {
            "rmse_400": float(arrays["test_rmse"][at_400]),
            "rmse_end": float(arrays["test_rmse"][-1]),
            "log_likelihood_400": float(test[at_400]),
            "log_likelihood_best": float(test.max()),
            "best_epoch": order[int(test.argmax())],
            "log_likelihood_end": float(test[-1]),
            "train_log_likelihood_end": float(arrays["train_log_likelihood"][-1]),
        },
        arrays,
    )


def _table(results: Results) -> str:
    columns = {
        "RMSE at 400 epochs": "rmse_400",
        "RMSE at the end": "rmse_end",
        "log-likelihood at 400": "log_likelihood_400",
        "best": "log_likelihood_best",
        "at epoch": "best_epoch",
        "at the end": "log_likelihood_end",
        "on training rows": "train_log_likelihood_end",
    }
    rows = []
    for dataset in results.values("dataset"):
        for method in results.values("method"):
            for size in results.values("size"):
                found = results.where(dataset=dataset, method=method, size=size)
                cells = [
                    mean_and_error([r.number(m) for r in found], ".0f" if m == "best_epoch" else ".3f")
                    for m in columns.values()
                ]
                if found:
                    rows.append([dataset, label(method, size), *cells])
    epochs = max(results.values("epochs"))
    note = f"Adam at a constant {LEARNING_RATE:g}, {epochs} epochs, no early stopping; test rows unless said otherwise."
    return "\n\n".join([markdown_table(["set", "system", *columns], rows, num_text=2), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    datasets = results.values("dataset")
    figure, axes = grid(2, len(datasets), size=(3.6, 2.7), sharex="col")
    for column, dataset in enumerate(datasets):
        for record in results.where(dataset=dataset, fold=0):
            arrays, method = results.arrays(record), str(record.task["method"])
            style = line_style(method) | {"marker": None}
            for row, name in enumerate(("rmse", "log_likelihood")):
                axes[row][column].plot(arrays["epoch"], arrays[f"test_{name}"], label=f"{method}, test", **style)
                faint = style | {"lw": 0.8, "alpha": 0.6}
                axes[row][column].plot(arrays["epoch"], arrays[f"train_{name}"], label=f"{method}, training", **faint)
        axes[0][column].set_title(dataset)
        axes[1][column].set_xlabel("epoch")
        for row in (0, 1):
            axes[row][column].set_xscale("log")
            axes[row][column].axvline(JANKOWIAK_EPOCHS, color="0.6", lw=0.8, ls=":")
            axes[row][column].grid(alpha=0.3)
        _cut_below(axes[1][column])
    axes[0][0].set_ylabel("RMSE")
    axes[1][0].set_ylabel("mean log-likelihood")
    shared_legend(figure, list(axes.flat), columns=3)
    return {"evolution": figure}


def _cut_below(ax: Any) -> None:
    """The first epochs may lie far below everything of interest."""
    values = np.concatenate(
        [np.asarray(line.get_ydata())[-LOOKS // 2 :] for line in ax.lines if len(line.get_ydata()) > 2]
    )
    low, high = np.quantile(values, 0.02), values.max()
    ax.set_ylim(low - 0.15 * (high - low), high + 0.08 * (high - low))


METHODS = ("SVGP", "PPGPR", "CVGP")
STUDIES = (
    Study(
        "evolution",
        "scores over epochs, and PPGPR's overfitting",
        Scope(("wine", "skillcraft", "parkinsons"), METHODS, (50,), folds=1),
        Scope(("synthetic3",), METHODS, (8,), folds=1),
        _keys,
        _run,
        _table,
        _figures,
    ),
)
