"""The units that a model is fitted in: numbers of size one for the solver, without a change of the prior.

Starts, limits and the steps of Adam suit numbers of about one. With ``standardize=True`` every column gets mean zero
and variance one. Otherwise the prior is to be that of the data as they are, which leaves only changes that it cannot
feel: a unit is absorbed by a learned lengthscale or outputscale, and an origin by a kernel of differences or by a
learned mean.

What the data cannot teach is said before the fit begins.
"""

import math
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.means import Mean

from cvgp.data.rows import Array
from cvgp.data.scaling import Scaling, Spread, constant_output_sd, no_scaling
from cvgp.data.source import DataSource
from cvgp.data.target import IDENTITY, TargetTransform
from cvgp.errors import CVGPWarning
from cvgp.gp.contamination import Contamination

FARTHEST_INPUT = 1e3
"""Inputs of more standard deviations count as this many: distances of float64 would lose the others' digits."""
MOST_NAMES = 10
"""Columns that a warning names."""
FEW_ROWS = 30
"""Weights that add up to more than this leave something to learn, however small they are."""


class Sources(NamedTuple):
    """Scaled rows, and what they were scaled by."""

    train: DataSource
    held_out: DataSource | None
    """The rows of early stopping."""
    scaling: Scaling
    spread: Spread | None
    """Of the scaled rows; None where every column has variance one."""
    only_y: Array | None
    """The outputs [Q] of all rows, where these have the same."""
    target: TargetTransform
    """What y became before it was scaled."""
    outliers: Contamination | None
    """Where some rows are wildly wrong; the rows count by the probability that they are not."""
    log_slopes: float
    """The sum over rows and outputs of log T'(y), by which a bound for T(y) differs from one for y."""

    @classmethod
    def of(
        cls,
        train: DataSource,
        held_out: DataSource | None,
        scaling: Scaling,
        learned: Scaling,
        *,
        y_varies: bool,
        target: TargetTransform = IDENTITY,
        outliers: Contamination | None = None,
        log_slopes: float = 0.0,
    ) -> "Sources":
        """With the spread that a scaling leaves of the means and standard deviations of the data."""
        as_learned = all(own is known for own, known in zip(scaling[:4], learned[:4], strict=True))
        is_standard = as_learned and scaling.varies.all()
        spread = None if is_standard else Spread.left_by(scaling, learned)
        only_y = None if y_varies else target.invert(learned.y_mean)
        return cls(train, held_out, scaling, spread, only_y, target, outliers, log_slopes)

    @property
    def known_noise(self) -> float | None:
        """The noise variance of outputs without spread, in the model's units: that of the scale they were given."""
        if self.only_y is None:
            return None
        return 1.0 if self.spread is None else self.spread.y**2


Units = Callable[[Scaling, bool], Scaling]
"""From the means and standard deviations of the data, and whether y varies, to what they are scaled by."""


def model_units(
    learned: Scaling,
    y_varies: bool = True,
    *,
    standardize: bool,
    kernel: str | Kernel | None,
    mean: str | Mean,
    ard: bool,
) -> Scaling:
    """From the user's units to those of the model, given the means and standard deviations of the data.

    Without standardising, a kernel or mean that is an object sees the data as they are. For one by name, lengthscales
    per column allow units per column, and one for all allows a common one. Outputs share a covariance, hence a unit.
    A constant column stays one. Outputs without spread cannot say what of them is function and what is noise: their
    origin is their value.
    """
    by_name = not (isinstance(kernel, Kernel) or isinstance(mean, Mean))
    # What is linear may go on beyond any limit; a kernel of distances is at its prior long before.
    x_limit = FARTHEST_INPUT if by_name and "linear" not in str(kernel) else math.inf
    if standardize:
        return learned._replace(x_limit=x_limit)
    varies = learned.varies
    if not by_name:
        plain = no_scaling(len(learned.x_mean), len(learned.y_mean))
        return plain._replace(x_mean=np.where(varies, 0.0, learned.x_mean), x_scale=np.where(varies, 1.0, 0.0))
    x_mean = np.where(varies, 0.0, learned.x_mean) if kernel == "linear" else learned.x_mean
    x_scale = learned.x_scale if ard else np.where(varies, learned.x_scale.max(), 0.0)
    y_mean = learned.y_mean if mean == "constant" or not y_varies else np.zeros_like(learned.y_mean)
    return Scaling(x_mean, x_scale, y_mean, np.full_like(learned.y_scale, learned.y_scale.max()), x_limit)


def notice_one_output(only_y: Array | None, total_weight: float) -> None:
    """Warn of outputs with one value in all rows, whose spread is a convention."""
    if only_y is None:
        return
    sd = constant_output_sd(only_y, np.full_like(only_y, total_weight))
    warnings.warn(
        f"y is {_listed(only_y)} in every row, which says nothing of its spread. "
        f"The standard deviation of predictions is set to |y| divided by the number of rows, {_listed(sd)}.",
        CVGPWarning,
        stacklevel=3,
    )


def _listed(values: Array) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def notice_weights(total_weight: float, num_rows: int) -> None:
    """Warn of weights that make a handful of rows of many: mostly weights that were meant to compare rows."""
    if total_weight > min(num_rows / 2, FEW_ROWS):
        return
    warnings.warn(
        f"The sample weights of {num_rows} rows add up to {total_weight:.3g}. A row of weight w counts as w rows, so "
        f"there is as little to learn as from {total_weight:.3g} rows. Weights that are to compare rows should have a "
        "mean of one: divide them by their mean.",
        CVGPWarning,
        stacklevel=3,
    )


def notice_constants(scaling: Scaling, names: Sequence[str], num_rows: int, quiet: Collection[str] = ()) -> None:
    """Warn of columns that have one value in all of several rows, but for quiet ones; a single row has no other."""
    pairs = zip(names, scaling.varies, strict=True)
    constant = [name for name, varies in pairs if not varies and name not in quiet]
    if num_rows == 1 or not constant:
        return
    shown = ", ".join(map(repr, constant[:MOST_NAMES])) + (", ..." if len(constant) > MOST_NAMES else "")
    what = "so the model predicts one value" if len(constant) == len(names) else "so the model leaves them out"
    warnings.warn(
        f"Columns with one value in all rows: {shown} ({len(constant)} of {len(names)}). They teach nothing, "
        f"{what}, and no prediction depends on them.",
        CVGPWarning,
        stacklevel=3,
    )
