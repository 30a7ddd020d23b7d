"""How good predictions are on rows that the model has not seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvgp import metrics
from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.estimators.inputs import check_observed, check_prediction
from cvgp.estimators.predictive import Predictive
from cvgp.plots import drawing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor

LEVELS = np.linspace(0.05, 0.95, 19)
"""The probabilities of the intervals that calibration is shown by."""


def plot_calibration(model: CVGPRegressor, X: Any, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the share of observations inside central intervals against the probability that the intervals claim.

    Above the diagonal the model is less certain than it could be, below it more certain than it should be.
    """
    ax = drawing.axes_or_current(ax)
    found = Predictive.at(drawing.one_output(model)._gp, check_prediction(model, X))
    observed = check_observed(y, (len(found.mean),))
    draw_calibration(ax, shares_inside(lambda levels: found.quantiles(levels)[:, 0], observed), len(observed))
    ax.set_title("Calibration")
    return ax


def shares_inside(quantiles: Callable[[Array], Array], observed: Array) -> Array:
    """The share of observations [n] inside the central interval of each of `LEVELS`, from quantiles [n, L]."""
    found = []
    for level in LEVELS:  # one by one: the ends of all intervals of a million rows would fill the memory
        low, high = quantiles(np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])).T
        found.append(((low <= observed) & (observed <= high)).mean())
    return np.array(found)


def chance_of_shares(count: int) -> Array:
    """How far the share of `count` observations is from each of `LEVELS` by chance, in 95 of 100 cases."""
    return drawing.Z95 * np.sqrt(LEVELS * (1.0 - LEVELS) / count)


def draw_calibration(ax: Axes, inside: Array, count: int) -> None:
    """Shares of `count` observations inside the intervals of `LEVELS`, with what chance allows."""
    chance = chance_of_shares(count)
    ax.fill_between(
        LEVELS, LEVELS - chance, LEVELS + chance, color=drawing.GRAY, alpha=0.2, lw=0, label="chance (95 %)"
    )
    ax.plot([0, 1], [0, 1], color=drawing.GRAY, lw=1)
    ax.plot(LEVELS, inside, "o-", color=drawing.BLUE, ms=4, label="model")
    ax.set(xlabel="probability of the interval", ylabel="share of observations inside")
    ax.set(xlim=(0, 1), ylim=(0, 1), box_aspect=1)
    ax.legend(loc="upper left", framealpha=0.7, edgecolor="none", fontsize="small")


def plot_predicted(model: CVGPRegressor, X: Any, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw observations against predictions, and mark those outside their 95 % interval."""
    ax = drawing.axes_or_current(ax)
    mean = drawing.one_output(model).predict(X)
    observed = check_observed(y, (len(mean),))
    low, high = model.predict_quantiles(X, [0.025, 0.975]).T
    draw_predicted(ax, mean, observed, (observed < low) | (observed > high), drawing.target_name(model))
    ax.set_title(f"Predictions: RMSE {drawing.number(metrics.rmse(observed, mean))}")
    return ax


def draw_predicted(ax: Axes, mean: Array, observed: Array, is_outside: NDArray[np.bool_], target: str) -> None:
    """Observations against predictions; those outside their 95 % interval are marked."""
    shown = drawing.some_rows(len(mean))
    groups = {"inside": (~is_outside, drawing.BLUE, "o"), "outside": (is_outside, drawing.ORANGE, "^")}
    for place, (group, color, marker) in groups.items():
        rows, label = shown[group[shown]], f"{place} 95 %: {100 * group.mean():.1f} %"
        style: dict[str, Any] = {"color": color, "marker": marker, "alpha": 0.6, "lw": 0, "rasterized": True}
        ax.scatter(mean[rows], observed[rows], 14, label=label, **style)
    ends = [min(mean.min(), observed.min()), max(mean.max(), observed.max())]
    ax.plot(ends, ends, color=drawing.GRAY, lw=1)
    drawing.readable_ticks(ax)
    ax.set(xlabel=f"predicted {drawing.as_label(target)}", ylabel=f"observed {drawing.as_label(target)}")
    ax.legend(loc="best", framealpha=0.7, edgecolor="none", fontsize="small")


def plot_quality_by_size(quality: Mapping[str, ArrayLike], ax: Axes | None = None) -> Axes:
    """Draw the error and the log-likelihood of held-out rows against the number of pseudo-points.

    `quality` is what `cvgp.quality_by_size` returns. The log-likelihood has an axis of its own on the right.
    """
    missing = {"size", "rmse", "mean_log_likelihood"} - set(quality)
    if missing:
        raise InvalidInputError(f"quality must have the columns of cvgp.quality_by_size; it lacks {sorted(missing)}.")
    ax = drawing.axes_or_current(ax)
    size = np.asarray(quality["size"])
    ax.plot(size, quality["rmse"], "o-", color=drawing.BLUE, ms=4)
    ax.set_xscale("log", base=2)
    ticks = size[:: math.ceil(len(size) / 6)]
    ax.set_xticks(ticks, labels=[drawing.tick_text(points) for points in ticks])
    ax.set(xlabel="pseudo-points", title="Quality by size")
    ax.yaxis.set_major_formatter(drawing.tick_text)
    ax.set_ylabel("RMSE", color=drawing.BLUE)
    twin = ax.twinx()
    twin.plot(size, quality["mean_log_likelihood"], "^--", color=drawing.ORANGE, ms=4)
    twin.set_ylabel("mean log-likelihood", color=drawing.ORANGE)
    return ax
