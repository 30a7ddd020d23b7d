"""The scaling of a model as a part of a file, and a look whether predictions can be made in its units."""

import math

import numpy as np

from cvgp.data.input_warp import InputWarp
from cvgp.data.scaling import Scaling
from cvgp.errors import CVGPError, FileFormatError
from cvgp.estimators.units import ScaledGP
from cvgp.files.untrusted import SQUARABLE, Arrays

FLOAT64 = ("float64",)
TINY = float(np.finfo(np.float64).tiny)
"""The smallest number that has all its digits."""


def unpack_scaling(arrays: Arrays, num_dims: int, num_outputs: int, warp: InputWarp, *, has_limit: bool) -> Scaling:
    """The scaling of what may be an untrusted file; anything wrong is a :class:`~cvgp.errors.FileFormatError`."""
    limit = arrays.take("scaling.x_limit", (), dtypes=FLOAT64, finite=False).item() if has_limit else math.inf
    if not limit > 0.0:
        raise FileFormatError(f"The array 'scaling.x_limit' must be positive; got {limit}.")
    x_mean = arrays.take("scaling.x_mean", (num_dims,), dtypes=FLOAT64)
    x_scale = arrays.take("scaling.x_scale", (num_dims,), dtypes=FLOAT64)
    if not ((x_scale >= TINY) | (x_scale == 0.0)).all():
        raise FileFormatError("The array 'scaling.x_scale' must be positive, or 0 for a constant input.")
    y_mean = arrays.take("scaling.y_mean", (num_outputs,), dtypes=FLOAT64)
    y_scale = arrays.take("scaling.y_scale", (num_outputs,), dtypes=FLOAT64, limits=SQUARABLE)
    return Scaling(x_mean, x_scale, y_mean, y_scale, limit, warp)


def check_units(gp: ScaledGP) -> None:
    """Refuse a model whose coreset or whose noise leaves the range of numbers in the units of its data."""
    with np.errstate(all="ignore"):
        try:
            total = gp.coreset.beta.sum()
        except CVGPError as error:
            raise FileFormatError(f"The coreset is out of range in the units of 'scaling': {error}") from error
        if not 0.0 < total < math.inf:
            raise FileFormatError("The weights in 'model.raw_beta' are all zero, or overflow.")
        if not ((gp.noise_variance >= TINY) & (gp.noise_variance < math.inf)).all():
            raise FileFormatError("The noise is out of range in the units of 'scaling.y_scale'.")
        spread = gp.y_spread
    if not ((spread >= SQUARABLE[0]) & (spread <= SQUARABLE[1])).all():
        raise FileFormatError("The target is out of range in the units of 'scaling.y_mean' and of its transform.")
