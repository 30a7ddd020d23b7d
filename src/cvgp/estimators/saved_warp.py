"""The warp of inputs as a part of a file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.data.input_warp import LARGEST, NO_WARP, WARPS, InputWarp, Path
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import SQUARABLE, Arrays, Members

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
    shares = np.array(arrays.take(f"{PREFIX}shares", (num_dims,), dtypes=FLOAT64, limits=(0.0, 1.0)))
    knots, values = (
        np.array(arrays.take(PREFIX + part, (None,), dtypes=FLOAT64, limits=(-LARGEST, LARGEST)))
        for part in ("knots", "values")
    )
    counts = np.array(arrays.take(f"{PREFIX}counts", (num_dims,), dtypes=("int64",), limits=(0, len(knots))))
    if (counts == 1).any() or not counts.sum() == len(knots) == len(values):
        raise FileFormatError(f"The array '{PREFIX}counts' must say how many knots each column has.")
    warp = InputWarp(kind, shares, counts, knots, values)
    if not all(_is_usable(path) for path in warp.paths().values()):
        raise FileFormatError(f"The arrays '{PREFIX}knots' and '{PREFIX}values' must increase, neither suddenly.")
    return warp


def _is_usable(path: Path) -> bool:
    """Whether both directions can be computed."""
    steps, gains = np.diff(path.knots), np.diff(path.values)
    if not ((steps > 0.0).all() and (gains > 0.0).all()):
        return False
    with np.errstate(over="ignore", under="ignore"):
        slopes = gains / steps
    return bool(((slopes >= SQUARABLE[0]) & (slopes <= SQUARABLE[1])).all())
