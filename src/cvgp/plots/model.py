"""The pictures: what a fit found, how it was trained, and how well it predicts rows that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvgp import metrics
from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, optional_packages
from cvgp.estimators.display import number
from cvgp.estimators.explaining import Explanation, signed
from cvgp.estimators.frames import UserColumn, user_columns
from cvgp.estimators.inputs import check_observed
from cvgp.estimators.predictive import Predictive
from cvgp.plots import drawing
from cvgp.tables.columns import PLACE, Column, date_features
from cvgp.tables.encode import features_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.classifier import CVGPClassifier
    from cvgp.estimators.regressor import CVGPRegressor

GRID = 30
MOST_POINTS = 50  # averages are over the heaviest points; more of them cost much and change little
LEVELS = np.linspace(0.05, 0.95, 19)  # the probabilities of the intervals that calibration is shown by
LARGEST = 1e200  # larger bounds leave no room for an axis around them
SOLVER_NAMES = {"exact": "exact GP", "lbfgs": "L-BFGS", "adam": "Adam"}


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
    along = Along(ax, model, drawing.varying_column(model, column))
    if X is not None:
        x, observed = np.asarray(X, dtype=np.float64).reshape(-1), np.asarray(y, dtype=np.float64).reshape(-1)
        margin, shown = 0.1 * np.ptp(x), drawing.some_rows(len(x))
        along.values = np.linspace(x.min() - margin, x.max() + margin, 300)[:, None]
        ax.scatter(x[shown], observed[shown], s=7, color=drawing.GRAY, alpha=0.5, lw=0, label="data")
    scaled = gp.scaling.scale_x(model.coreset_.X)
    away = scaled - np.average(scaled, axis=0, weights=model.coreset_.beta)
    rows = np.repeat(model.coreset_.X[[np.square(away).sum(axis=1).argmin()]], len(along.values), axis=0)
    rows[:, along.column.features] = along.values
    found = Predictive.at(gp, rows, gp.one_exposure)
    mean, far = found.moments.mean[:, 0], drawing.Z95 * np.sqrt(found.moments.f_variance[:, 0])
    low, high = found.quantiles(np.array([0.025, 0.975]))[:, 0].T
    along.band(low, high, drawing.BLUE, 0.15, "95 % of new data")
    along.band(mean - far, mean + far, drawing.BLUE, 0.4, "95 % of the function")
    along.line(mean, drawing.BLUE, "mean")
    if num_inputs == 1:
        draw_points(ax, model, along.column)
    along.finish()
    ax.set_ylabel(drawing.as_label(drawing.expected_name(model)))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize="small")
    return ax


def plot_partial_dependence(model: CVGPRegressor, column: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw how the prediction changes with one column, while the others are as in the coreset.

    The line is the mean prediction over the coreset's points, weighted by their weights, with the column set to the
    value on the axis. The band is the 95 % credible interval of that mean. Dots are the pseudo-points themselves. Of
    counts with exposures, it is the rate: the count for an exposure of 1.
    """
    along = Along(drawing.axes_or_current(ax), model, drawing.varying_column(model, column))
    draw_dependence(along)
    if not along.column.labels:
        draw_points(along.ax, model, along.column)
    along.finish()
    along.ax.set(ylabel=drawing.as_label(drawing.expected_name(model)), title="Partial dependence")
    return along.ax


def plot_noise(model: CVGPRegressor, column: str | int | None = None, ax: Axes | None = None) -> Axes:
    """Draw how the noise changes with one column, while the others are as in the coreset.

    The line is the root mean square of the noise's standard deviation over the coreset's points, weighted by their
    weights, with the column set to the value on the axis. The band holds the noise of nine in ten of the points.
    """
    along = Along(drawing.axes_or_current(ax), model, drawing.varying_column(model, column))
    share, rows = along.rows()
    variances = np.array([Predictive.at(model._gp, x).moments.noise_variance[:, 0] for x in rows])  # [G, P]
    low, high = np.quantile(np.sqrt(variances), (0.05, 0.95), axis=1)
    along.band(low, high, drawing.ORANGE, 0.3, "90 % of the points")
    along.line(np.sqrt(variances @ share), drawing.ORANGE, "root mean square")
    along.finish()
    along.ax.set(ylabel=f"noise sd of {drawing.as_label(drawing.target_name(model))}", title="Noise")
    along.ax.set_ylim(bottom=0.0)
    return along.ax


def plot_relevance(model: CVGPRegressor, ax: Axes | None = None, top: int = 10) -> Axes:
    """Draw the `top` largest `feature_importances_` as bars, the part that is interaction in a light color."""
    ax = drawing.axes_or_current(ax)
    found, columns, varies = model.sobol_indices(), user_columns(model), model._gp.scaling.varies
    shown = [j for j in np.argsort(-found.total, kind="stable") if varies[columns[j].features].any()][:top][::-1]
    alone, share, error = found.first_order[shown], found.total[shown], found.total_error[shown]
    at = np.arange(len(shown))
    ax.barh(at, alone, color=drawing.BLUE, label="by itself")
    light: dict[str, Any] = {"color": drawing.BLUE, "alpha": 0.35, "label": "in interaction"}
    bars = ax.barh(at, share - alone, left=alone, xerr=error, ecolor=drawing.GRAY, **light)
    ax.set_yticks(at, labels=[drawing.as_label(columns[j].name, 24) for j in shown])
    ax.bar_label(bars, [f"{value:.2f}" for value in share], padding=3)
    ax.set_xlim(0.0, 1.25 * float((share + error).max(initial=0.01)))  # with room for the numbers
    ax.set(xlabel="share of the variance", title="Importance")
    ax.legend(loc="lower right", frameon=False, fontsize="small")
    return ax


def plot_explanation(explanation: Explanation, ax: Axes | None = None, top: int = 8) -> Axes:
    """Draw the `top` effects of an explanation as steps from the baseline to the prediction, with 95 % intervals."""
    ax = drawing.axes_or_current(ax)
    order = np.argsort(-np.abs(explanation.effects), kind="stable")
    names = [f"{explanation.columns[j]} = {explanation.values[j]}" for j in order[:top]]
    groups = np.eye(len(order))[order[:top]]  # [k, C]
    if len(order) > top:
        groups, names = np.vstack([groups, 1.0 - groups.sum(axis=0)]), [*names, f"{len(order) - top} other columns"]
    groups, names, at = groups[::-1], names[::-1], np.arange(len(names))
    effects, sd = groups @ explanation.effects, np.sqrt((groups @ explanation.covariance * groups).sum(axis=1).clip(0))
    ends = explanation.baseline + np.cumsum(effects)
    colors = np.where(effects < 0.0, drawing.ORANGE, drawing.BLUE).tolist()
    ax.vlines([explanation.baseline, *ends], [-0.6, *at], [0, *at[1:], len(at) - 0.4], color=drawing.GRAY, lw=0.8)
    bars = ax.barh(at, effects, 0.6, ends - effects, color=colors, xerr=drawing.Z95 * sd, ecolor=drawing.GRAY)
    ax.bar_label(bars, [signed(value) for value in effects], padding=3, fontsize="small")
    ax.margins(x=0.15)
    drawing.readable_ticks(ax)
    ax.set_yticks(at, labels=[drawing.as_label(name, 32) for name in names])
    ax.set_ylim(-0.6, len(at) - 0.4)
    ax.set_xlabel(drawing.as_label(explanation.target))
    ax.set_title(f"{number(explanation.baseline)} on average, {number(explanation.prediction)} here")
    return ax


def plot_training(model: CVGPRegressor, ax: Axes | None = None) -> Axes:
    """Draw the log-likelihood or its bound over the last run of training, and the validation error if there is one."""
    ax = drawing.axes_or_current(ax)
    history, phases = model.history_, model.history_["phase"]
    is_shown = (phases != "noise") & (np.abs(history["bound"]) < LARGEST)
    if not is_shown.any():
        raise InvalidInputError("The history holds no iteration with a finite bound, so there is nothing to draw.")
    is_shown &= phases == phases[is_shown][-1]
    shown = np.flatnonzero(is_shown)
    restarts = np.flatnonzero(np.diff(history["iteration"][shown]) <= 0)  # a fit to other rows, or of another model
    is_shown[shown[: restarts[-1] + 1 if len(restarts) else 0]] = False
    iteration, bound, validation = (history[name][is_shown] for name in ("iteration", "bound", "validation_rmse"))
    ax.plot(iteration, bound, color=drawing.BLUE, marker="o" if len(bound) == 1 else "")
    # The first iterations gain so much that the others would look flat.
    settled = bound[len(bound) // 10 :]
    margin = max(0.1 * np.ptp(settled), 1e-3)
    ax.set_ylim(settled.min() - margin, settled.max() + margin)
    drawing.readable_ticks(ax)
    ax.locator_params(axis="x", integer=True)
    ax.set(xlabel="iteration", ylabel="log-likelihood per row")
    ax.set_title(f"Training ({drawing.as_label(SOLVER_NAMES.get(model.solver_, model.solver_))})")
    checked = np.abs(validation) < LARGEST  # not NaN
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
    coreset, target = model.coreset_, target if model.likelihood_ is None else f"f of {target}"
    order = drawing.used_points(coreset.beta)  # light points are drawn last, on top
    own = coreset.y.reshape(len(coreset), -1)[order, output or 0]
    at = [drawing.places(coreset.X[order], column) for column in columns]
    is_colored = len(columns) > 1 and (coreset.num_outputs == 1 or output is not None)
    largest = np.clip(9000.0 / len(order), 12.0, 180.0)  # in square points of a page
    areas = np.maximum(largest * coreset.beta[order] / coreset.beta.max(), 4.0)
    colors = {"c": own, "cmap": "viridis"} if is_colored else {"color": drawing.BLUE}
    dots = ax.scatter(at[0], [*at, own][1], areas, ec=drawing.GRAY, lw=0.4, alpha=0.8, rasterized=True, **colors)
    drawing.readable_ticks(ax)
    ax.set_ylabel(drawing.as_label(target))
    for axis, column in zip((ax.xaxis, ax.yaxis), columns, strict=False):
        drawing.name_axis(axis, column)
    if is_colored:
        ax.figure.colorbar(dots, ax=ax, label=drawing.as_label(target), format=drawing.tick_text)


def plot_weights(model: CVGPRegressor, ax: Axes | None = None) -> Axes:
    """Draw a histogram of the weights of pseudo-points on a logarithmic axis, with their mean, without tiny ones."""
    with optional_packages():
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    ax = drawing.axes_or_current(ax)
    beta = model.coreset_.beta
    beta = beta[drawing.used_points(beta)]
    bins = int(np.clip(2.0 * np.sqrt(len(beta)), 4, 20))
    # Equal weights are one bar, with room on both sides.
    low, high = min(beta.min(), 0.5 * beta.max()), max(beta.max(), 2.0 * beta.min())
    ax.hist(beta, np.geomspace(low, high * (1 + 1e-9), bins + 1).tolist(), color=drawing.BLUE)
    ax.axvline(beta.mean(), color=drawing.GRAY, ls="--", label=f"mean {number(beta.mean())}")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100.0 * low else (1.0,), numticks=6))
    ax.xaxis.set_major_formatter(drawing.tick_text)
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="weight (rows that a point counts as)", ylabel="pseudo-points")
    ax.set_title(f"Weights of {len(beta)} pseudo-points")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    ax.legend(frameon=False, fontsize="small")
    return ax


class Along:
    """Axes whose x runs along a column of a model: each category, or a grid over the range of the data."""

    def __init__(self, ax: Axes, model: CVGPRegressor, column: UserColumn) -> None:
        self.ax, self.model, self.column = ax, model, column
        self.values = self._grid()  # of the features [G, w]: first the number, the effect of a level, days or a cycle

    def _grid(self) -> Array:
        own, width = self.column.features.start, self.column.features.stop - self.column.features.start
        if self.column.is_boolean:
            return np.eye(2, width, k=-1)
        if self.column.categories:
            return np.eye(len(self.column.categories), width)
        coreset, scaling = self.model.coreset_, self.model._gp.scaling
        center = scaling.scale_x(np.average(coreset.X, axis=0, weights=coreset.beta)[None])
        low, high = scaling.unscale_x(np.concatenate([center - 3.0, center + 3.0]))[:, own]  # standard deviations
        seen = getattr(self.model, "_feature_quantiles", None)
        inputs = coreset.X[:, own] if seen is None else seen.x[:, own]
        values = np.zeros((GRID, width))  # nothing is missing, and levels have no slopes
        values[:, 0] = np.linspace(max(inputs.min(), low), min(inputs.max(), high), GRID)
        if drawing.is_cyclic(self.column):  # the other parts are at the centers of their circles
            angles = np.linspace(0.0, 2.0 * np.pi, GRID, endpoint=False)
            values[:, :2] = np.column_stack([np.sin(angles), np.cos(angles)])
        elif self.column.is_place:  # along the meridian through the middle of the data
            points = coreset.X[:, self.column.features]
            north, (_, x, y) = drawing.along(points, self.column), points.mean(axis=0)
            longitude = np.degrees(np.arctan2(y, x)) % 360.0
            cells = np.column_stack([np.linspace(north.min(), north.max(), GRID), np.full(GRID, longitude)])
            values = features_of([Column("", kind) for kind in PLACE], cells)
        elif self.column.parts:
            dates = date_features(values[:, 0], self.column.parts)
            values[:, : dates.shape[1]] = dates
        return values

    @property
    def at(self) -> Array:
        """Where each value is on the axis."""
        if self.column.labels:
            return np.arange(float(len(self.values)))
        return drawing.along(self.values, self.column)

    def rows(self) -> tuple[Array, Iterator[Array]]:
        """Shares of the coreset's heaviest points, and for each value their inputs with the column set to it."""
        coreset = self.model.coreset_
        heaviest = np.argsort(-coreset.beta, kind="stable")[:MOST_POINTS]

        def inputs() -> Iterator[Array]:
            for value in self.values:
                points = coreset.X[heaviest]
                points[:, self.column.features] = value
                yield points

        return coreset.beta[heaviest] / coreset.beta[heaviest].sum(), inputs()

    def band(self, low: Array, high: Array, color: str, alpha: float, label: str) -> None:
        """An interval at each value: a band, or a bar for each category."""
        if self.column.labels:
            self.ax.vlines(self.at, low, high, color=color, alpha=alpha, lw=6, label=label)
        else:
            self.ax.fill_between(self.at, low, high, color=color, alpha=alpha, lw=0, label=label)

    def line(self, middle: Array, color: str, label: str) -> None:
        """A line, or a dot for each category; above the dots of the coreset."""
        marker = "o" if self.column.labels else "-"
        self.ax.plot(self.at, middle, marker, color=color, lw=2, zorder=4, label=label)

    def finish(self) -> None:
        """Limits, ticks and the name of the axis."""
        low, high = self.at[0], self.at[-1]
        margin = 0.6 if self.column.labels else 0.02 * (high - low) or 1.0
        self.ax.set_xlim(low - margin, high + margin)
        drawing.readable_ticks(self.ax)
        drawing.name_axis(self.ax.xaxis, self.column)


def draw_dependence(along: Along, output: int = 0) -> tuple[Array, Array]:
    """Draw the averaged function along a column with its 95 % interval; gives its mean and standard deviation [G]."""
    gp, (share, rows) = along.model._gp, along.rows()
    means, variances = [], []
    for x in rows:
        found = Predictive.at(gp, x, gp.one_exposure)
        means.append(share @ found.moments.mean[:, output])
        covariance = found.function_covariance(gp.covariance(x))[:, :, output]
        variances.append(max(float(share @ covariance @ share), 0.0))
    mean, sd = np.array(means), np.sqrt(variances)
    along.band(mean - drawing.Z95 * sd, mean + drawing.Z95 * sd, drawing.ORANGE, 0.3, "95 %")
    along.line(mean, drawing.ORANGE, "mean")
    # Differences that are small against the spread of y should look small.
    middle, spread, (low, high) = 0.5 * (mean.min() + mean.max()), float(gp.y_spread[output]), along.ax.get_ylim()
    along.ax.set_ylim(min(low, middle - 0.5 * spread), max(high, middle + 0.5 * spread))
    return mean, sd


def draw_points(ax: Axes, model: CVGPRegressor, column: UserColumn) -> None:
    """The pseudo-points over one column, colored by weight; the limits of y stay near the data."""
    coreset, gp = model.coreset_, model._gp
    center = np.average(gp.target.apply(coreset.y.reshape(-1, 1)), weights=coreset.beta, axis=0)  # [1]
    least, most = (gp.expected(center + side * gp.scaling.y_scale)[0] for side in (-3.5, 3.5))
    low, high = ax.get_ylim()
    order = drawing.used_points(coreset.beta)[::-1]  # heavy points are drawn last, on top
    y = coreset.y.reshape(-1)[order]
    y = y if gp.likelihood is None else gp.expected(y)
    x, weight, area = drawing.places(coreset.X[order], column), coreset.beta[order], min(max(1500 / len(order), 9), 24)
    points = ax.scatter(x, y, area, weight, cmap="viridis", ec="black", lw=0.4, zorder=3, label="coreset")
    ax.set_ylim(min(low, max(y.min(), least)), max(high, min(y.max(), most)))
    ax.figure.colorbar(points, ax=ax, label="weight")


def plot_calibration(
    model: CVGPRegressor, X: Any, y: ArrayLike, ax: Axes | None = None, *, exposure: Any = None
) -> Axes:
    """Draw the share of observations inside central intervals against the probability that the intervals claim.

    Above the diagonal the model is less certain than it could be, below it more certain than it should be. Intervals of
    counts end at whole numbers, and hold more than they claim.
    """
    ax = drawing.axes_or_current(ax)
    found = drawing.one_output(model)._predictive(X, exposure)
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


def plot_reliability(model: CVGPClassifier, X: Any, y: ArrayLike, ax: Axes | None = None) -> Axes:
    """Draw how often probabilities came true: those of the second of two classes, or of the predicted one of several.

    On the diagonal, probabilities are calibrated. The area of a dot is the number of rows, and bars are what chance
    allows.
    """
    ax = drawing.axes_or_current(ax)
    draw_reliability(ax, model, metrics.reliability(model._codes(y), model.predict_proba(X)))
    ax.set_title("Reliability")
    return ax


def chance_of_bins(found: metrics.Reliability) -> Array:
    """How far the share of each bin is from its probability by chance, in 95 of 100 cases."""
    return drawing.Z95 * np.sqrt(found.probability * (1.0 - found.probability) / found.num_rows)


def draw_reliability(ax: Axes, model: CVGPClassifier, found: metrics.Reliability) -> None:
    """The share of each bin by its probability, with what chance allows."""
    low, high = (np.clip(found.probability + side * chance_of_bins(found), 0.0, 1.0) for side in (-1.0, 1.0))
    ax.vlines(found.probability, low, high, color=drawing.GRAY, alpha=0.3, lw=6, label="chance (95 %)")
    ax.plot([0, 1], [0, 1], color=drawing.GRAY, lw=1)
    areas = 10.0 + 90.0 * found.num_rows / found.num_rows.max()
    ax.plot(found.probability, found.share, color=drawing.BLUE, lw=1)
    ax.scatter(found.probability, found.share, areas, color=drawing.BLUE, zorder=3, label="model")
    own = drawing.as_label(str(model.classes_[1]), 24) if len(model.classes_) == 2 else "the predicted class"
    ax.set(xlabel=f"probability of {own}", ylabel="share that came true", box_aspect=1)
    ax.legend(loc="upper left", framealpha=0.7, edgecolor="none", fontsize="small")


def plot_predicted(model: CVGPRegressor, X: Any, y: ArrayLike, ax: Axes | None = None, *, exposure: Any = None) -> Axes:
    """Draw observations against predictions, and mark those outside their 95 % interval."""
    ax = drawing.axes_or_current(ax)
    found = drawing.one_output(model)._predictive(X, exposure)
    mean, (low, high) = found.moments.mean[:, 0], found.quantiles(np.array([0.025, 0.975]))[:, 0].T
    observed = check_observed(y, (len(mean),))
    draw_predicted(ax, mean, observed, (observed < low) | (observed > high), drawing.target_name(model))
    ax.set_title(f"Predictions: RMSE {number(metrics.rmse(observed, mean))}")
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
