"""The transform of y, and what is known of outliers, as parts of a file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.data.target import POWERS, TRANSFORMS, TargetTransform
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import SQUARABLE, Arrays, Members
from cvgp.gp.contamination import Contamination

PREFIX = "target."
SHARE, VARIANCE = "outliers.share", "outliers.variance"
LEARNED = ("centre", "unit", "power")
FLOAT64 = ("float64",)
TINY, LARGEST = float(np.finfo(np.float64).tiny), 1e300


def pack_target(target: TargetTransform) -> dict[str, NDArray[Any]]:
    """What was learned of it; nothing of a transform that has nothing to learn."""
    return {PREFIX + name: getattr(target, name) for name in LEARNED} if target.name == "yeo-johnson" else {}


def unpack_target(fit: Members, arrays: Arrays, num_outputs: int) -> TargetTransform:
    """The transform of what may be an untrusted file; anything wrong is a :class:`~cvgp.errors.FileFormatError`."""
    name = fit.text("target", TRANSFORMS)
    kind = next(known for known in TRANSFORMS if known == name)
    if kind != "yeo-johnson":
        return TargetTransform(kind)
    limits = ((-SQUARABLE[1], SQUARABLE[1]), SQUARABLE, POWERS)
    centre, unit, power = (
        arrays.take(PREFIX + part, (num_outputs,), dtypes=FLOAT64, limits=allowed)
        for part, allowed in zip(LEARNED, limits, strict=True)
    )
    return TargetTransform(kind, np.array(centre), np.array(unit), np.array(power))


def pack_outliers(outliers: Contamination | None) -> dict[str, NDArray[Any]]:
    """Their share and variance; nothing where there are none."""
    return {} if outliers is None else {SHARE: np.asarray(outliers.share), VARIANCE: outliers.variance}


def unpack_outliers(arrays: Arrays, num_outputs: int) -> Contamination | None:
    """The outliers of what may be an untrusted file; None where it knows of none."""
    if SHARE not in arrays:
        return None
    share = arrays.take(SHARE, (), dtypes=FLOAT64).item()
    variance = arrays.take(VARIANCE, (num_outputs,), dtypes=FLOAT64, limits=(TINY, LARGEST))
    if not TINY <= share < 1.0:
        raise FileFormatError(f"The array {SHARE!r} must be between 0 and 1; got {share}.")
    return Contamination(share, np.array(variance))
