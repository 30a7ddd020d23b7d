"""`weights`: the learned weights of coresets that started from k-means and from white noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cvgp.paper.datasets import SYNTHETIC_NAMES
from cvgp.paper.experiments.experiment import Defaults, Experiment, Results, build, rows_of
from cvgp.paper.experiments.posterior1d import quick_keys
from cvgp.paper.figures import STYLES, grid
from cvgp.paper.markdown import markdown_table, mean_and_error
from cvgp.paper.protocol import Preset
from cvgp.paper.splits import fold
from cvgp.paper.store import Key, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEGLIGIBLE = 0.01
"""A weight below this share of N / M counts as none."""
METHODS = ("CVGP", "RandomCVGP")


def _defaults(preset: Preset) -> Defaults:
    if preset.name == "smoke":
        return Defaults(("synthetic1",), METHODS, (8,), folds=1)
    return Defaults(SYNTHETIC_NAMES, METHODS, (100,))


def _run(key: Key) -> Outcome:
    split = fold(str(key["dataset"]), int(key["fold"] or 0), rows_of(key))
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


def _table(results: Results) -> str:
    columns = {
        f"share below {NEGLIGIBLE:g} N / M": ("negligible", ".3f"),
        "smallest": ("smallest", ".2g"),
        "median": ("median", ".2g"),
        "largest": ("largest", ".3g"),
        "sum / N": ("total_over_rows", ".2f"),
        "effective size": ("effective_size", ".1f"),
    }
    rows = []
    for dataset in results.values("dataset"):
        for method in METHODS:
            found = results.where(dataset=dataset, method=method)
            if found:
                cells = [mean_and_error([r.number(name) for r in found], form) for name, form in columns.values()]
                rows.append([dataset, method, *cells])
    return "\n\n".join([markdown_table(["set", "system", *columns], rows, num_text=2), results.origin()])


def _figures(results: Results) -> Mapping[str, Figure]:
    datasets = results.values("dataset")
    figure, axes = grid(len(METHODS), len(datasets), size=(2.6, 2.1), sharex="col")
    for row, method in enumerate(METHODS):
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


EXPERIMENT = Experiment("weights", "histograms of the learned weights", _defaults, quick_keys, _run, _table, _figures)
