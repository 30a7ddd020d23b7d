"""The bounds as autograd sees them when nothing is done for stability: dense torch, plain inverses.

The paper writes A = (K_cc + diag(1/w))^-1. Here it is W (I + K_cc W)^-1, the same matrix, which is smooth at w = 0.
"""

import math

import torch
from torch import Tensor


def _sites(K_cc: Tensor, beta: Tensor, noise: Tensor, site_noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """A [M, M] and log|I + K_cc W| [], where the symmetric part of K_cc is what counts."""
    w = beta / (noise if site_noise is None else site_noise)
    system = torch.eye(len(K_cc), dtype=K_cc.dtype) + K_cc * w
    return w[:, None] * torch.linalg.inv(system), torch.linalg.slogdet(system).logabsdet


def _precision(
    noise: Tensor, k_xx: Tensor, sample_weight: Tensor | None, num_data: int | None
) -> tuple[Tensor, Tensor, float]:
    """The observations' precisions [B], their log normalizer [] and N/B."""
    scale = 1.0 if num_data is None else num_data / len(k_xx)
    weight = scale * (torch.ones_like(k_xx) if sample_weight is None else sample_weight)
    return weight / noise, -0.5 * (weight * torch.log(2 * math.pi * noise)).sum(), scale


def elbo(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    y: Tensor,
    y_c: Tensor,
    beta: Tensor,
    noise: Tensor,
    *,
    site_noise: Tensor | None = None,
    sample_weight: Tensor | None = None,
    num_data: int | None = None,
) -> Tensor:
    """The paper's bound."""
    K_cc = 0.5 * (K_cc + K_cc.T)
    y, y_c = y.reshape(len(y), -1), y_c.reshape(len(y_c), -1)
    T = y.shape[1]
    precision, log_normalizer, _ = _precision(noise, k_xx, sample_weight, num_data)
    A, log_det = _sites(K_cc, beta, noise, site_noise)
    mean = K_cx.T @ A @ y_c  # [B, Q]
    variance = k_xx - torch.diagonal(K_cx.T @ A @ K_cx)  # [B]
    misfit = (y - mean).square().sum(1) + T * variance
    m = A @ y_c
    kl = 0.5 * (T * (log_det - torch.trace(A @ K_cc)) + torch.trace(m.T @ K_cc @ m))
    return T * log_normalizer - 0.5 * (precision * misfit).sum() - kl


def tightening(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    noise: Tensor,
    *,
    num_outputs: int = 1,
    sample_weight: Tensor | None = None,
    num_data: int | None = None,
) -> Tensor:
    """What the bound of Titsias 2025 adds."""
    K_cc = 0.5 * (K_cc + K_cc.T)
    precision, _, scale = _precision(noise, k_xx, sample_weight, num_data)
    unexplained = k_xx - torch.diagonal(K_cx.T @ torch.linalg.inv(K_cc) @ K_cx)
    ratio = unexplained * precision / scale
    return 0.5 * num_outputs * scale * (ratio - torch.log(1 + ratio)).sum()
