"""The least arithmetic that one training step is known to need, to set measured time against.

From the gradients of the bound (docs, Mathematics): with U = P R K_cx, the data side is U itself, a product of
2 M^2 B, and the symmetric U U^T, half of that, with the variance from sum(K_cx * R U). The kernel K_cx and the two
products of its backward (for X_c, and for the lengthscales) take 2 M B D each. In M x M there are the factorisation
and the inverse (M^3 together), the symmetric P P (M^3), and the kernel, as above with M in place of B. Elementwise
work, the exponentials among it, is not counted: what it costs shows as a lower share.
"""

from typing import NamedTuple

__all__ = ["Flops", "step_flops"]


class Flops(NamedTuple):
    """Floating-point operations by where they happen, since the two sides have precisions of their own."""

    data: float
    """With the batch: float32 by default."""
    square: float
    """M x M: float64."""

    @property
    def total(self) -> float:
        """Of both sides."""
        return self.data + self.square

    def seconds(self, data_speed: float, square_speed: float) -> float:
        """The time of both at given speeds, in operations per second."""
        return self.data / data_speed + self.square / square_speed


def step_flops(size: int, batch: int, dims: int) -> Flops:
    """Operations of one step with M = `size`, B = `batch`, D = `dims`."""
    M, B, D = float(size), float(batch), float(dims)
    return Flops(data=3 * M**2 * B + 6 * M * B * D, square=2 * M**3 + 6 * M**2 * D)
