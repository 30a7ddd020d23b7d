"""The values of sites: checks, the smallest variance that they may have, and the best ones for some data."""

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.adapters.gpytorch.coreset_distribution import CoresetVariationalDistribution
from cvgp.adapters.gpytorch.joint_prior import JointPrior, prior_at_points
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.gp import bounds
from cvgp.gp.linalg import add_jitter
from cvgp.gp.model import JITTER
from cvgp.gp.parameters import SMALLEST_SHARE
from cvgp.gp.posterior import factorise
from cvgp.gp.sites import best_coreset

NEAREST_TO_LIMIT = 1e-6
"""A precision of one over the jitter would need an infinite parameter; this share below it is near enough."""

CHUNK_ROWS = 4096
"""Rows that are added up at once."""


def check_parts(points: Tensor, distribution: Any, jitter_val: float | None) -> None:
    """Raise unless the parts of a strategy fit together."""
    if not isinstance(distribution, CoresetVariationalDistribution):
        raise InvalidTypeError(
            "CoresetVariationalStrategy has sites, not a free mean and covariance: give it a "
            f"cvgp.adapters.gpytorch.CoresetVariationalDistribution; got {type(distribution).__name__}."
        )
    M = points.shape[0] if points.ndim == 1 else points.shape[-2]
    if distribution.num_inducing_points != M:
        raise InvalidInputError(
            f"There are {M} inducing points, and {distribution.num_inducing_points} pseudo-targets: give "
            "CoresetVariationalDistribution the number of inducing points."
        )
    try:
        torch.broadcast_shapes(points.shape[:-2], distribution.batch_shape)
    except RuntimeError as error:
        raise InvalidInputError(
            f"The batch shape {tuple(points.shape[:-2])} of the inducing points and that of the distribution, "
            f"{tuple(distribution.batch_shape)}, do not broadcast."
        ) from error
    if jitter_val is not None and not 0.0 <= jitter_val < math.inf:
        raise InvalidInputError(f"jitter_val is the smallest variance of a site, at least 0; got {jitter_val}.")


def limited_log(log_precision: Tensor, jitter: float) -> Tensor:
    """The logarithm of w / (1 + jitter w), of log w."""
    if jitter == 0.0:
        return log_precision
    return -torch.logaddexp(-log_precision, torch.full_like(log_precision, math.log(jitter)))


def largest_precision(jitter: float) -> float:
    """The largest precision that a site can have."""
    return math.inf if jitter == 0.0 else (1.0 - NEAREST_TO_LIMIT) / jitter


def raw_log_precision(w: Tensor, jitter: float) -> Tensor:
    """What `limited_log` takes to the logarithm of w, or as near as it can."""
    highest = largest_precision(jitter)
    if bool((w > highest).any()):
        warnings.warn(
            f"Precisions up to {w.max().item():.3g} were asked for, and one over jitter_val, {1.0 / jitter:.3g}, is "
            "the largest that the strategy can have. Build it with a smaller jitter_val; 0 is allowed.",
            CVGPWarning,
            stacklevel=3,
        )
    w = w.clamp_max(highest)
    return w.log() - (-jitter * w).log1p()


def site_values(y_c: Any, w: Any, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Pseudo-targets and precisions in float64, of a shape [..., M]."""
    y_c, w = (torch.as_tensor(values, dtype=torch.float64).detach() for values in (y_c, w))
    try:
        y_c, w = y_c.expand(shape), w.expand(shape)
    except RuntimeError as error:
        raise InvalidInputError(
            f"y_c and w must be {list(shape)}, one for each site; got {tuple(y_c.shape)} and {tuple(w.shape)}."
        ) from error
    if not bool(torch.isfinite(y_c).all()) or not bool(((w >= 0) & torch.isfinite(w)).all()):
        raise InvalidInputError("y_c and w must be finite, and w, one over a variance, must not be negative.")
    largest = w.max()
    if not bool(largest > 0):
        raise InvalidInputError("At least one precision w must be positive; all are zero.")
    return y_c, torch.where(w > 0, w, SMALLEST_SHARE * largest)


class BestSites(NamedTuple):
    """Pseudo-targets, prior mean included, and precisions, both [..., M] and float64."""

    y_c: Tensor
    w: Tensor


@torch.no_grad()
def best_sites(
    model: Any, points: Tensor, x: Tensor, y: Tensor, noise: Tensor | float, shape: torch.Size, highest: float
) -> BestSites:
    """The sites that maximise the Gaussian bound of some rows, for each process of a batch.

    Where a precision is above the highest that is allowed, it is lowered to that. The mean stays what it is.
    """
    x = x[:, None] if x.ndim == 1 else x
    noise = torch.as_tensor(noise, dtype=torch.float64, device=points.device)
    if x.shape[-1] != points.shape[-1] or y.shape[-1:] != x.shape[-2:-1] or x.shape[-2] == 0:
        raise InvalidInputError(
            f"x must be [..., N, {points.shape[-1]}] with N >= 1, and y [..., N]; "
            f"got {tuple(x.shape)} and {tuple(y.shape)}."
        )
    if not bool(((noise > 0) & torch.isfinite(noise)).all()):
        raise InvalidInputError("noise holds variances: every one must be positive and finite.")
    try:
        noise, y = noise.expand(y.shape), y.to(torch.float64)
        batch = torch.broadcast_shapes(shape[:-1], x.shape[:-2], y.shape[:-1])
    except RuntimeError as error:
        raise InvalidInputError(
            f"x {tuple(x.shape)}, y {tuple(y.shape)}, noise {tuple(noise.shape)} and sites {tuple(shape)} do not "
            "broadcast."
        ) from error
    if batch != shape[:-1]:
        raise InvalidInputError(
            f"The data have the batch shape {tuple(batch)}, and the sites {tuple(shape[:-1])}: give "
            "CoresetVariationalDistribution the batch_shape of the data."
        )
    K_cc, mean_c = prior_at_points(model, points)
    M = shape[-1]
    K_cc, mean_c = K_cc.expand(*batch, M, M).reshape(-1, M, M), mean_c.to(torch.float64).expand(shape).reshape(-1, M)
    jittered = [add_jitter(K, JITTER) for K in K_cc]
    whiteners = [bounds.whitener(K) for K in jittered]
    sums = [bounds.Statistics.of_nothing(M, 1, points.device) for _ in jittered]
    for first in range(0, x.shape[-2], CHUNK_ROWS):
        rows = slice(first, first + CHUNK_ROWS)
        at = JointPrior(model, points, x[..., rows, :], shape[:-1], dtype=torch.float64)
        n = y[..., rows].shape[-1]
        K_cx = at.K_cx.expand(*batch, M, n).reshape(-1, M, n)
        residual = (y[..., rows] - at.mean_x).expand(*batch, n).reshape(-1, n)
        k_xx = at.k_xx.expand(*batch, n).reshape(-1, n)
        variance = noise[..., rows].expand(*batch, n).reshape(-1, n)
        for b in range(len(sums)):
            weighting = bounds.weigh(variance[b], k_xx[b])
            part = bounds.gather(
                whiteners[b], K_cx[b], k_xx[b], residual[b, :, None], weighting.precision, weighting.log_normaliser
            )
            sums[b] = sums[b].merge(part)
    start = (noise.reciprocal().sum(-1) / M).expand(batch).reshape(-1)  # as if each point stood for N / M rows
    y_c, w = torch.empty_like(mean_c), torch.empty_like(mean_c)
    for b, (K, total) in enumerate(zip(jittered, sums, strict=True)):
        best = best_coreset(K, total, start[b].expand(M))
        alpha = factorise(K, best.w, best.y_c).alpha[:, 0]
        # The jitter of K_cc and the variance of a site enter the posterior as one sum.
        w[b] = (best.w / (1.0 + JITTER * K_cc[b].diagonal().mean() * best.w)).clamp_max(highest)
        y_c[b] = mean_c[b] + K_cc[b] @ alpha + alpha / w[b]
    return BestSites(y_c.reshape(shape), w.reshape(shape))
