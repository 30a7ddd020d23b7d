"""What the pictures share: colours, bands, and the coreset's points.

Colours are told apart by people with any kind of colour vision: two of Okabe and Ito's set, and viridis for weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.extras import optional_packages
from cvgp.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"
Z95 = float(ndtri(0.975))
MOST_POINTS = 2000
"""A scatter plot of more points than this shows a random choice of them."""
REACH = 3.5
"""Standard deviations of y from the middle of the coreset that a picture shows."""


def as_label(name: str) -> str:
    """A name from data as text of a picture: a dollar sign begins no formula, and nothing moves the writing."""
    return printable(name).replace("$", r"\$")


def axes_or_current(ax: Axes | None) -> Axes:
    """The axes to draw on."""
    if ax is not None:
        return ax
    with optional_packages():
        import matplotlib.pyplot as plt

    return plt.gca()


def one_output(model: CVGPRegressor) -> CVGPRegressor:
    """The model, if a picture of it can be drawn."""
    if model.coreset_.num_outputs != 1:
        raise InvalidInputError(f"Pictures are of one output, but the model has {model.coreset_.num_outputs}.")
    return model


def draw_band(ax: Axes, x: Array, mean: Array, sd: Array, alpha: float, label: str, color: str = BLUE) -> None:
    """A central interval of 95 %."""
    ax.fill_between(x, mean - Z95 * sd, mean + Z95 * sd, color=color, alpha=alpha, lw=0, label=label)


def draw_coreset(ax: Axes, model: CVGPRegressor, feature: int) -> None:
    """The pseudo-points over one feature, coloured by weight; the limits of y stay within reach of the data.

    A pseudo-point of little weight may lie far from all data, and would squeeze everything else into a line.
    """
    coreset, target, scaling = model.coreset_, model.gp_.target, model.gp_.scaling
    centre = np.average(target.apply(coreset.y.reshape(-1, 1)), weights=coreset.beta, axis=0)  # [1]
    least, most = (target.invert(centre + side * REACH * scaling.y_scale)[0] for side in (-1.0, 1.0))
    low, high = ax.get_ylim()
    order = np.argsort(coreset.beta)  # the heavy ones are drawn last, on top
    points = ax.scatter(
        coreset.X[order, feature],
        coreset.y.reshape(-1)[order],
        c=coreset.beta[order],
        s=min(max(1500 / len(order), 9), 24),
        cmap="viridis",
        ec="black",
        lw=0.4,
        zorder=3,
        label="coreset",
    )
    bottom, top = ax.get_ylim()
    ax.set_ylim(min(low, max(bottom, least)), max(high, min(top, most)))
    ax.figure.colorbar(points, ax=ax, label="weight")


def some_rows(count: int) -> NDArray[np.intp]:
    """Row numbers to show: all, or a random choice of many."""
    if count <= MOST_POINTS:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MOST_POINTS, replace=False))
