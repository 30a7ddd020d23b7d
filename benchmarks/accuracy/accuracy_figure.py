"""One picture of the race: how far each peer's log-likelihood is from ours, set by set and for both kinds of split.

Colours are Okabe and Ito's; markers say the same once more.
"""

from pathlib import Path

from benchmarks.accuracy.accuracy_race import Plan
from benchmarks.accuracy.accuracy_results import results_of
from benchmarks.accuracy.entries import OURS
from cvgp.paper.figures import grid, shared_legend
from cvgp.paper.store import Store

__all__ = ["FILE_NAME", "draw"]

FILE_NAME = "accuracy.png"
DESCRIPTION = "Mean log-likelihood of each peer minus that of cvgp, one row for each data set"
STYLES = {
    "cvgp-coreset": ("#0072B2", "o"),
    "lightgbm": ("#D55E00", "s"),
    "catboost": ("#E69F00", "D"),
    "sgpr": ("#CC79A7", "^"),
    "gpboost-vecchia": ("#000000", "P"),
    "gpboost-vif": ("#000000", "X"),
    "ngboost": ("#F0E442", "p"),
    "sklearn-exact": ("#999999", "*"),
    "svgp": ("#009E73", "v"),
    "ppgpr": ("#56B4E9", "<"),
}
"""Colour and marker of each method that has a density."""
LINEAR = 0.1
"""Nats up to which the axis is linear; beyond it is logarithmic."""
DPI = 110


def draw(plan: Plan, store: Store, folder: Path) -> str:
    """Write the picture, if there is something to show; returns the reference to it, or nothing."""
    drawn = {kind: _differences(plan, store, kind) for kind in plan.kinds}
    shown = {kind: points for kind, points in drawn.items() if points}
    if not shown:
        return ""
    names = [name for name in plan.datasets if any(name in row for points in shown.values() for row in points.values())]
    figure, axes = grid(1, len(shown), (5.2, 1.2 + 0.42 * len(names)), sharey=True)
    for ax, (kind, points) in zip(axes[0], shown.items(), strict=True):
        for entry in plan.entries:
            if entry.name in points:
                color, marker = STYLES[entry.name]
                row = points[entry.name]
                places = [names.index(name) for name in row]
                ax.plot(row.values(), places, marker, color=color, mec="#444444", mew=0.5, label=entry.title)
        ax.axvline(0.0, color="#444444", lw=1.0)
        ax.set_xscale("symlog", linthresh=LINEAR)
        ax.set(title=f"{kind} splits", xlabel="log-likelihood minus cvgp's, nats per row", yticks=range(len(names)))
        ax.set_yticklabels(names)
        ax.grid(alpha=0.3)
    axes[0][0].invert_yaxis()
    shared_legend(figure, list(axes[0]))
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / FILE_NAME, dpi=DPI)
    return f"![{DESCRIPTION}](images/{FILE_NAME})"


def _differences(plan: Plan, store: Store, kind: str) -> dict[str, dict[str, float]]:
    """By method and data set: its median minus ours, on the splits that ours has finished."""
    found: dict[str, dict[str, float]] = {}
    for name in plan.datasets:
        ours = results_of(plan, store, kind, name, OURS)
        own = ours.median("log_likelihood")
        for entry in plan.entries:
            other = results_of(plan, store, kind, name, entry).median("log_likelihood", set(ours.records))
            if entry.name in STYLES and own is not None and other is not None:
                found.setdefault(entry.name, {})[name] = other - own
    return found
