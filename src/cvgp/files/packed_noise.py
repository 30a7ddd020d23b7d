"""Noise that depends on x as arrays of a file."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Arrays
from cvgp.gp.input_noise import InputNoise

NOISE = "noise."
"""What names of arrays begin with."""
FLOAT64 = ("float64",)
TINY = float(np.finfo(np.float64).tiny)
LARGEST_LOG = 300.0
"""Of the noise variance: beyond that its exponential leaves the range of numbers."""
LARGEST = math.exp(LARGEST_LOG)
ROUNDING = 1e-6
"""By how much weights and the variance of tails may differ from one."""

POSITIVE = ("f_scale", "f_prior", "multipliers", "weights", "constant", "doubt", "base")
OF_VERSION_2 = {"doubt": 0.0, "f_scale": 1.0, "f_prior": 1.0, "base": 0.0}


def pack_noise(noise: InputNoise | None) -> dict[str, NDArray[Any]]:
    """Arrays from which :func:`unpack_noise` makes the same noise; none of a constant."""
    return {} if noise is None else {NOISE + name: part.cpu().numpy() for name, part in noise._asdict().items()}


def unpack_noise(left: Arrays, num_dims: int, constant: float) -> InputNoise:
    """The noise of what may be an untrusted file; nothing in it can overflow a prediction.

    A file of version 2 knows neither tails nor doubt, and weighs no rows. The constant of its fit is the model's.
    """
    centres = left.take(f"{NOISE}centres", (None, num_dims), dtypes=FLOAT64)
    one = np.ones(1)
    known = {name: np.asarray(value) for name, value in OF_VERSION_2.items()}
    known |= {"multipliers": one, "weights": one, "constant": np.asarray(constant)}
    if f"{NOISE}weights" in left:
        known = {"weights": left.take(f"{NOISE}weights", (None,), dtypes=FLOAT64)}
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(InputNoise._fields, ())
    shapes |= {"inverse_lengthscale": (num_dims,), "alpha": (len(centres),), "multipliers": known["weights"].shape}
    known["centres"] = centres
    parts = known | {
        name: left.take(NOISE + name, shape, dtypes=FLOAT64, limits=(-LARGEST, LARGEST))
        for name, shape in shapes.items()
        if name not in known
    }
    if not (len(centres) and -LARGEST_LOG <= parts["lowest"] <= parts["highest"] <= LARGEST_LOG):
        raise FileFormatError("The noise has no centres, or limits that are out of order or out of range.")
    for name in POSITIVE:
        least = 0.0 if name in ("doubt", "base") else 1.0 / LARGEST if name != "weights" else TINY
        if not (parts[name].size and (parts[name] >= least).all()):
            raise FileFormatError(f"The array {NOISE + name!r} must be positive.")
    weights, multipliers = parts["weights"], parts["multipliers"]
    if not (abs(weights.sum() - 1.0) < ROUNDING and abs(weights @ multipliers - 1.0) < ROUNDING):
        raise FileFormatError(f"The tails in {NOISE}weights and {NOISE}multipliers must be of weight and variance one.")
    return InputNoise(**{name: torch.tensor(part) for name, part in parts.items()})
