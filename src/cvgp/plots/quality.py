"""How good predictions are on data that the model has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvgp import metrics
from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.estimators.inputs import check_observed
from cvgp.plots.columns import target_name
from cvgp.plots.style import BLUE, GREY, ORANGE, Z95, as_label, axes_or_current, one_output, some_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor


LEVELS = np.linspace(0.05, 0.95, 19)
"""The probabilities of intervals that calibration is shown by."""


def ends_of_levels(levels: Array) -> Array:
    """The probabilities below the lower and then below the upper ends of central intervals [2 L]."""
    return np.append(0.5 - 0.5 * levels, 0.5 + 0.5 * levels)


def shares_inside(ends: Array, y: Array) -> Array:
    """The share of observations [n] inside intervals whose lower and then upper ends are given [n, 2 L]."""
    half = ends.shape[1] // 2
    inside: Array = ((ends[:, :half] <= y[:, None]) & (y[:, None] <= ends[:, half:])).mean(axis=0)
    return inside


def chance_of_shares(levels: Array, count: int) -> Array:
    """How far from its level the share of so many observations is by chance, in 95 of 100 cases."""
    return Z95 * np.sqrt(levels * (1.0 - levels) / count)


def plot_calibration(model: CVGPRegressor, X: ArrayLike, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw the share of observations inside central intervals against the probability that the intervals claim.

    Above the diagonal the model is less certain than it could be, below it more certain than it should be.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted to one output.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Data that the model has not seen.
    ax : matplotlib Axes, optional
        The current axes by default.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If the model has several outputs, or X and y cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
    >>> ax = plots.plot_calibration(model, X, y, Figure().subplots())
    >>> ax.get_title()
    'Calibration'
    """
    ax = axes_or_current(ax)
    ends = one_output(model).predict_quantiles(X, ends_of_levels(LEVELS))  # [n, 38]
    levels, observed = LEVELS, shares_inside(ends, check_observed(y, (len(ends),)))
    chance = chance_of_shares(levels, len(ends))
    ax.fill_between(levels, levels - chance, levels + chance, color=GREY, alpha=0.2, lw=0, label="chance (95 %)")
    ax.plot([0, 1], [0, 1], color=GREY, lw=1)
    ax.plot(levels, observed, "o-", color=BLUE, ms=4, label="model")
    ax.set(xlabel="probability of the interval", ylabel="share of observations inside", title="Calibration")
    ax.set(xlim=(0, 1), ylim=(0, 1), box_aspect=1)
    ax.legend(loc="best", framealpha=0.7, edgecolor="none", fontsize="small")
    return ax


def plot_predicted(model: CVGPRegressor, X: ArrayLike, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw observations against predictions, and mark those outside their 95 % interval.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted to one output.
    X, y : array-like of shape (n_samples, n_features) and (n_samples,)
        Data that the model has not seen.
    ax : matplotlib Axes, optional
        The current axes by default.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If the model has several outputs, or X and y cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
    >>> ax = plots.plot_predicted(model, X, y, Figure().subplots())
    >>> ax.get_xlabel()
    'predicted y'
    """
    ax = axes_or_current(ax)
    mean = one_output(model).predict(X)
    observed = np.asarray(y, dtype=np.float64).reshape(-1)
    low, high = model.predict_quantiles(X, [0.025, 0.975]).T
    outside = (observed < low) | (observed > high)
    shown = some_rows(len(mean))
    for group, colour, marker, place in ((~outside, BLUE, "o", "inside"), (outside, ORANGE, "^", "outside")):
        rows = shown[group[shown]]
        label = f"{place} the 95 % interval: {100 * group.mean():.1f} %"
        ax.scatter(mean[rows], observed[rows], s=14, color=colour, marker=marker, alpha=0.6, lw=0, label=label)
    ends = [min(mean.min(), observed.min()), max(mean.max(), observed.max())]
    ax.plot(ends, ends, color=GREY, lw=1)
    name = as_label(target_name(model))
    ax.set(xlabel=f"predicted {name}", ylabel=f"observed {name}")
    ax.set_title(f"Predictions: RMSE {metrics.rmse(observed, mean):.3g}")
    ax.legend(loc="best", framealpha=0.7, edgecolor="none", fontsize="small")
    return ax


def plot_quality_by_size(quality: Mapping[str, ArrayLike], ax: Axes | None = None) -> Axes:
    """Draw the error and the log-likelihood of held-out rows against the number of pseudo-points.

    Parameters
    ----------
    quality : mapping of str to array-like
        What `cvgp.quality_by_size` returns: `size`, `rmse` and `mean_log_likelihood` are drawn.
    ax : matplotlib Axes, optional
        The current axes by default. The log-likelihood gets an axis of its own on the right.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If one of the three columns is missing.

    Examples
    --------
    >>> import cvgp, numpy as np
    >>> from cvgp import plots
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).uniform(0, 6, (200, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = cvgp.CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X[:150], y[:150])
    >>> ax = plots.plot_quality_by_size(cvgp.quality_by_size(model, X, y), Figure().subplots())
    >>> ax.get_xlabel()
    'pseudo-points'
    """
    missing = {"size", "rmse", "mean_log_likelihood"} - set(quality)
    if missing:
        raise InvalidInputError(f"quality must have the columns of cvgp.quality_by_size; it lacks {sorted(missing)}.")
    ax = axes_or_current(ax)
    size = np.asarray(quality["size"])
    ax.plot(size, quality["rmse"], "o-", color=BLUE, ms=4)
    ax.set_xscale("log", base=2)
    ax.set_xticks(size, labels=[str(points) for points in size])
    ax.set(xlabel="pseudo-points", title="Quality by size")
    ax.set_ylabel("RMSE", color=BLUE)
    twin = ax.twinx()
    twin.plot(size, quality["mean_log_likelihood"], "^--", color=ORANGE, ms=4)
    twin.set_ylabel("mean log-likelihood", color=ORANGE)
    return ax
