"""The warp of inputs as a part of a file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.data.input_warp import NO_WARP, WARPS, InputWarp
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Arrays, Members

PREFIX = "warp."
FLOAT64 = ("float64",)


def pack_warp(warp: InputWarp) -> dict[str, NDArray[Any]]:
    """What was learned of it; nothing of the identity."""
    if warp.name == "identity":
        return {}
    return {PREFIX + name: value for name, value in warp._asdict().items() if name != "name"}


def unpack_warp(fit: Members, arrays: Arrays, num_dims: int) -> InputWarp:
    """The warp of what may be an untrusted file; anything wrong is a :class:`~cvgp.errors.FileFormatError`."""
    name = fit.text("inputs", WARPS)
    kind = next(known for known in WARPS if known == name)
    if kind == "identity":
        return NO_WARP
    shares = np.array(arrays.take(f"{PREFIX}shares", (num_dims,), dtypes=FLOAT64))
    counts = np.array(arrays.take(f"{PREFIX}counts", (num_dims,), dtypes=("int64",)))
    knots, values = (np.array(arrays.take(PREFIX + part, (None,), dtypes=FLOAT64)) for part in ("knots", "values"))
    if (counts < 0).any() or (counts == 1).any() or not counts.sum() == len(knots) == len(values):
        raise FileFormatError("The knots of a warp are not as many as its columns say.")
    warp = InputWarp(kind, shares, counts, knots, values)
    if not all((np.diff(path.knots) > 0).all() and (np.diff(path.values) > 0).all() for path in warp.paths().values()):
        raise FileFormatError("The knots of a warp and their values must increase.")
    return warp
