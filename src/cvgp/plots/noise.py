"""How the noise changes with one column."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.rows import Array
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.user_columns import UserColumn
from cvgp.plots.columns import target_name, write_dates
from cvgp.plots.dependence import axis_values, heaviest_points, varying_column
from cvgp.plots.style import ORANGE, as_label, axes_or_current

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor


def plot_noise(model: CVGPRegressor, column: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw how the noise changes with one column, while the others are as in the coreset.

    The line is the root mean square of the noise's standard deviation over the coreset's points, weighted by their
    weights, with the column set to the value on the axis. The band holds the noise of nine in ten of the points.

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
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> ax = plots.plot_noise(model, "x0", Figure().subplots())
    >>> ax.get_title()
    'Noise'
    """
    ax = axes_or_current(ax)
    chosen = varying_column(model, column)
    values = axis_values(model, chosen)
    typical, low, high = noise_along(model, chosen, values)
    if chosen.categories:
        names = [as_label(category) for category in chosen.categories]
        ax.errorbar(names, typical, (typical - low, high - typical), fmt="o", color=ORANGE, capsize=4)
        ax.margins(x=0.2)
    else:
        ax.fill_between(values[:, 0], low, high, color=ORANGE, alpha=0.3, lw=0, label="90 % of the points")
        ax.plot(values[:, 0], typical, color=ORANGE, lw=2, label="root mean square")
    write_dates(ax.xaxis, chosen)
    ax.set(xlabel=as_label(chosen.name), ylabel=f"noise sd of {as_label(target_name(model))}", title="Noise")
    ax.set_ylim(bottom=0.0)
    return ax


def noise_along(model: CVGPRegressor, column: UserColumn, values: Array, output: int = 0) -> tuple[Array, Array, Array]:
    """The noise's standard deviation over the coreset's points with the column's features at each of values [G, w].

    Returns its root mean square [G], and the ends of what nine in ten points have.
    """
    points, share = heaviest_points(model)
    variances = []
    for value in values:
        points[:, column.features] = value
        variances.append(Predictive.at(model.gp_, points).moments.noise_variance[:, output])
    sd = np.sqrt(np.array(variances))  # [G, points]
    low, high = np.quantile(sd, (0.05, 0.95), axis=1)
    return np.sqrt(np.array(variances) @ share), low, high
