"""The course of training: the bound over the iterations of the solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.plots.style import BLUE, ORANGE, as_label, axes_or_current

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor

LARGEST = 1e200
"""Larger numbers leave no room for an axis around them."""


def plot_training(model: CVGPRegressor, ax: Axes | None = None) -> Axes:
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
    >>> ax = plots.plot_training(model, Figure().subplots())
    >>> ax.get_xlabel()
    'iteration'
    """
    ax = axes_or_current(ax)
    iteration, bound, validation = training_course(model)
    ax.plot(iteration, bound, color=BLUE)
    ax.set_ylim(settled_range(bound))
    ax.set(
        xlabel="iteration",
        ylabel="bound (nats per row, standardised y)",
        title=f"Training by {as_label(model.solver_)}",
    )
    checked = np.isfinite(validation)
    if checked.any():
        ax.yaxis.label.set_color(BLUE)
        twin = ax.twinx()
        twin.plot(iteration[checked], validation[checked], color=ORANGE, ls="--")
        twin.set_ylabel("validation RMSE (in sd of y)", color=ORANGE)
    return ax


class Course(NamedTuple):
    """Iterations of the solver that trained the model."""

    iteration: NDArray[np.int64]
    bound: Array
    """Nats per row, in the model's units."""
    validation_rmse: Array
    """NaN where it was not checked."""


def training_course(model: CVGPRegressor) -> Course:
    """The history of the last phase that trained the model."""
    phases = model.history_["phase"]
    # What the noise gains is no training, nor is the line that says whether neighbours are consulted.
    is_training = phases != "noise"
    is_training &= (phases != "neighbours") | np.isfinite(model.history_["learning_rate"])
    if model.solver_ != "neighbours":
        is_training &= phases != "neighbours"
    is_shown = is_training & (np.abs(model.history_["bound"]) < LARGEST)
    if not is_shown.any():
        raise InvalidInputError("The history holds no iteration with a finite bound, so there is nothing to draw.")
    last = is_shown & (phases == phases[is_shown][-1])
    iteration, bound, validation = (model.history_[name][last] for name in Course._fields)
    return Course(iteration, bound, np.where(np.abs(validation) < LARGEST, validation, np.nan))


def settled_range(bound: Array) -> tuple[float, float]:
    """The limits of an axis for the bound: the first few iterations gain so much that the rest would look flat."""
    settled = bound[len(bound) // 10 :]
    margin = max(0.1 * (settled.max() - settled.min()), 1e-3)
    return float(settled.min() - margin), float(settled.max() + margin)
