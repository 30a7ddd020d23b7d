"""The units that a model is fitted in: numbers of size one for the solver, without a change of the prior.

Starts, limits and the steps of Adam suit numbers of about one. With ``standardize=True`` every column gets mean zero
and variance one. Otherwise the prior is to be that of the data as they are, which leaves only changes that it cannot
feel: a unit is absorbed by a learned lengthscale or outputscale, and an origin by a kernel of differences or by a
learned mean.
"""

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.means import Mean

from cvgp.data.scaling import Scaling, no_scaling

__all__ = ["model_units"]


def model_units(
    learned: Scaling, *, standardize: bool, kernel: str | Kernel | None, mean: str | Mean, ard: bool
) -> Scaling:
    """From the user's units to those of the model, given the means and standard deviations of the data.

    Without standardising, a kernel or mean that is an object sees the data as they are. For one by name, lengthscales
    per column allow units per column, and one for all allows a common one. Outputs share a covariance, hence a unit.
    A constant column stays one.
    """
    if standardize:
        return learned
    varies = learned.varies
    if isinstance(kernel, Kernel) or isinstance(mean, Mean):
        plain = no_scaling(len(learned.x_mean), len(learned.y_mean))
        return plain._replace(x_mean=np.where(varies, 0.0, learned.x_mean), x_scale=np.where(varies, 1.0, 0.0))
    x_mean = np.where(varies, 0.0, learned.x_mean) if kernel == "linear" else learned.x_mean
    x_scale = learned.x_scale if ard else np.where(varies, learned.x_scale.max(), 0.0)
    y_mean = learned.y_mean if mean == "constant" else np.zeros_like(learned.y_mean)
    return Scaling(x_mean, x_scale, y_mean, np.full_like(learned.y_scale, learned.y_scale.max()))
