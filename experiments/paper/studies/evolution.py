"""`evolution`: RMSE and PPLL over epochs, and whether PPGPR overfits."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.figures import label, line_style, page_grid, shared_legend
from experiments.markdown import markdown_table, mean_and_error
from experiments.paper.study import (
    VALIDATION,
    Results,
    Scope,
    Study,
    build,
    chosen_records,
    recipe_of,
    split_of,
    tuned_keys,
)
from experiments.scores import score
from experiments.store import Key, Metrics, Outcome

JANKOWIAK_EPOCHS = 400
"""How long PPGPR's authors trained it."""
LOOKS = 40
SCORES = {"rmse": "RMSE", "joint_log_likelihood": "PPLL per row"}
"""What the paper plots."""


def _run(key: Key) -> Outcome:
    split, recipe = split_of(key), recipe_of(key)
    model = build(key)
    per_epoch = recipe.steps_per_epoch(len(split.y))
    epochs = recipe.num_steps(len(split.y)) // per_epoch
    looks = {round(e) for e in np.geomspace(1, epochs, LOOKS)} | {min(JANKOWIAK_EPOCHS, epochs)}
    parts = {"train": (split.x, split.y), "validation": split.validation, "test": (split.x_test, split.y_test)}
    seen: dict[int, dict[str, Metrics]] = {}

    def look(step: int) -> None:
        epoch, rest = divmod(step, per_epoch)
        if rest == 0 and epoch in looks:
            seen[epoch] = {name: score(model, *rows, joint=name == "test") for name, rows in parts.items()}

    model.fit(split.x, split.y, validation=split.validation, on_step=look)
    order = sorted(seen)
    arrays: dict[str, Any] = {"epoch": np.array(order)}
    for part in parts:
        for name in ("rmse", "log_likelihood", "joint_log_likelihood"):
            if name in seen[order[0]][part]:
                arrays[f"{part}_{name}"] = np.array([seen[e][part][name] for e in order], dtype=np.float64)
    joint, at_400 = arrays["test_joint_log_likelihood"], order.index(min(JANKOWIAK_EPOCHS, epochs, order[-1]))
    best = int(np.nanargmax(joint))
    return Outcome(
        {
            VALIDATION: float(arrays["validation_log_likelihood"][-1]),
            "rmse_400": float(arrays["test_rmse"][at_400]),
            "rmse_end": float(arrays["test_rmse"][-1]),
            "rmse_at_best": float(arrays["test_rmse"][best]),
            "joint_400": _number(joint[at_400]),
            "joint_best": _number(joint[best]),
            "best_epoch": order[best],
            "joint_end": _number(joint[-1]),
            "last_epoch": order[-1],
        },
        arrays,
    )


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _table(results: Results) -> str:
    columns = {
        "RMSE at 400 epochs": "rmse_400",
        "at the end": "rmse_end",
        "PPLL at 400": "joint_400",
        "best": "joint_best",
        "at epoch": "best_epoch",
        "PPLL at the end": "joint_end",
        "last epoch": "last_epoch",
    }
    rows = []
    for dataset in results.values("dataset"):
        for method in results.values("method"):
            for size in results.values("size"):
                found = chosen_records(results, dataset=dataset, method=method, size=size)
                cells = [
                    mean_and_error([r.number(m) for r in found], ".0f" if m.endswith("epoch") else ".3f")
                    for m in columns.values()
                ]
                if found:
                    rows.append([dataset, label(method, size), *cells, str(len(found))])
    note = "Test rows; PPLL is the joint log density of all test rows divided by their number."
    return "\n\n".join([markdown_table(["set", "system", *columns, "folds"], rows, num_text=2), note, results.origin()])


def _figures(results: Results) -> Mapping[str, Any]:
    datasets = results.values("dataset")
    figure, axes = page_grid(2, len(datasets), 1.7, sharex="col")
    for column, dataset in enumerate(datasets):
        for method in results.values("method"):
            for number, record in enumerate(chosen_records(results, dataset=dataset, method=method)):
                arrays = results.arrays(record)
                first = {"alpha": 1.0, "label": method} if number == 0 else {"alpha": 0.35}
                style = line_style(method) | {"marker": None, "lw": 1.2} | first
                for row, name in enumerate(SCORES):
                    axes[row][column].plot(arrays["epoch"], arrays[f"test_{name}"], **style)
        axes[0][column].set_title(dataset)
        axes[1][column].set_xlabel("epoch")
        for row in (0, 1):
            axes[row][column].set_xscale("log")
            if axes[row][column].get_xlim()[1] > JANKOWIAK_EPOCHS:
                axes[row][column].axvline(JANKOWIAK_EPOCHS, color="0.4", lw=0.8, ls=":", label="400 epochs")
            axes[row][column].grid(alpha=0.3)
        _cut_below(axes[1][column])
    for row, title in enumerate(SCORES.values()):
        axes[row][0].set_ylabel(title)
    shared_legend(figure, list(axes.flat))
    return {"evolution": figure}


def _cut_below(ax: Any) -> None:
    """The first epochs may lie far below everything of interest."""
    values = np.concatenate(
        [np.asarray(line.get_ydata())[-LOOKS // 2 :] for line in ax.lines if len(line.get_ydata()) > 2]
    )
    values = values[np.isfinite(values)]
    low, high = np.quantile(values, 0.02), values.max()
    ax.set_ylim(low - 0.15 * (high - low), high + 0.08 * (high - low))


METHODS = ("SVGP", "PPGPR", "CVGP")
STUDIES = (
    Study(
        "evolution",
        "scores over epochs, and PPGPR's overfitting",
        Scope(("wine", "skillcraft", "parkinsons", "bike"), METHODS, (50,), folds=3),
        Scope(("synthetic3",), METHODS, (8,), folds=1),
        tuned_keys,
        _run,
        _table,
        _figures,
        "Scores of the test rows over epochs; pale lines are further folds. PPGPR overfits where its RMSE (top) still "
        "falls while its PPLL (bottom) turns down. PPGPR's authors stopped at the dotted line.",
    ),
)
