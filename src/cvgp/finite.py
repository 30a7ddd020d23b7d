"""Real, finite numbers of any container as a float64 array."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cvgp.errors import InvalidInputError, InvalidTypeError

FloatArray = NDArray[np.float64]

REAL_KINDS = "biuf"
"""NumPy's codes for bool, int, unsigned int and float."""


def refuse_masked(name: str, value: object) -> None:
    """Raise on a masked array with masked values, which NumPy would silently unmask."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        where = np.argwhere(np.ma.getmaskarray(value))
        raise InvalidInputError(
            f"{name} is a masked array of which {len(where)} of {value.size} values are masked, the first at index "
            f"{where[0].tolist()}, and values that are missing cannot be used. Leave these rows out, or fill the "
            "values by `.filled(value)`."
        )


def finite_array(name: str, value: ArrayLike | torch.Tensor) -> FloatArray:
    """A float64 copy of numbers in any container and on any device; `name` is what errors call them."""
    refuse_masked(name, value)
    try:
        if isinstance(value, torch.Tensor) and not value.is_complex():
            # NumPy has no bfloat16, so torch does the conversion to float64.
            value = value.detach().to("cpu", torch.float64).numpy()
        array: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} must be a rectangular array of real numbers, but the {type(value).__name__} that came "
            f"gives none ({error}); pass an array or a dense tensor."
        ) from error
    if array.dtype.kind not in REAL_KINDS:
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert to float.")
    copy = np.array(array, dtype=np.float64, order="C")
    bad = np.argwhere(~np.isfinite(copy))
    if len(bad):
        raise InvalidInputError(
            f"{name} must be finite, but {len(bad)} of its {copy.size} values are NaN or infinite, "
            f"the first at index {bad[0].tolist()}; remove or replace them."
        )
    return copy


LEAST_SUM, MOST_SUM = 1e-100, 1e100
"""Between these, sums of weights and of their products with squares are numbers too."""


def check_sum(name: str, values: NDArray[np.float64]) -> None:
    """Raise if the sum of nonnegative numbers is too close to the limits of floating point."""
    with np.errstate(over="ignore"):
        total = float(values.sum())
    if not LEAST_SUM < total < MOST_SUM:
        raise InvalidInputError(
            f"The {name} must sum to a number between {LEAST_SUM:g} and {MOST_SUM:g}; they sum to {total:.3g}. "
            "Divide them by their mean."
        )
