"""What a fit found: the function of one input, the importance of features, the course of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from cvgp.errors import InvalidInputError
from cvgp.estimators.frames import feature_names
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.user_columns import user_columns
from cvgp.plots.columns import target_name
from cvgp.plots.style import BLUE, GREY, ORANGE, axes_or_current, draw_band, draw_coreset, one_output, some_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor


def plot_posterior_1d(model: CVGPRegressor, X: ArrayLike, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw data, mean, 95 % intervals of the function and of new observations, and the coreset, for one input.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted to one input.
    X, y : array-like of shape (n_samples, 1) and (n_samples,)
        Data to show; the picture reaches a tenth of their range beyond them on both sides.
    ax : matplotlib Axes, optional
        The current axes by default.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If the model has several outputs or more than one input.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
    >>> ax = plots.plot_posterior_1d(model, X, y, Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x0', 'y')
    """
    ax = axes_or_current(ax)
    if len(model.gp_.scaling.x_mean) != 1:
        raise InvalidInputError(
            f"plot_posterior_1d draws a function of one input, but the model has {len(model.gp_.scaling.x_mean)}; "
            "use plot_partial_dependence."
        )
    x, observed = np.asarray(X, dtype=np.float64).reshape(-1), np.asarray(y, dtype=np.float64).reshape(-1)
    margin = 0.1 * np.ptp(x)
    grid = np.linspace(x.min() - margin, x.max() + margin, 300)
    found = Predictive.at(one_output(model).gp_, grid[:, None])
    mean, f_sd = found.moments.mean[:, 0], np.sqrt(found.moments.f_variance[:, 0])
    new = found.quantiles(np.array([0.025, 0.975]))[:, 0]  # [300, 2]
    shown = some_rows(len(x))
    ax.scatter(x[shown], observed[shown], s=7, color=GREY, alpha=0.5, lw=0, label="data")
    ax.fill_between(grid, *new.T, color=BLUE, alpha=0.15, lw=0, label="95 % of new data")
    draw_band(ax, grid, mean, f_sd, 0.4, "95 % of the function")
    ax.plot(grid, mean, color=BLUE, label="mean")
    draw_coreset(ax, model, 0)
    ax.set(xlabel=feature_names(model)[0], ylabel=target_name(model), xlim=(grid[0], grid[-1]))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, frameon=False, fontsize="small", markerscale=1.5)
    return ax


def plot_feature_importance(model: CVGPRegressor, ax: Axes | None = None, top: int = 10) -> Axes:
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
    >>> ax = plots.plot_feature_importance(model, Figure().subplots())
    >>> len(ax.patches)
    1
    """
    ax = axes_or_current(ax)
    found, columns, varies = model.sobol_indices(), user_columns(model), model.gp_.scaling.varies
    shown = [j for j in np.argsort(-found.total, kind="stable") if varies[columns[j].features].any()][:top][::-1]
    share, spread = found.total[shown], found.total_uncertainty[shown]
    bars = ax.barh([columns[j].name for j in shown], share, xerr=spread, color=BLUE, ecolor=GREY)
    ax.bar_label(bars, [f"{value:.2f}" for value in share], padding=3)
    ax.margins(x=0.2)
    ax.set(xlabel="share of the variance of predictions", title="What predictions need")
    return ax


def plot_history(model: CVGPRegressor, ax: Axes | None = None) -> Axes:
    """Draw the bound over the iterations of the solver, and the validation error where there is one.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.
    ax : matplotlib Axes, optional
        The current axes by default.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
    >>> ax = plots.plot_history(model, Figure().subplots())
    >>> ax.get_xlabel()
    'iteration'
    """
    ax = axes_or_current(ax)
    phases = model.history_["phase"]
    # What the noise gains is no training, nor is the line that says whether neighbours are consulted.
    is_training = phases != "noise"
    is_training &= (phases != "neighbours") | np.isfinite(model.history_["learning_rate"])
    if model.solver_ != "neighbours":
        is_training &= phases != "neighbours"
    last = is_training & (phases == phases[is_training][-1])
    iteration, bound, validation = (model.history_[name][last] for name in ("iteration", "bound", "validation_rmse"))
    ax.plot(iteration, bound, color=BLUE)
    # The first few iterations gain so much that the rest would look flat.
    settled = bound[len(bound) // 10 :]
    margin = max(0.1 * (settled.max() - settled.min()), 1e-3)
    ax.set_ylim(settled.min() - margin, settled.max() + margin)
    ax.set(xlabel="iteration", ylabel="bound (nats per row, standardised y)", title=f"Training by {model.solver_}")
    checked = np.isfinite(validation)
    if checked.any():
        ax.yaxis.label.set_color(BLUE)
        twin = ax.twinx()
        twin.plot(iteration[checked], validation[checked], color=ORANGE, ls="--")
        twin.set_ylabel("validation RMSE (in sd of y)", color=ORANGE)
    return ax
