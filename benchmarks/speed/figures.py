"""Pictures of the measurements of speed, from stored results alone.

Colours are Okabe and Ito's, which people with any kind of colour vision tell apart; markers and line styles say the
same once more.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.ticker import NullFormatter

from benchmarks.speed import growth, large, race_results, step
from benchmarks.speed.plans import Plans
from benchmarks.speed.race import Plan as RacePlan
from cvgp.paper.store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PICTURES", "draw"]

PICTURES = {
    "race": ("speed_quality.png", "Test log-likelihood against seconds, one panel for each data set"),
    "growth": ("speed_growth.png", "Seconds against the number of rows, points and inputs, on logarithmic axes"),
}
"""The file and the description of the picture that goes with a command's tables."""

OURS = ("cvgp", "#0072B2", "o", "-")
STYLES = {
    "SVGP": ("#D55E00", "s", "--"),
    "SGPR": ("#56B4E9", "<", "-."),
}
"""Colour, marker and line of each peer."""

PICTURED = 0
"""The split of the race that is drawn."""
ROOM_BELOW = 0.35
"""How far below the worst final quality the axis goes, as a share of the range above; starts may be far worse."""
DPI = 110


def draw(plans: Plans, store: Store, folder: Path) -> list[Path]:
    """Write every picture that there are results for; returns their paths."""
    matplotlib.use("agg")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for command, figure in (("race", _quality(plans.race, store)), ("growth", _growth(plans, store))):
        if figure is not None:
            path = folder / PICTURES[command][0]
            figure.savefig(path, dpi=DPI)
            written.append(path)
    return written


def _quality(plan: RacePlan, store: Store) -> "Figure | None":
    import matplotlib.pyplot as plt

    datasets = [name for name in plan.datasets if race_results.ours(plan, store, name, PICTURED)]
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
        row[0].set_ylabel("test log-likelihood, nats per row")
    return figure


def _quality_panel(ax: "Axes", plan: RacePlan, store: Store, dataset: str) -> dict[str, object]:
    handles: dict[str, object] = {}
    ends = []
    label, color, marker, line = OURS
    mine = race_results.ours(plan, store, dataset, PICTURED)
    points = sorted((r.metrics["seconds"], r.metrics["log_likelihood"]) for r in mine)
    (handles[label],) = ax.plot(*zip(*points, strict=True), line, color=color, marker=marker, lw=2.2, ms=6, zorder=5)
    ends += [value for _, value in points]
    for name, best in race_results.best_peers(plan, store, dataset, PICTURED).items():
        color, marker, line = STYLES[name]
        trace = [(t["seconds"], t["log_likelihood"]) for t in best.trace]
        (handles[name],) = ax.plot(*zip(*trace, strict=True), line, color=color, marker=marker, lw=1.3, ms=5)
        ends.append(best.metrics["log_likelihood"])
    low, high = min(ends), max(ends)
    room = max(high - low, 0.02)
    ax.set(xscale="log", xlabel="seconds", title=dataset, ylim=(low - ROOM_BELOW * room, high + 0.08 * room))
    ax.grid(alpha=0.3)
    _plain_ticks(ax)
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
        _plain_ticks(ax)
        if ax.has_data():
            ax.set_ylim(*_a_decade(*ax.get_ylim()))
            ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _a_decade(low: float, high: float) -> tuple[float, float]:
    """The limits, moved apart to a factor of ten at least: a flat line should look flat."""
    widen = max(1.0, math.sqrt(10.0 * low / high))
    return low / widen, high * widen


def _plain_ticks(ax: "Axes") -> None:
    """Labels such as 0.01 and 1000, at powers of ten only."""
    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(
                lambda value, _: f"{value:g}" if value < 1e4 else f"{value:.0e}".replace("e+0", "e")
            )
            axis.set_minor_formatter(NullFormatter())


def _rows_panel(ax: "Axes", plans: Plans, store: Store) -> bool:
    fits = []
    for rows in plans.large.rows:
        record = store.finished(large.task(plans.large, f"waves-{rows}x{large.NUM_DIMS}", "cvgp", rows).key)
        if record is not None:
            fits.append((rows, record.metrics["seconds"]))
    _line(ax, fits, f"cvgp, whole fit, M = {plans.large.size}", OURS[1:])
    passes = _cases(plans.growth, store, "N")
    _line(ax, passes, "cvgp, one pass with gradient, M = 200", ("#009E73", "v", "-."))
    ax.set_xlabel("rows N")
    return bool(fits or passes)


def _size_panel(ax: "Axes", plans: Plans, store: Store) -> bool:
    batch = max(plans.step.batches)
    found = [(size, store.finished(step.task(plans.step, size, batch).key)) for size in plans.step.sizes]
    ours = [(size, r.metrics["seconds"]) for size, r in found if r is not None]
    svgp = [(size, r.metrics["svgp_seconds"]) for size, r in found if r is not None]
    _line(ax, ours, f"cvgp, step, B = {batch}", OURS[1:])
    _line(ax, svgp, f"GPyTorch SVGP, step, B = {batch}", STYLES["SVGP"])
    ax.set_xlabel("points M")
    return bool(ours)


def _dims_panel(ax: "Axes", plans: Plans, store: Store) -> bool:
    points = _cases(plans.growth, store, "D")
    _line(ax, points, "cvgp, step, M = 200, B = 2048", OURS[1:])
    ax.set_xlabel("inputs D")
    return bool(points)


def _cases(plan: growth.Plan, store: Store, variable: str) -> list[tuple[float, float]]:
    found = [(case, store.finished(growth.task(plan, case).key)) for case in growth.cases(plan)[variable]]
    return [(growth.value_of(variable, case), r.metrics["seconds"]) for case, r in found if r is not None]


def _line(ax: "Axes", points: list[tuple[float, float]], label: str, style: tuple[str, str, str]) -> None:
    if points:
        color, marker, line = style
        ax.plot(*zip(*points, strict=True), line, color=color, marker=marker, label=label)
