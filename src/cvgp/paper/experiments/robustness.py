"""`robustness`: CVGP from k-means against CVGP from white noise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cvgp.paper.experiments.comparison import box_plots, cells, paired_table, score_table
from cvgp.paper.experiments.experiment import Defaults, Experiment, Results
from cvgp.paper.experiments.predictive import run_fold
from cvgp.paper.experiments.rates import tuned_keys
from cvgp.paper.protocol import Preset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = ("CVGP", "RandomCVGP")


def _defaults(preset: Preset) -> Defaults:
    if preset.name == "smoke":
        return Defaults(("synthetic5",), METHODS, (8,), folds=2)
    return Defaults(("wine", "skillcraft", "parkinsons", "bike", "protein"), METHODS, (50, 200))


def _table(results: Results) -> str:
    found = cells(results)
    parts = [
        score_table(found),
        "RandomCVGP minus CVGP, fold by fold:",
        paired_table(found, "RandomCVGP", "CVGP"),
        results.origin([r for cell in found for r in cell.records]),
    ]
    return "\n\n".join(parts)


def _figures(results: Results) -> Mapping[str, Figure]:
    return {"robustness": box_plots(cells(results))}


EXPERIMENT = Experiment(
    "robustness", "CVGP from k-means against white noise", _defaults, tuned_keys, run_fold, _table, _figures
)
