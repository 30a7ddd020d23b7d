"""The transform of y, and what is known of outliers, as parts of a file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.data.target import TRANSFORMS, TargetTransform
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.contamination import Contamination

PREFIX = "target."
SHARE, VARIANCE = "outliers.share", "outliers.variance"
LEARNED = ("centre", "unit", "power")
FLOAT64 = ("float64",)


def pack_target(target: TargetTransform) -> dict[str, NDArray[Any]]:
    """What was learned of it; nothing of a transform that has nothing to learn."""
    return {PREFIX + name: getattr(target, name) for name in LEARNED} if target.name == "yeo-johnson" else {}


def unpack_target(fit: Members, arrays: Arrays, num_outputs: int) -> TargetTransform:
    """The transform of what may be an untrusted file; anything wrong is a :class:`~cvgp.errors.FileFormatError`."""
    name = fit.text("target", TRANSFORMS)
    kind = next(known for known in TRANSFORMS if known == name)
    if kind != "yeo-johnson":
        return TargetTransform(kind)
    centre, unit, power = (arrays.take(PREFIX + part, (num_outputs,), dtypes=FLOAT64) for part in LEARNED)
    if not ((unit > 0).all() and (power >= 0).all() and (power <= 2).all()):
        raise FileFormatError("The unit of a transform must be positive, and its power between 0 and 2.")
    return TargetTransform(kind, np.array(centre), np.array(unit), np.array(power))


def pack_outliers(outliers: Contamination | None) -> dict[str, NDArray[Any]]:
    """Their share and variance; nothing where there are none."""
    return {} if outliers is None else {SHARE: np.asarray(outliers.share), VARIANCE: outliers.variance}


def unpack_outliers(arrays: Arrays, num_outputs: int) -> Contamination | None:
    """The outliers of what may be an untrusted file; None where it knows of none."""
    if SHARE not in arrays:
        return None
    share = arrays.take(SHARE, (), dtypes=FLOAT64).item()
    variance = arrays.take(VARIANCE, (num_outputs,), dtypes=FLOAT64)
    if not (0.0 < share < 1.0 and (variance > 0).all()):
        raise FileFormatError("The share of outliers must be between 0 and 1, and their variance positive.")
    return Contamination(share, np.array(variance))
