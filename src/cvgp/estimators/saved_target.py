"""The transform of y as parts of a file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.data.target import TRANSFORMS, TargetTransform
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Arrays, Members

__all__ = ["pack_target", "unpack_target"]

PREFIX = "target."
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
