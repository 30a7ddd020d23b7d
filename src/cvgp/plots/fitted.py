"""What a fit found: the function along one column, and the relevance of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.user_columns import user_columns
from cvgp.plots.columns import target_name, write_dates
from cvgp.plots.dependence import axis_values, varying_column
from cvgp.plots.style import BLUE, GREY, Z95, as_label, axes_or_current, draw_band, draw_coreset, some_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor


def plot_posterior(
    model: CVGPRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    column: str | int | None = None,
) -> Axes:
    """Draw the mean, and the 95 % intervals of the function and of new observations, along one column.

    Of a model of one input the coreset is drawn too, and data where they are given. Of a model of several columns it is
    a slice: the other columns are those of the pseudo-point that is nearest to the middle of the coreset.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted to one output.
    X, y : array-like of shape (n_samples, 1) and (n_samples,), optional
        Data to show, for a model of one input; the picture reaches a tenth of their range beyond them on both sides.
        Without them it reaches as far as the coreset does.
    ax : matplotlib Axes, optional
        The current axes by default.
    column : str or int, optional
        A name or position; the most important column by default.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If the model has several outputs, or there is no such column, or it was constant in the fit; if data are given
        to a model of several inputs, or X without y.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
    >>> ax = plots.plot_posterior(model, X, y, Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x0', 'y')
    """
    num_inputs = len(model.gp_.scaling.x_mean)
    if (X is None) != (y is None):
        raise InvalidInputError("X and y are data to show together; give both or none.")
    if X is not None and num_inputs != 1:
        raise InvalidInputError(
            f"Data lie on the line that plot_posterior draws only where there is one input, and the model has "
            f"{num_inputs}; leave X and y out, or use plot_predicted."
        )
    ax = axes_or_current(ax)
    chosen = varying_column(model, column)
    ax.set(xlabel=as_label(chosen.name), ylabel=as_label(target_name(model)))
    values = axis_values(model, chosen)
    if X is not None:
        x, observed = np.asarray(X, dtype=np.float64).reshape(-1), np.asarray(y, dtype=np.float64).reshape(-1)
        margin, shown = 0.1 * np.ptp(x), some_rows(len(x))
        values = np.linspace(x.min() - margin, x.max() + margin, 300)[:, None]
        ax.scatter(x[shown], observed[shown], s=7, color=GREY, alpha=0.5, lw=0, label="data")
    rows = np.repeat(_middle_point(model)[None], len(values), axis=0)
    rows[:, chosen.features] = values
    found = Predictive.at(model.gp_, rows)
    mean, f_sd = found.moments.mean[:, 0], np.sqrt(found.moments.f_variance[:, 0])
    new = found.quantiles(np.array([0.025, 0.975]))[:, 0].T  # [2, G]
    if chosen.categories:
        far = np.abs(new - mean)
        names = [as_label(category) for category in chosen.categories]
        ax.errorbar(names, mean, far, fmt="none", ecolor=BLUE, alpha=0.4, label="95 % of new data")
        ax.errorbar(names, mean, Z95 * f_sd, fmt="o", color=BLUE, capsize=4, label="mean and its 95 %")
        ax.margins(x=0.2)
    else:
        grid = values[:, 0]
        ax.fill_between(grid, *new, color=BLUE, alpha=0.15, lw=0, label="95 % of new data")
        draw_band(ax, grid, mean, f_sd, 0.4, "95 % of the function")
        ax.plot(grid, mean, color=BLUE, label="mean")
        if num_inputs == 1:
            draw_coreset(ax, model, 0)
        write_dates(ax.xaxis, chosen)
        ax.set_xlim(grid[0], grid[-1])
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False, fontsize="small", markerscale=1.5)
    return ax


def _middle_point(model: CVGPRegressor) -> Array:
    """The input [D] of the pseudo-point that is nearest to the middle of the coreset, in the model's units."""
    coreset = model.coreset_
    scaled = model.gp_.scaling.scale_x(coreset.X)
    away = scaled - np.average(scaled, axis=0, weights=coreset.beta)
    point: Array = coreset.X[np.square(away).sum(axis=1).argmin()].copy()
    return point


def plot_relevance(model: CVGPRegressor, ax: Axes | None = None, top: int = 10) -> Axes:
    """Draw `feature_importances_` as bars with their standard deviations, the largest on top.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.
    ax : matplotlib Axes, optional
        The current axes by default.
    top : int
        The most columns to show.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If the predictions are beyond the range of floats at some rows.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
    >>> ax = plots.plot_relevance(model, Figure().subplots())
    >>> len(ax.patches)
    1
    """
    ax = axes_or_current(ax)
    found, columns, varies = model.sobol_indices(), user_columns(model), model.gp_.scaling.varies
    shown = [j for j in np.argsort(-found.total, kind="stable") if varies[columns[j].features].any()][:top][::-1]
    share, spread = found.total[shown], found.total_uncertainty[shown]
    bars = ax.barh([as_label(columns[j].name) for j in shown], share, xerr=spread, color=BLUE, ecolor=GREY)
    ax.bar_label(bars, [f"{value:.2f}" for value in share], padding=3)
    ax.margins(x=0.2)
    ax.set(xlabel="share of the variance of predictions", title="What predictions need")
    return ax
