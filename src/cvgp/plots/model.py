"""What a fit found: the function, the noise, the relevance of columns, the coreset and the course of training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, optional_packages
from cvgp.estimators.frames import UserColumn, user_columns
from cvgp.estimators.predictive import Predictive
from cvgp.plots import drawing
from cvgp.tables.columns import date_features

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor

GRID = 30
"""Values along the axis of a column."""
FARTHEST = 3.0
"""How many standard deviations from the middle an axis reaches."""
MOST_POINTS = 100
"""Averages are over the heaviest points; more of them cost much and change little."""
LARGEST = 1e200
"""Larger bounds leave no room for an axis around them."""
LARGEST_DOT = 180.0
"""The area of the heaviest point, in square points of a page."""
SMALLEST_SHARE = 1e-6
"""Weights that are a smaller share of the largest one are drawn as this one."""
FEWEST_BINS, MOST_BINS = 4, 20


def plot_posterior(
    model: CVGPRegressor,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    column: str | int | None = None,
) -> Axes:
    """Draw the mean, and the 95 % intervals of the function and of new observations, along one column.

    For a model of one input the coreset is drawn too, and `X` and `y` if they are given: the picture then reaches a
    tenth of their range beyond them. For a model of several columns it is a slice: the other columns are those of the
    pseudo-point that is nearest to the middle of the coreset.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> plots.plot_posterior(model, X, np.sin(X[:, 0]), ax=Figure().subplots()).get_xlabel()
    'x0'
    """
    gp = model._gp
    num_inputs = len(gp.scaling.x_mean)
    if (X is None) != (y is None):
        raise InvalidInputError("X and y are data to show together; give both or none.")
    if X is not None and num_inputs != 1:
        raise InvalidInputError(
            f"Data lie on the line that plot_posterior draws only where there is one input, and the model has "
            f"{num_inputs}; leave X and y out, or use plot_predicted."
        )
    ax = drawing.axes_or_current(ax)
    chosen = drawing.varying_column(model, column)
    values = column_grid(model, chosen)
    if X is not None:
        x, observed = np.asarray(X, dtype=np.float64).reshape(-1), np.asarray(y, dtype=np.float64).reshape(-1)
        margin, shown = 0.1 * np.ptp(x), drawing.some_rows(len(x))
        values = np.linspace(x.min() - margin, x.max() + margin, 300)[:, None]
        ax.scatter(x[shown], observed[shown], s=7, color=drawing.GRAY, alpha=0.5, lw=0, label="data")
    scaled = gp.scaling.scale_x(model.coreset_.X)
    away = scaled - np.average(scaled, axis=0, weights=model.coreset_.beta)
    rows = np.repeat(model.coreset_.X[[np.square(away).sum(axis=1).argmin()]], len(values), axis=0)
    rows[:, chosen.features] = values
    found = Predictive.at(gp, rows)
    mean, far = found.moments.mean[:, 0], drawing.Z95 * np.sqrt(found.moments.f_variance[:, 0])
    low, high = found.quantiles(np.array([0.025, 0.975]))[:, 0].T
    draw_band(ax, chosen, values, low, high, drawing.BLUE, 0.15, "95 % of new data")
    draw_band(ax, chosen, values, mean - far, mean + far, drawing.BLUE, 0.4, "95 % of the function")
    draw_middle(ax, chosen, values, mean, drawing.BLUE, "mean")
    if num_inputs == 1:
        draw_points(ax, model, 0)
    finish_along(ax, chosen, values)
    ax.set_ylabel(drawing.as_label(drawing.target_name(model)))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize="small")
    return ax


def plot_partial_dependence(model: CVGPRegressor, column: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw how the prediction changes with one column, while the others are as in the coreset.

    The line is the mean prediction over the coreset's points, weighted by their weights, with the column set to the
    value on the axis. The band is the 95 % credible interval of that mean. Dots are the pseudo-points themselves.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> plots.plot_partial_dependence(model, "x0", ax=Figure().subplots()).get_xlabel()
    'x0'
    """
    ax = drawing.axes_or_current(ax)
    chosen = drawing.varying_column(model, column)
    values = column_grid(model, chosen)
    mean, sd = partial_dependence(model, chosen, values)
    draw_dependence(ax, chosen, values, mean, sd, model._gp.y_spread[0])
    if not chosen.categories:
        draw_points(ax, model, chosen.features.start)
    finish_along(ax, chosen, values)
    ax.set(ylabel=drawing.as_label(drawing.target_name(model)), title="Partial dependence")
    return ax


def plot_noise(model: CVGPRegressor, column: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw how the noise changes with one column, while the others are as in the coreset.

    The line is the root mean square of the noise's standard deviation over the coreset's points, weighted by their
    weights, with the column set to the value on the axis. The band holds the noise of nine in ten of the points.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> plots.plot_noise(model, "x0", ax=Figure().subplots()).get_title()
    'Noise'
    """
    ax = drawing.axes_or_current(ax)
    chosen = drawing.varying_column(model, column)
    values = column_grid(model, chosen)
    points, share = heaviest_points(model)
    variances = []
    for value in values:
        points[:, chosen.features] = value
        variances.append(Predictive.at(model._gp, points).moments.noise_variance[:, 0])
    low, high = np.quantile(np.sqrt(variances), (0.05, 0.95), axis=1)
    draw_band(ax, chosen, values, low, high, drawing.ORANGE, 0.3, "90 % of the points")
    draw_middle(ax, chosen, values, np.sqrt(np.array(variances) @ share), drawing.ORANGE, "root mean square")
    finish_along(ax, chosen, values)
    ax.set(ylabel=f"noise sd of {drawing.as_label(drawing.target_name(model))}", title="Noise")
    ax.set_ylim(bottom=0.0)
    return ax


def plot_relevance(model: CVGPRegressor, ax: Axes | None = None, top: int = 10) -> Axes:
    """Draw the `top` largest `feature_importances_` as bars with their standard deviations.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> plots.plot_relevance(model, ax=Figure().subplots()).get_xlabel()
    'share of the variance'
    """
    ax = drawing.axes_or_current(ax)
    found, columns, varies = model.sobol_indices(), user_columns(model), model._gp.scaling.varies
    shown = [j for j in np.argsort(-found.total, kind="stable") if varies[columns[j].features].any()][:top][::-1]
    share, spread = found.total[shown], np.minimum(found.total_error[shown], 1.0)
    at = np.arange(len(shown))
    bars = ax.barh(at, share, xerr=spread, color=drawing.BLUE, ecolor=drawing.GRAY)
    ax.set_yticks(at, labels=[drawing.as_label(columns[j].name, 24) for j in shown])
    ax.bar_label(bars, [f"{value:.2f}" for value in share], padding=3)
    ax.set_xlim(0.0, 1.3 * float((share + spread).max(initial=0.01)))  # with room for the numbers
    ax.set(xlabel="share of the variance", title="What predictions need")
    return ax


def plot_training(model: CVGPRegressor, ax: Axes | None = None) -> Axes:
    """Draw the bound over the iterations of the solver, and the validation error if there is one.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> plots.plot_training(model, ax=Figure().subplots()).get_xlabel()
    'iteration'
    """
    ax = drawing.axes_or_current(ax)
    iteration, bound, validation = training_course(model)
    ax.plot(iteration, bound, color=drawing.BLUE, marker="o" if len(bound) == 1 else "")
    # The first iterations gain so much that the others would look flat.
    settled = bound[len(bound) // 10 :]
    margin = max(0.1 * np.ptp(settled), 1e-3)
    ax.set_ylim(settled.min() - margin, settled.max() + margin)
    drawing.readable_ticks(ax)
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="iteration", ylabel="bound (nats per row)", title=f"Training by {drawing.as_label(model.solver_)}")
    checked = np.isfinite(validation)
    if checked.any():
        ax.yaxis.label.set_color(drawing.BLUE)
        twin = ax.twinx()
        twin.plot(iteration[checked], validation[checked], color=drawing.ORANGE, ls="--")
        twin.set_ylabel("validation RMSE (in sd of y)", color=drawing.ORANGE)
    return ax


def plot_coreset(model: CVGPRegressor, columns: Sequence[str | int] | None = None, ax: Axes | None = None) -> Axes:
    """Draw where the pseudo-points are, over two columns: their areas are weights, their colors pseudo-outputs.

    The two most important columns are the default. A model of one column is drawn over it and the pseudo-output, and
    points of several outputs have one color. Points that have next to no weight are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(3 * X[:, 1]))
    >>> plots.plot_coreset(model, ["x0", "x1"], ax=Figure().subplots()).get_ylabel()
    'x1'
    """
    if columns is not None and len(columns) != 2:
        raise InvalidInputError(f"A coreset is drawn over two columns; got {list(columns)}.")
    ax = drawing.axes_or_current(ax)
    chosen = (
        drawing.most_important(model, 2) if columns is None else [drawing.find_column(model, name) for name in columns]
    )
    draw_coreset(ax, model, chosen, drawing.target_name(model))
    ax.set_title(f"{len(model.coreset_)} pseudo-points, sized by weight")
    return ax


def draw_coreset(
    ax: Axes, model: CVGPRegressor, columns: list[UserColumn], target: str, output: int | None = None
) -> None:
    """Pseudo-points over two columns, or over one column and an output; colored by an output."""
    coreset = model.coreset_
    order = drawing.used_points(coreset.beta)  # light points are drawn last, on top
    own = coreset.y.reshape(len(coreset), -1)[order, output or 0]
    at = [drawing.places(coreset.X[order], column) for column in columns]
    is_colored = len(columns) > 1 and (coreset.num_outputs == 1 or output is not None)
    areas = np.maximum(LARGEST_DOT * coreset.beta[order] / coreset.beta.max(), 4.0)
    colors = {"c": own, "cmap": "viridis"} if is_colored else {"color": drawing.BLUE}
    dots = ax.scatter(at[0], [*at, own][1], areas, ec="black", lw=0.4, alpha=0.8, rasterized=True, **colors)
    drawing.readable_ticks(ax)
    ax.set_ylabel(drawing.as_label(target))
    for axis, column in zip((ax.xaxis, ax.yaxis), columns, strict=False):
        drawing.name_axis(axis, column)
    if is_colored:
        ax.figure.colorbar(dots, ax=ax, label=drawing.as_label(target), format=drawing.tick_text)


def plot_weights(model: CVGPRegressor, ax: Axes | None = None) -> Axes:
    """Draw a histogram of the weights of the pseudo-points on a logarithmic axis, with their mean.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> plots.plot_weights(model, ax=Figure().subplots()).get_ylabel()
    'pseudo-points'
    """
    with optional_packages():
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    ax = drawing.axes_or_current(ax)
    beta = model.coreset_.beta
    bins = int(np.clip(2.0 * np.sqrt(len(beta)), FEWEST_BINS, MOST_BINS))
    weights = np.maximum(beta, SMALLEST_SHARE * beta.max())
    # Equal weights are one bar, with room on both sides.
    low, high = min(weights.min(), 0.5 * beta.max()), max(beta.max(), 2.0 * weights.min())
    ax.hist(weights, np.geomspace(low, high * (1 + 1e-9), bins + 1).tolist(), color=drawing.BLUE)
    ax.axvline(beta.mean(), color=drawing.GRAY, ls="--", label=f"mean {drawing.number(beta.mean())}")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,), numticks=6))
    ax.xaxis.set_major_formatter(drawing.tick_text)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="weight (rows that a point counts as)", ylabel="pseudo-points")
    ax.set_title(f"Weights of {len(beta)} pseudo-points")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    ax.legend(frameon=False, fontsize="small")
    return ax


def training_course(model: CVGPRegressor) -> tuple[NDArray[np.int64], Array, Array]:
    """Iterations, bounds per row and validation errors (or NaN) of the last phase that trained the model."""
    phases = model.history_["phase"]
    # Neither the noise nor the line that says whether neighbors are consulted is training.
    is_training = phases != "noise"
    is_training &= (phases != "neighbours") | np.isfinite(model.history_["learning_rate"])
    if model.solver_ != "neighbours":
        is_training &= phases != "neighbours"
    is_shown = is_training & (np.abs(model.history_["bound"]) < LARGEST)
    if not is_shown.any():
        raise InvalidInputError("The history holds no iteration with a finite bound, so there is nothing to draw.")
    last = is_shown & (phases == phases[is_shown][-1])
    iteration, bound, validation = (model.history_[name][last] for name in ("iteration", "bound", "validation_rmse"))
    return iteration, bound, np.where(np.abs(validation) < LARGEST, validation, np.nan)


def column_grid(model: CVGPRegressor, column: UserColumn) -> Array:
    """Values of the column's features [G, w] along an axis: each category, or a grid over the range of the data.

    The axis is the first feature: the number itself, the effect of a level, or the days of a date.
    """
    width = column.features.stop - column.features.start
    if column.categories:
        return np.eye(len(column.categories), width)
    own, coreset, scaling = column.features.start, model.coreset_, model._gp.scaling
    center = scaling.scale_x(np.average(coreset.X, axis=0, weights=coreset.beta)[None])
    low, high = scaling.unscale_x(np.concatenate([center - FARTHEST, center + FARTHEST]))[:, own]
    seen = drawing.feature_quantiles(model)
    inputs = coreset.X[:, own] if seen is None else seen.x[:, own]
    values = np.zeros((GRID, width))  # nothing is missing, and levels have no slopes
    values[:, 0] = np.linspace(max(inputs.min(), low), min(inputs.max(), high), GRID)
    if column.parts:
        dates = date_features(values[:, 0], column.parts)
        values[:, : dates.shape[1]] = dates
    return values


def partial_dependence(model: CVGPRegressor, column: UserColumn, values: Array, output: int = 0) -> tuple[Array, Array]:
    """Mean and standard deviation [G] of the averaged function with the column's features at each of values [G, w]."""
    gp = model._gp
    points, share = heaviest_points(model)
    means, variances = [], []
    for value in values:
        points[:, column.features] = value
        found = Predictive.at(gp, points)
        means.append(share @ found.moments.mean[:, output])
        covariance = found.function_covariance(gp.covariance(points))[:, :, output]
        variances.append(max(float(share @ covariance @ share), 0.0))
    return np.array(means), np.sqrt(variances)


def heaviest_points(model: CVGPRegressor) -> tuple[Array, Array]:
    """Inputs of the coreset's heaviest points, and the shares of their weights."""
    coreset = model.coreset_
    heaviest = np.argsort(-coreset.beta, kind="stable")[:MOST_POINTS]
    return coreset.X[heaviest], coreset.beta[heaviest] / coreset.beta[heaviest].sum()


def draw_dependence(ax: Axes, column: UserColumn, values: Array, mean: Array, sd: Array, spread: float) -> None:
    """Mean predictions along a column with their 95 % interval; the y axis shows `spread` at least."""
    draw_band(ax, column, values, mean - drawing.Z95 * sd, mean + drawing.Z95 * sd, drawing.ORANGE, 0.3, "95 %")
    draw_middle(ax, column, values, mean, drawing.ORANGE, "mean")
    # Differences that are small against the spread of y should look small.
    middle, (low, high) = 0.5 * (mean.min() + mean.max()), ax.get_ylim()
    ax.set_ylim(min(low, middle - 0.5 * spread), max(high, middle + 0.5 * spread))


def draw_band(
    ax: Axes, column: UserColumn, values: Array, low: Array, high: Array, color: str, alpha: float, label: str
) -> None:
    """An interval at each place along a column: a band, or a bar for each category."""
    if column.categories:
        ax.vlines(np.arange(len(values)), low, high, color=color, alpha=alpha, lw=6, label=label)
    else:
        ax.fill_between(values[:, 0], low, high, color=color, alpha=alpha, lw=0, label=label)


def draw_middle(ax: Axes, column: UserColumn, values: Array, middle: Array, color: str, label: str) -> None:
    """A value at each place along a column: a line, or a dot for each category; above the dots of the coreset."""
    at = np.arange(len(values)) if column.categories else values[:, 0]
    ax.plot(at, middle, "o" if column.categories else "-", color=color, lw=2, zorder=4, label=label)


def finish_along(ax: Axes, column: UserColumn, values: Array) -> None:
    """Limits, ticks and the name of an axis that runs along a column."""
    low, high = (0.0, len(values) - 1.0) if column.categories else (values[0, 0], values[-1, 0])
    margin = 0.6 if column.categories else 0.02 * (high - low) or 1.0
    ax.set_xlim(low - margin, high + margin)
    drawing.readable_ticks(ax)
    drawing.name_axis(ax.xaxis, column)


def draw_points(ax: Axes, model: CVGPRegressor, feature: int) -> None:
    """The pseudo-points over one feature, colored by weight; the limits of y stay near the data.

    A pseudo-point of little weight may lie far from all data, and would squeeze everything else into a line.
    """
    coreset, gp = model.coreset_, model._gp
    center = np.average(gp.target.apply(coreset.y.reshape(-1, 1)), weights=coreset.beta, axis=0)  # [1]
    least, most = (gp.target.invert(center + side * gp.scaling.y_scale)[0] for side in (-3.5, 3.5))
    low, high = ax.get_ylim()
    order = drawing.used_points(coreset.beta)[::-1]  # heavy points are drawn last, on top
    y = coreset.y.reshape(-1)[order]
    x, weight, area = coreset.X[order, feature], coreset.beta[order], min(max(1500 / len(order), 9), 24)
    points = ax.scatter(x, y, area, weight, cmap="viridis", ec="black", lw=0.4, zorder=3, label="coreset")
    ax.set_ylim(min(low, max(y.min(), least)), max(high, min(y.max(), most)))
    ax.figure.colorbar(points, ax=ax, label="weight")
