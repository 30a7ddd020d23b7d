"""Inputs in the user's units as a fitted model sees them: warped, standardised, and not too far away."""

import numpy as np
import torch
from torch import Tensor, nn

from cvgp.data.input_warp import Path
from cvgp.data.scaling import Scaling
from cvgp.estimators.units import FARTHEST


class Standardise(nn.Module):
    """`cvgp.data.scaling.Scaling` of inputs, with gradients; a column that was constant in the fit becomes zero."""

    shift: Tensor  # [D]
    scale: Tensor  # [D]
    inverse_scale: Tensor  # [D]

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        inverse = np.divide(1.0, scaling.x_scale, out=np.zeros_like(scaling.x_scale), where=scaling.varies)
        self.register_buffer("shift", torch.tensor(scaling.x_mean))
        self.register_buffer("scale", torch.tensor(scaling.x_scale))
        self.register_buffer("inverse_scale", torch.tensor(inverse))
        self.limit = min(scaling.x_limit, FARTHEST)
        self.warps = nn.ModuleDict({str(d): _Warp(path) for d, path in scaling.warp.paths().items()})

    def forward(self, x: Tensor) -> Tensor:
        """Inputs [..., D] in the model's units."""
        scaled = (self._columns(x, inverse=False) - self.shift.to(x)) * self.inverse_scale.to(x)
        return scaled.clamp(-self.limit, self.limit)

    def inverse(self, z: Tensor) -> Tensor:
        """Inputs [..., D] in the user's units, of those in the model's units."""
        return self._columns(z * self.scale.to(z) + self.shift.to(z), inverse=True)

    def _columns(self, x: Tensor, *, inverse: bool) -> Tensor:
        """X with each warped column as its warp, or the inverse of that, makes it."""
        if not self.warps:
            return x
        columns = list(x.unbind(-1))
        for d, warp in self.warps.items():
            columns[int(d)] = warp(columns[int(d)], inverse=inverse)
        return torch.stack(columns, -1)


class _Warp(nn.Module):
    """A monotone piecewise linear function of one column."""

    knots: Tensor  # [k]
    values: Tensor  # [k]
    slopes: Tensor  # [k + 1], the first and the last of which hold beyond the outer knots

    def __init__(self, path: Path) -> None:
        super().__init__()
        low, high = path.outer_slopes()
        inner = np.diff(path.values) / np.diff(path.knots)
        self.register_buffer("knots", torch.tensor(path.knots))
        self.register_buffer("values", torch.tensor(path.values))
        self.register_buffer("slopes", torch.tensor(np.concatenate([[low], inner, [high]])))

    def forward(self, x: Tensor, *, inverse: bool) -> Tensor:
        """The function, or its inverse, at x [...]."""
        knots, values, slopes = (part.to(x) for part in (self.knots, self.values, self.slopes))
        if inverse:
            knots, values, slopes = values, knots, slopes.reciprocal()
        part = torch.bucketize(x.detach().contiguous(), knots, right=True)
        start = (part - 1).clamp_min(0)
        return values[start] + slopes[part] * (x - knots[start])
