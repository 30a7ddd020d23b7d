"""The coreset itself: where its points are, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.extras import optional_packages
from cvgp.plots.columns import column_places, find_column, most_important, target_name, write_dates
from cvgp.plots.style import BLUE, GREY, as_label, axes_or_current

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor

LARGEST_DOT = 180.0
"""The area of the heaviest point, in square points of a page."""
SMALLEST_SHARE = 1e-6
"""Weights that are a smaller share of the largest one are drawn as this one."""
FEWEST_BINS, MOST_BINS = 4, 20


def plot_coreset(model: CVGPRegressor, columns: Sequence[str | int] | None = None, ax: Axes | None = None) -> Axes:
    """Draw where the pseudo-points are, over two columns: their areas are weights, their colours pseudo-outputs.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted. The points of several outputs have one colour.
    columns : two of str or int, optional
        Names or positions among the table's columns, where the model knows its table, or else among the features. The
        two most important columns by default. A model of one column is drawn over it and the pseudo-output.
    ax : matplotlib Axes, optional
        The current axes by default.

    Returns
    -------
    matplotlib Axes
        Those that were drawn on.

    Raises
    ------
    InvalidInputError
        If `columns` are not two, or there is no such column.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> from matplotlib.figure import Figure
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(3 * X[:, 1]))
    >>> ax = plots.plot_coreset(model, ["x0", "x1"], Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x0', 'x1')
    """
    if columns is not None and len(columns) != 2:
        raise InvalidInputError(f"A coreset is drawn over two columns; got {list(columns)}.")
    ax = axes_or_current(ax)
    chosen = most_important(model, 2) if columns is None else [find_column(model, name) for name in columns]
    coreset, order = model.coreset_, np.argsort(-model.coreset_.beta)  # light points are drawn last, on top
    places = [column_places(model, column) for column in chosen]
    colours: Array | str = coreset.y.reshape(len(coreset), -1)[order, 0] if coreset.num_outputs == 1 else BLUE
    if len(places) == 1:
        places, colours = [*places, coreset.y.reshape(len(coreset), -1)[:, 0]], BLUE
    area = np.maximum(LARGEST_DOT * coreset.beta / coreset.beta.max(), 4.0)
    dots = ax.scatter(
        places[0][order],
        places[1][order],
        s=area[order],
        c=colours,
        cmap=None if isinstance(colours, str) else "viridis",
        ec="black",
        lw=0.4,
        alpha=0.8,
    )
    second = chosen[1].name if len(chosen) > 1 else target_name(model)
    ax.set(xlabel=as_label(chosen[0].name), ylabel=as_label(second))
    for axis, column in zip((ax.xaxis, ax.yaxis), chosen, strict=False):
        write_dates(axis, column)
        if column.categories:
            axis.set_ticks(range(len(column.categories)), labels=[as_label(category) for category in column.categories])
    ax.set_title(f"{len(coreset)} pseudo-points, sized by weight")
    if not isinstance(colours, str):
        ax.figure.colorbar(dots, ax=ax, label=as_label(target_name(model)))
    return ax


def plot_weights(model: CVGPRegressor, ax: Axes | None = None) -> Axes:
    """Draw a histogram of the weights of the pseudo-points, with their mean.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.
    ax : matplotlib Axes, optional
        The current axes by default. Its first axis becomes logarithmic.

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
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> ax = plots.plot_weights(model, Figure().subplots())
    >>> ax.get_xlabel()
    'weight (rows that a point counts as)'
    """
    with optional_packages():
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

    ax = axes_or_current(ax)
    coreset = model.coreset_
    counts, edges = weight_histogram(coreset.beta)
    ax.stairs(counts, edges, fill=True, color=BLUE)
    ax.axvline(coreset.beta.mean(), color=GREY, ls="--", label=f"mean {coreset.beta.mean():.3g}")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="weight (rows that a point counts as)", ylabel="pseudo-points")
    ax.set_title(f"Weights: {len(coreset)} points, effective size {coreset.effective_size:.0f}")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(frameon=False, fontsize="small")
    return ax


def weight_histogram(beta: Array) -> tuple[NDArray[np.int64], Array]:
    """How many weights [M] are in each bin, and the ends of the bins, which are equally wide on a logarithmic axis."""
    largest = float(beta.max())
    weights = np.maximum(beta, SMALLEST_SHARE * largest)
    # Equal weights are one bar, with room on both sides.
    low, high = min(float(weights.min()), 0.5 * largest), max(largest, 2.0 * float(weights.min()))
    bins = int(np.clip(2.0 * np.sqrt(len(beta)), FEWEST_BINS, MOST_BINS))
    edges = np.geomspace(low, high * (1 + 1e-9), bins + 1)
    counts, _ = np.histogram(weights, edges)
    return counts, edges
