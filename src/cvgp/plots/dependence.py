"""Partial dependence: what one column does to the prediction, on average over the coreset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.calendar import date_features
from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.user_columns import UserColumn
from cvgp.plots.columns import find_column, most_important, target_name, write_dates
from cvgp.plots.style import ORANGE, Z95, as_label, axes_or_current, draw_band, draw_coreset, one_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor

GRID = 60
FARTHEST = 3.0
"""How many standard deviations from the middle an axis reaches."""
MOST_POINTS = 200
"""The average is over the heaviest points; more of them cost much and change it little."""


def plot_partial_dependence(model: CVGPRegressor, column: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw how the prediction changes with one column, while the others are as in the coreset.

    The line is the mean prediction over the coreset's points, weighted by their weights, with the column set to the
    value on the axis. The band is the 95 % credible interval of that mean. Dots are the pseudo-points themselves.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted to one output.
    column : str or int, optional
        A name or position among the table's columns, where the model knows its table, or else among the features. The
        most important column by default.
    ax : matplotlib Axes, optional
        The current axes by default.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If the model has several outputs, or there is no such column, or it was constant in the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
    >>> ax = plots.plot_partial_dependence(model, "x0", Figure().subplots())
    >>> ax.get_xlabel()
    'x0'
    """
    ax = axes_or_current(ax)
    chosen = varying_column(model, column)
    ax.set(xlabel=as_label(chosen.name), ylabel=as_label(target_name(model)), title="Partial dependence")
    if chosen.categories:
        _draw_categories(ax, model, chosen)
    else:
        _draw_line(ax, model, chosen)
    return ax


def varying_column(model: CVGPRegressor, column: str | int | None) -> UserColumn:
    """The column of a name or position, unless it was constant in the fit; by default the most important one."""
    one_output(model)
    chosen = most_important(model, 1)[0] if column is None else find_column(model, column)
    if not model.gp_.scaling.varies[chosen.features].any():
        raise InvalidInputError(
            f"Column {chosen.name!r} had one value in all rows of the fit, so predictions do not depend on it; choose "
            "another."
        )
    return chosen


def axis_values(model: CVGPRegressor, column: UserColumn) -> Array:
    """Values of the column's features [G, w] along an axis: each category, or a grid where the coreset's points are.

    The axis is the first feature: the number itself, the effect of a level, or the days of a date.
    """
    width = column.features.stop - column.features.start
    if column.categories:
        return np.eye(len(column.categories), width)
    own, coreset, scaling = column.features.start, model.coreset_, model.gp_.scaling
    centre = scaling.scale_x(np.average(coreset.X, axis=0, weights=coreset.beta)[None])
    low, high = scaling.unscale_x(np.concatenate([centre - FARTHEST, centre + FARTHEST]))[:, own]
    inputs = coreset.X[:, own]
    values = np.zeros((GRID, width))  # nothing is missing, and levels have no slopes
    values[:, 0] = np.linspace(max(inputs.min(), low), min(inputs.max(), high), GRID)
    if column.parts:
        dates = date_features(values[:, 0], column.parts)
        values[:, : dates.shape[1]] = dates
    return values


def heaviest_points(model: CVGPRegressor) -> tuple[Array, Array]:
    """Inputs of the coreset's heaviest points, and the shares of their weights."""
    coreset = model.coreset_
    heaviest = np.argsort(coreset.beta)[::-1][:MOST_POINTS]
    return coreset.X[heaviest], coreset.beta[heaviest] / coreset.beta[heaviest].sum()


def _draw_categories(ax: Axes, model: CVGPRegressor, column: UserColumn) -> None:
    mean, sd = average_over_points(model, column, axis_values(model, column))
    names = [as_label(category) for category in column.categories]
    ax.errorbar(names, mean, Z95 * sd, fmt="o", color=ORANGE, capsize=4)
    ax.margins(x=0.2)
    if len(column.categories) > 3:
        ax.tick_params(axis="x", rotation=45)
    # Differences that are small against the spread of y should look small.
    middle, span = 0.5 * (mean.min() + mean.max()), model.gp_.y_spread[0]
    low, high = ax.get_ylim()
    ax.set_ylim(min(low, middle - span), max(high, middle + span))


def _draw_line(ax: Axes, model: CVGPRegressor, column: UserColumn) -> None:
    values = axis_values(model, column)
    grid, low, high = values[:, 0], values[0, 0], values[-1, 0]
    mean, sd = average_over_points(model, column, values)
    draw_band(ax, grid, mean, sd, 0.3, "95 %", ORANGE)
    ax.plot(grid, mean, color=ORANGE, lw=2, zorder=4, label="mean")  # above the dots, which can be many
    draw_coreset(ax, model, column.features.start)
    write_dates(ax.xaxis, column)
    margin = 0.02 * (high - low) if high > low else 1.0
    ax.set_xlim(low - margin, high + margin)


def average_over_points(
    model: CVGPRegressor, column: UserColumn, values: Array, output: int = 0
) -> tuple[Array, Array]:
    """Mean and standard deviation [G] of the averaged function with the column's features at each of values [G, w]."""
    points, share = heaviest_points(model)
    means, variances = [], []
    for value in values:
        points[:, column.features] = value
        found = Predictive.at(model.gp_, points)
        means.append(share @ found.moments.mean[:, output])
        covariance = found.function_covariance(model.gp_.covariance(points))[:, :, output]
        variances.append(max(float(share @ covariance @ share), 0.0))
    return np.array(means), np.sqrt(variances)
