r"""How steeply functions of a prior vary along each input: what importances of inputs are made of.

A process of covariance k varies along input d by :math:`g_d = \partial^2 k / \partial x_d \partial x'_d` at x = x', the
variance of its slope. For a stationary kernel this is :math:`s / \ell_d^2` times a constant of its family, which is
left out here: rough families have none. For a linear kernel it is the variance :math:`v_d` of the coefficient. In a sum
the g add up; in a product each factor's g is multiplied by the values k of the others, for inputs of size one.
"""

import math
from typing import NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, PeriodicKernel, ProductKernel, ScaleKernel
from torch import Tensor

from cvgp.gp.kernels import stationary_form


class _Variation(NamedTuple):
    value: Tensor  # [], k(x, x) at inputs of size one
    slopes: Tensor  # [D], g


@torch.no_grad()
def typical_slopes(kernel: Kernel, num_dims: int) -> Tensor | None:
    """sqrt(g) `[D]` in float64; None for a kernel that has parts of other kinds than those with a name."""
    found = _variation(kernel, num_dims)
    return None if found is None else found.slopes.sqrt()


def _variation(kernel: Kernel, num_dims: int) -> _Variation | None:
    if kernel.active_dims is not None:
        return None
    form = stationary_form(kernel, num_dims)
    if form is not None:
        scale = form.outputscale.to(torch.float64)
        return _Variation(scale, scale * form.inverse_lengthscale.to(torch.float64).square())
    if type(kernel) is LinearKernel:
        variance = kernel.variance.to(torch.float64).reshape(-1).expand(num_dims)
        return _Variation(variance.sum(), variance)
    if type(kernel) is PeriodicKernel:
        # k = exp(-2 sum_d sin^2(pi (x_d - x'_d) / p_d) / l_d), in which GPyTorch does not square l.
        period, lengthscale = (t.to(torch.float64).reshape(-1) for t in (kernel.period_length, kernel.lengthscale))
        slopes = ((2.0 * math.pi / period).square() / lengthscale).expand(num_dims)
        return _Variation(torch.ones_like(slopes[0]), slopes)
    if type(kernel) is ScaleKernel:
        base, scale = _variation(kernel.base_kernel, num_dims), kernel.outputscale.to(torch.float64)
        return None if base is None else _Variation(scale * base.value, scale * base.slopes)
    if type(kernel) not in (AdditiveKernel, ProductKernel):
        return None
    parts = [part for part in (_variation(part, num_dims) for part in kernel.kernels) if part is not None]
    if len(parts) < len(kernel.kernels):
        return None
    values, slopes = torch.stack([part.value for part in parts]), torch.stack([part.slopes for part in parts])
    if type(kernel) is AdditiveKernel:
        return _Variation(values.sum(), slopes.sum(0))
    return _Variation(values.prod(), values.prod() * (slopes / values[:, None]).sum(0))
