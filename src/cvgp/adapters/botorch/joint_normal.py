"""Moments of f as GPyTorch's normal distributions, with one output or several."""

from collections.abc import Sequence

import torch
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator import to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator, DiagLinearOperator, LinearOperator
from torch import Tensor

from cvgp.adapters.botorch.layers import Moments
from cvgp.adapters.botorch.shapes import common_batch


def as_batch(found: Moments, num_outputs: int, dtype: torch.dtype) -> MultivariateNormal:
    """One output, or several as the last batch dimension."""
    mean, covariance = _expanded(found, num_outputs, dtype)
    if num_outputs == 1:
        return _normal(mean.squeeze(-2), covariance.squeeze(-3))
    return _normal(mean, covariance)


def as_joint(found: Moments, num_outputs: int, outputs: Sequence[int], dtype: torch.dtype) -> MultivariateNormal:
    """Some of the outputs, which are independent, as one distribution."""
    mean, covariance = _expanded(found, num_outputs, dtype)
    if len(outputs) == 1:
        return _normal(mean[..., outputs[0], :], covariance[..., outputs[0], :, :])
    chosen = list(outputs)
    # BoTorch's acquisition functions of several outputs look for this form, a block for each output.
    blocks = BlockDiagLinearOperator(to_linear_operator(covariance[..., chosen, :, :]))
    return MultitaskMultivariateNormal(mean[..., chosen, :].mT, blocks, interleaved=False)


def with_noise(found: Moments, noise: Tensor) -> Moments:
    """The moments of observations with noise variances [..., Q, n]."""
    if isinstance(found.covariance, Tensor):
        return found._replace(covariance=found.covariance + torch.diag_embed(noise))
    diagonal = DiagLinearOperator(noise.expand(found.covariance.shape[:-1]))
    return found._replace(covariance=found.covariance + diagonal)


def _expanded(found: Moments, num_outputs: int, dtype: torch.dtype) -> Moments:
    """With the same batch dimensions in both, and all outputs."""
    m, n = num_outputs, found.mean.shape[-1]
    batch = common_batch(found.mean.shape[:-2], found.covariance.shape[:-3])
    mean = found.mean.expand(*batch, m, n).to(dtype)
    return Moments(mean, found.covariance.expand(*batch, m, n, n).to(dtype))


def _normal(mean: Tensor, covariance: Tensor | LinearOperator) -> MultivariateNormal:
    """Without a factorisation, which torch would make of a plain matrix at once, and which near points may not have."""
    return MultivariateNormal(mean, to_linear_operator(covariance))
