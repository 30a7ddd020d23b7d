r"""The posterior over the weights of explicit features (paper, eq. coreset_posterior_wc).

For :math:`k(x, x') = \phi(x)^T \phi(x')` the GP is Bayesian linear regression with weights :math:`v \sim N(0, I)`, and

.. math:: q(v) = N(\Phi_c^T A y_c,\; I - \Phi_c^T A \Phi_c)

gives the predictions and the KL of function space. It tells which features matter.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel, LinearKernel, RFFKernel, ScaleKernel
from torch import Tensor

from cvgp.gp.posterior import factorize


class FeatureMap(NamedTuple):
    """phi(x) = scale * raw(x), so that a kernel is the inner product of features [B, F]."""

    raw: Callable[[Tensor], Tensor]  # [..., B, D] -> [..., B, F]
    scale: Tensor  # [F]

    def __call__(self, x: Tensor) -> Tensor:
        return self.raw(x) * self.scale


class WeightPosterior(NamedTuple):
    """q(v) for weights v with prior N(0, I)."""

    mean: Tensor  # [F]
    covariance: Tensor  # [F, F]
    kl: Tensor  # []


def weight_posterior(Phi_c: Tensor, w: Tensor, y_c: Tensor) -> WeightPosterior:
    """Posterior over feature weights from features at the pseudo-inputs `[M, F]`, precisions and outputs `[M]`."""
    factor = factorize(Phi_c @ Phi_c.mT, w, y_c)
    T_Phi = factor.T @ Phi_c  # [M, F]
    mean = Phi_c.mT @ factor.alpha
    # log|S| = -log|B| by Sylvester's determinant identity, and tr(S) - F = -|T Phi_c|^2.
    kl = 0.5 * (mean.square().sum() - T_Phi.square().sum() + factor.log_det_B)
    return WeightPosterior(mean, torch.eye(Phi_c.shape[1], dtype=Phi_c.dtype) - T_Phi.mT @ T_Phi, kl)


def feature_map(kernel: Kernel, num_dims: int) -> FeatureMap:
    """Explicit features of a linear or random-feature kernel, which may be scaled."""
    if isinstance(kernel, ScaleKernel):
        base = feature_map(kernel.base_kernel, num_dims)
        return base._replace(scale=base.scale * kernel.outputscale.sqrt())
    if isinstance(kernel, LinearKernel):
        return FeatureMap(lambda x: x, kernel.variance.reshape(-1).sqrt().expand(num_dims))
    if not isinstance(kernel, RFFKernel):
        raise TypeError(f"{type(kernel).__name__} has no finite feature map here: use LinearKernel or RFFKernel.")
    frequencies = (kernel.randn_weights / kernel.lengthscale.mT).mT  # [F, D]

    def raw(x: Tensor) -> Tensor:
        phase = x @ frequencies.mT
        return torch.cat([phase.cos(), phase.sin()], dim=-1)

    return FeatureMap(raw, frequencies.new_tensor(1.0 / len(frequencies)).sqrt().expand(2 * len(frequencies)))
