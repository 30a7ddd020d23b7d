"""How much each observation counts, and the sums over observations that bounds are made of (§5.1).

Two numbers carry sample weights, noise and N/B: the precision rho_i of each row, and the sum of the logarithms.
Whitening factorizes `K_cc`, so callers add their jitter to it first (:func:`cvgp.gp.linalg.add_jitter`).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.linalg import as_square, inverse_lower, safe_cholesky, symmetric_product


class Weighting(NamedTuple):
    """Multipliers of the observations of one batch (§3)."""

    scale: float  # N/B
    precision: Tensor  # [B], sample weight times N/B, over the noise variance
    log_normalizer: Tensor  # [], -1/2 sum of sample weight times N/B times log(2 pi noise)


def weigh(
    noise: Tensor, like: Tensor, *, sample_weight: Tensor | None = None, num_data: float | None = None
) -> Weighting:
    """Combine noise `[]` or `[B]`, sample weights `[B]` and the size N of the full data set (§3)."""
    B = like.shape[0]
    if num_data is not None and not num_data > 0:
        raise InvalidInputError(f"num_data, the size or weight of the full data set, must be positive; got {num_data}.")
    scale = 1.0 if num_data is None else num_data / B
    if noise.ndim > 1 or (noise.ndim == 1 and noise.shape[0] not in (1, B)):
        raise InvalidInputError(f"noise must be a scalar or one variance per point [{B}]; got {tuple(noise.shape)}.")
    if not bool(((noise > 0) & torch.isfinite(noise)).all()):
        raise InvalidInputError("noise holds variances: every one must be positive and finite.")
    # Logarithms add up over N terms of similar size, so they are float64 whatever the data's precision is.
    log_noise = (2.0 * math.pi * noise.reshape(-1).to(torch.float64)).log()  # [1] or [B]
    sample_precision = noise.reshape(-1).to(like.dtype).reciprocal()  # [1] or [B]
    if sample_weight is None:
        total = log_noise.sum() * (B / max(len(log_noise), 1))  # there may be no points
    else:
        if sample_weight.shape != (B,):
            raise InvalidInputError(f"sample_weight must be [{B}], one per point; got {tuple(sample_weight.shape)}.")
        if not bool(((sample_weight >= 0) & torch.isfinite(sample_weight)).all()):
            raise InvalidInputError("Sample weights must be finite and not negative; drop rows that should not count.")
        total = (sample_weight.to(torch.float64) * log_noise).sum()
        sample_precision = sample_weight.to(like.dtype) * sample_precision
    return Weighting(scale, (scale * sample_precision).expand(B), -0.5 * scale * total)


def site_precision(beta: Tensor, noise: Tensor, site_noise: Tensor | None) -> Tensor:
    """Site precisions w = beta / noise (§2); with noise per point the variance that sites share must be given."""
    if site_noise is None:
        if noise.numel() != 1:
            raise InvalidInputError(
                "With noise per point, site_noise must be given: the noise variance of a site of weight one, "
                "usually the harmonic mean of the noise over all data."
            )
        site_noise = noise.reshape(())
    return beta.to(torch.float64) / site_noise.to(torch.float64)


class Statistics(NamedTuple):
    """Additive sums over data, whitened by one kernel and one set of pseudo-inputs; all float64 (§5.1)."""

    Phi: Tensor  # [M, M], sum of rho psi psi^T
    b: Tensor  # [M, Q], sum of rho psi y^T
    yy: Tensor  # [], sum of rho y^2 over points and outputs
    kk: Tensor  # [], sum of rho k_ii
    log_normalizer: Tensor  # [], -1/2 sum of log(2 pi s)

    @classmethod
    def zeros(cls, size: int, num_outputs: int, device: torch.device) -> "Statistics":
        """The sums over no data, for a number of pseudo-inputs and of outputs."""
        shapes: list[tuple[int, ...]] = [(size, size), (size, num_outputs), (), (), ()]
        return cls(*(torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes))

    def merge(self, other: "Statistics") -> "Statistics":
        """Statistics of the union of two disjoint data sets, exactly."""
        if self.b.shape != other.b.shape:
            raise InvalidInputError(
                "Statistics merge only when they come from the same kernel, pseudo-inputs and outputs; "
                f"got [M, Q] of {tuple(self.b.shape)} and {tuple(other.b.shape)}."
            )
        return Statistics(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Statistics":
        """The sums times a factor: an estimate for all rows, if these are a sample."""
        return Statistics(*(factor * total for total in self))

    def at_noise(self, before: float, after: float, weight: float) -> "Statistics":
        """The same sums with another noise variance, where all rows have one; `weight` is how many rows they are of."""
        factor = before / after
        Phi, b, yy, kk, log_normalizer = self
        log_normalizer = log_normalizer + 0.5 * weight * math.log(factor)
        return Statistics(factor * Phi, factor * b, factor * yy, factor * kk, log_normalizer)


def check_sizes(statistics: Statistics, K_cc: Tensor, w: Tensor) -> None:
    """Raise unless the matrix and the weights fit the pseudo-inputs of the statistics."""
    M = len(statistics.b)
    if K_cc.shape != (M, M) or w.shape != (M,):
        raise InvalidInputError(
            f"With statistics of {M} pseudo-inputs, K_cc must be [{M}, {M}] and the weights w [{M}]; "
            f"got {tuple(K_cc.shape)} and {tuple(w.shape)}."
        )


def whitener(K_cc: Tensor) -> Tensor:
    """L_K^-1 [M, M] with K_cc = L_K L_K^T: turns kernel columns into features with unit prior covariance (§5.1)."""
    return inverse_lower(safe_cholesky(as_square(K_cc), "K_cc"))


def gather(
    L_K_inv: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor, log_normalizer: Tensor
) -> Statistics:
    """Statistics of one batch: `K_cx` [M, B], `k_xx` [B], `y` [B, Q], its precisions and log normalizer (§5.1)."""
    check_matrices(L_K_inv, K_cx, k_xx, y)
    if y.ndim != 2:
        raise InvalidInputError(f"y must be [B, Q]; got {tuple(y.shape)}. Use y[:, None] for one output.")
    return gather_whitened(L_K_inv.to(K_cx.dtype) @ K_cx, k_xx, y, precision, log_normalizer)


def gather_whitened(psi: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor, log_normalizer: Tensor) -> Statistics:
    """The same from the whitened features psi = L_K^-1 K_cx `[M, B]`."""
    rho_psi = psi * precision
    return Statistics(
        Phi=symmetric_product(rho_psi, psi).to(torch.float64),
        b=(rho_psi @ y).to(torch.float64),
        yy=(precision[:, None] * y.square()).sum(dtype=torch.float64),
        kk=(precision * k_xx).sum(dtype=torch.float64),
        log_normalizer=log_normalizer,
    )


class DataGradient(NamedTuple):
    """Derivatives of a bound at its best sites, on the data side of one batch."""

    K_cx: Tensor  # [M, B]
    k_xx: Tensor  # [B]
    y: Tensor  # [B, Q]
    precision: Tensor  # [B]


def data_gradient(alpha: Tensor, A: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor) -> DataGradient:
    """The second pass over a batch: the ELBO's own derivatives at the best y_c, by the envelope theorem (§5.2)."""
    num_outputs, dtype = y.shape[1], K_cx.dtype
    K_cx, k_xx, y, rho = (t.to(torch.float64) for t in (K_cx, k_xx, y, precision))
    AK = A @ K_cx  # [M, B]
    r = y - K_cx.mT @ alpha  # [B, Q]
    f_var = k_xx - (K_cx * AK).sum(0)
    rho_r = rho[:, None] * r
    gradient = DataGradient(
        K_cx=torch.addmm(AK * (num_outputs * rho), alpha, rho_r.mT),
        k_xx=-0.5 * num_outputs * rho,
        y=-rho_r,
        precision=-0.5 * (r.square().sum(1) + num_outputs * f_var),
    )
    return DataGradient(*(g.to(dtype) for g in gradient))


def check_matrices(square: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor | None = None) -> None:
    """Raise unless `square` [M, M], `K_cx` [M, B], `k_xx` [B] and `y` [B] or [B, Q] fit together."""
    M, B = square.shape[-1] if square.ndim else 0, k_xx.numel()
    if square.shape != (M, M) or K_cx.shape != (M, B) or k_xx.shape != (B,) or M == 0 or B == 0:
        raise InvalidInputError(
            "The matrix among the pseudo-inputs must be [M, M], K_cx [M, B] and k_xx [B], with M and B at least 1; "
            f"got {tuple(square.shape)}, {tuple(K_cx.shape)} and {tuple(k_xx.shape)}."
        )
    if y is not None and (y.ndim not in (1, 2) or y.shape[0] != B):
        raise InvalidInputError(f"With {B} columns in K_cx, y must be [{B}] or [{B}, Q]; got {tuple(y.shape)}.")
    data_side = [K_cx, k_xx] if y is None else [K_cx, k_xx, y]
    if any(tensor.dtype != K_cx.dtype for tensor in data_side) or not K_cx.is_floating_point():
        raise InvalidInputError(
            "K_cx, k_xx and y must share one floating-point type; "
            f"got {', '.join(str(tensor.dtype) for tensor in data_side)}. Convert them with .to(dtype)."
        )
