"""The precision of minibatches: float32 for as long as that is safe."""

import torch

from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import diagonal
from cvgp.gp.model import CVGP
from cvgp.training.checkpoint import Extra

__all__ = ["Precision"]

FLOAT32_LIMIT = 1e4
"""Largest max(w) k(x, x) at which the data side may stay in float32 (docs: numerics)."""

FLOAT32_LARGEST = 1e15
"""Data beyond this stay in float64: their squares, and sums of these, would leave the range of float32."""

CHECK_EVERY = 50
"""Steps after which the weights are looked at again."""


class Precision:
    """The data in float32 while that is safe, in float64 once the weights have grown too large for it."""

    def __init__(self, model: CVGP, source: DataSource, dtype: str) -> None:
        self.model = model
        self.full = source
        if dtype != "float64" and source.largest_value > FLOAT32_LARGEST:
            if dtype == "float32":
                raise InvalidInputError(
                    f"The data hold values of the size of {source.largest_value:.0e}, whose squares are beyond the "
                    "range of float32; standardise them (standardize=True), or use dtype 'auto' or 'float64'."
                )
            dtype = "float64"
        self.may_grow = dtype == "auto"
        self.current = source if dtype == "float64" else source.to(torch.float32)

    def source(self, step: int) -> DataSource:
        """The data for a step."""
        if self.may_grow and step % CHECK_EVERY == 0 and self._too_large():
            self._grow()
        return self.current

    def dump(self) -> dict[str, float]:
        """What a checkpoint has to hold."""
        return {"may_grow": float(self.may_grow)}

    def load(self, stored: Extra) -> None:
        """Go on as a stored run did."""
        if self.may_grow and not stored[1]["may_grow"]:
            self._grow()

    def _grow(self) -> None:
        self.current, self.may_grow = self.full, False

    @torch.no_grad()
    def _too_large(self) -> bool:
        scale = diagonal(self.model.kernel, self.model.X_c).max()
        return bool(self.model.site_precision.max() * scale > FLOAT32_LIMIT)
