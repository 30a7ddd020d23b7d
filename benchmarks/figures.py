"""Pictures of the measurements of speed, from stored results alone.

Colours are Okabe and Ito's, which people with any kind of colour vision tell apart; markers and line styles say the
same once more.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

from benchmarks import growth, large, race_results, step
from benchmarks.race import Plan as RacePlan
from benchmarks.speed import Plans
from benchmarks.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

OURS = ("cvgp", "#0072B2", "o", "-")
STYLES = {
    "GPyTorch SVGP": ("#D55E00", "s", "--"),
    "GPyTorch PPGPR": ("#E69F00", "D", "--"),
    "GPyTorch SGPR": ("#CC79A7", "^", "-."),
    "GPflow SVGP": ("#009E73", "v", "--"),
    "GPflow SGPR": ("#56B4E9", "<", "-."),
    "GPBoost Vecchia": ("#000000", "P", ":"),
    "LightGBM": ("#666666", "X", ":"),
    "scikit-learn exact GP": ("#999999", "*", ":"),
}
"""Colour, marker and line of each peer."""

ROOM_BELOW = 0.35
"""How far below the worst final quality the axis goes, as a share of the range above; starts may be far worse."""
DPI = 110


def draw(plans: Plans, store: Store, folder: Path) -> list[Path]:
    """Write every picture that there are results for; returns their paths."""
    matplotlib.use("agg")
    pictures = {"speed_quality.png": _quality(plans.race, store), "speed_growth.png": _growth(plans, store)}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figure in pictures.items():
        if figure is not None:
            figure.savefig(folder / name, dpi=DPI)
            written.append(folder / name)
    return written


def _quality(plan: RacePlan, store: Store) -> "Figure | None":
    import matplotlib.pyplot as plt

    datasets = [name for name in plan.datasets if race_results.ours(plan, store, name)]
    if not datasets:
        return None
    columns = min(3, len(datasets) + 1)
    rows = -(-(len(datasets) + 1) // columns)  # one place for the legend
    figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.5 * rows), layout="constrained", squeeze=False)
    handles = {}
    for dataset, ax in zip(datasets, axes.flat, strict=False):
        handles |= _quality_panel(ax, plan, store, dataset)
    for ax in axes.flat[len(datasets) :]:
        ax.axis("off")
    axes.flat[len(datasets)].legend(handles.values(), handles.keys(), loc="center", frameon=False)
    for row in axes:
        row[0].set_ylabel("test log-likelihood, nats a row")
    return figure


def _quality_panel(ax: "Axes", plan: RacePlan, store: Store, dataset: str) -> dict[str, object]:
    handles: dict[str, object] = {}
    ends = []
    label, color, marker, line = OURS
    mine = race_results.ours(plan, store, dataset)
    points = sorted((r.metrics["seconds"], r.metrics["log_likelihood"]) for r in mine)
    (handles[label],) = ax.plot(*zip(*points, strict=True), line, color=color, marker=marker, lw=2.2, ms=6, zorder=5)
    ends += [value for _, value in points]
    for name, best in race_results.best_peers(plan, store, dataset).items():
        color, marker, line = STYLES[name]
        trace = [(t["seconds"], t["log_likelihood"]) for t in best.record.trace]
        (handles[name],) = ax.plot(*zip(*trace, strict=True), line, color=color, marker=marker, lw=1.3, ms=5)
        ends.append(best.record.metrics["log_likelihood"])
    low, high = min(ends), max(ends)
    room = max(high - low, 0.02)
    ax.set(xscale="log", xlabel="seconds", title=dataset, ylim=(low - ROOM_BELOW * room, high + 0.08 * room))
    ax.grid(alpha=0.3)
    return handles


def _growth(plans: Plans, store: Store) -> "Figure | None":
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.9), layout="constrained")
    drawn = [_rows_panel(axes[0], plans, store), _size_panel(axes[1], plans, store), _dims_panel(axes[2], plans, store)]
    if not any(drawn):
        plt.close(figure)
        return None
    for ax in axes:
        ax.set(xscale="log", yscale="log", ylabel="seconds")
        ax.grid(alpha=0.3)
        if ax.has_data():
            ax.legend(frameon=False)
    return figure


def _rows_panel(ax: "Axes", plans: Plans, store: Store) -> bool:
    fits = []
    for rows in plans.large.rows:
        record = store.finished(large.task(plans.large, f"waves-{rows}x{large.NUM_DIMS}", "cvgp", rows).key)
        if record is not None:
            fits.append((rows, record.metrics["seconds"]))
    _line(ax, fits, f"cvgp, whole fit, M = {plans.large.size}", OURS[1:])
    passes = _cases(plans.growth, store, "N")
    _line(ax, passes, "cvgp, one pass with gradient, M = 200", ("#009E73", "v", "-."))
    ax.set(xlabel="rows N", title="rows")
    return bool(fits or passes)


def _size_panel(ax: "Axes", plans: Plans, store: Store) -> bool:
    batch = max(plans.step.batches)
    found = [(size, store.finished(step.task(plans.step, size, batch).key)) for size in plans.step.sizes]
    ours = [(size, r.metrics["seconds"]) for size, r in found if r is not None]
    svgp = [(size, r.metrics["svgp_seconds"]) for size, r in found if r is not None]
    _line(ax, ours, f"cvgp, step, B = {batch}", OURS[1:])
    _line(ax, svgp, f"GPyTorch SVGP, step, B = {batch}", STYLES["GPyTorch SVGP"])
    ax.set(xlabel="points M", title="points")
    return bool(ours)


def _dims_panel(ax: "Axes", plans: Plans, store: Store) -> bool:
    points = _cases(plans.growth, store, "D")
    _line(ax, points, "cvgp, step, M = 200, B = 2048", OURS[1:])
    ax.set(xlabel="inputs D", title="inputs")
    return bool(points)


def _cases(plan: growth.Plan, store: Store, variable: str) -> list[tuple[float, float]]:
    found = [(case, store.finished(growth.task(plan, case).key)) for case in growth.cases(plan)[variable]]
    return [(growth.value_of(variable, case), r.metrics["seconds"]) for case, r in found if r is not None]


def _line(ax: "Axes", points: list[tuple[float, float]], label: str, style: tuple[str, str, str]) -> None:
    if points:
        color, marker, line = style
        ax.plot(*zip(*points, strict=True), line, color=color, marker=marker, label=label)
