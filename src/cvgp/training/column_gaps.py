"""Lengthscales that are far below the smallest gap between two values of a column.

They all say the same: rows that differ in this column, such as those of two persons, tell nothing of each other. But
inputs become huge in units of a tiny lengthscale, and their distances are lost to rounding. And no gradient leads back
to a lengthscale at which persons do tell of each other.
"""

import torch
from gpytorch.kernels import Kernel, PeriodicKernel
from torch import Tensor

from cvgp.gp.hyperparameters import multiply_inside

GAP_SHARE = 0.1
"""Ten lengthscales apart, a Matern 3/2 kernel is below 1e-6: rows are as good as unrelated, and a slope is left."""


@torch.no_grad()
def widen_to_gaps(kernel: Kernel, x: Tensor) -> None:
    """Raise lengthscales that are below a tenth of the smallest gap of their column, in place."""
    least = GAP_SHARE * smallest_gaps(x)
    for part in kernel.modules():
        if not (isinstance(part, Kernel) and part.has_lengthscale) or isinstance(part, PeriodicKernel):
            continue
        lengthscale = part.lengthscale
        if part.raw_lengthscale.requires_grad and part.active_dims is None and lengthscale.shape[-1] == x.shape[1]:
            factor = (least.to(lengthscale) / lengthscale).clamp_min(1.0)
            if (factor > 1.0).any():
                multiply_inside(part, "lengthscale", factor)


def smallest_gaps(x: Tensor) -> Tensor:
    """Between two different values of each column [D]; zero where a column has one value."""
    steps = x.sort(dim=0).values.diff(dim=0)
    if not len(steps):
        return torch.zeros_like(x[0])
    gaps = torch.where(steps > 0.0, steps, torch.inf).amin(0)
    return torch.where(torch.isfinite(gaps), gaps, 0.0)
