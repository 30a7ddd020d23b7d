"""Noise that depends on x as arrays of a file."""

from typing import Any

import torch
from numpy.typing import NDArray

from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Arrays
from cvgp.gp.input_noise import InputNoise

NOISE = "noise."
"""What names of arrays begin with."""
FLOAT64 = ("float64",)
LARGEST_LOG = 300.0
"""Of the noise variance: beyond that its exponential leaves the range of numbers."""


def pack_noise(noise: InputNoise | None) -> dict[str, NDArray[Any]]:
    """Arrays from which :func:`unpack_noise` makes the same noise; none of a constant."""
    return {} if noise is None else {NOISE + name: part.cpu().numpy() for name, part in noise._asdict().items()}


def unpack_noise(left: Arrays, num_dims: int) -> InputNoise:
    """The noise of what may be an untrusted file; nothing in it can overflow a prediction."""
    centres = left.take(f"{NOISE}centres", (None, num_dims), dtypes=FLOAT64)
    tails = left.take(f"{NOISE}weights", (None,), dtypes=FLOAT64)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(InputNoise._fields, ())
    shapes |= {"inverse_lengthscale": (num_dims,), "alpha": (len(centres),), "multipliers": (len(tails),)}
    parts = {
        name: left.take(NOISE + name, shape, dtypes=FLOAT64)
        for name, shape in shapes.items()
        if name not in ("centres", "weights")
    }
    if not (len(centres) and -LARGEST_LOG <= parts["lowest"] <= parts["highest"] <= LARGEST_LOG):
        raise FileFormatError("The noise has no centres, or limits that are out of order or out of range.")
    positive = [tails, *(parts[name] for name in ("f_scale", "f_prior", "multipliers", "constant"))]
    if not (len(tails) and all((part > 0).all() for part in positive) and parts["doubt"] >= 0 and parts["base"] >= 0):
        raise FileFormatError("Variances, and the weights and multipliers of tails, must be positive.")
    parts |= {"centres": centres, "weights": tails}
    return InputNoise(**{name: torch.tensor(part) for name, part in parts.items()})
