r"""How much each observation counts in a bound.

Every Gaussian bound is a sum over observations of
:math:`-\frac12 [\log 2\pi s_i + ((y_i - m_i)^2 + v_i) / s_i]`, each multiplied by its sample weight and by N/B.
Two numbers carry all of that: the precision :math:`\rho_i` and the sum of the logarithms. The tighter bound, which is
not linear in the sample weight, also needs N/B by itself.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError

__all__ = ["Weighting", "site_precision", "weigh"]


class Weighting(NamedTuple):
    """Multipliers of the observations of one batch."""

    scale: float  # N/B
    precision: Tensor  # [B], sample weight times N/B, over the noise variance
    log_normaliser: Tensor  # [], -1/2 sum of sample weight times N/B times log(2 pi noise)


def weigh(
    noise: Tensor, like: Tensor, *, sample_weight: Tensor | None = None, num_data: float | None = None
) -> Weighting:
    """Combine noise (a scalar or one a point), sample weights and the size of the full data set.

    Parameters
    ----------
    noise
        Noise variance, `[]` or `[B]`.
    like
        A data-side vector `[B]` that gives the batch size, precision and device.
    sample_weight
        How often each observation counts, `[B]`; once if it is None.
    num_data
        N, or the total weight, of which this batch is a uniform sample; the batch is all there is if it is None.
    """
    B = like.shape[0]
    if num_data is not None and num_data < 1:
        raise InvalidInputError(f"num_data, the size of the full data set, must be at least 1; got {num_data}.")
    scale = 1.0 if num_data is None else num_data / B
    on_other_device = [t.device for t in (noise, sample_weight) if t is not None and t.device != like.device]
    if on_other_device:
        raise InvalidInputError(
            f"noise and sample_weight must be on {like.device}, where the batch is; got {on_other_device[0]}. "
            "Move them with .to(device)."
        )
    if noise.ndim > 1 or (noise.ndim == 1 and noise.shape[0] not in (1, B)):
        raise InvalidInputError(f"noise must be a scalar or one variance a point [{B}]; got {tuple(noise.shape)}.")
    if not bool(((noise > 0) & torch.isfinite(noise)).all()):
        raise InvalidInputError("noise holds variances: every one must be positive and finite.")
    # Logarithms add up over N terms of similar size, so they are float64 whatever the data's precision is.
    log_noise = (2.0 * math.pi * noise.reshape(-1).to(torch.float64)).log()  # [1] or [B]
    sample_precision = noise.reshape(-1).to(like.dtype).reciprocal()  # [1] or [B]
    if sample_weight is None:
        total = log_noise.sum() * (B / len(log_noise))
    else:
        _check_sample_weight(sample_weight, B)
        total = (sample_weight.to(torch.float64) * log_noise).sum()
        sample_precision = sample_weight.to(like.dtype) * sample_precision
    return Weighting(scale, (scale * sample_precision).expand(B), -0.5 * scale * total)


def _check_sample_weight(sample_weight: Tensor, B: int) -> None:
    if sample_weight.shape != (B,):
        raise InvalidInputError(f"sample_weight must be [{B}], one a point; got {tuple(sample_weight.shape)}.")
    if not bool(((sample_weight >= 0) & torch.isfinite(sample_weight)).all()):
        raise InvalidInputError("Sample weights must be finite and not negative; drop rows that should not count.")


def site_precision(beta: Tensor, noise: Tensor, site_noise: Tensor | None) -> Tensor:
    """Site precisions w = beta / noise; with per-point noise the variance that sites share must be named."""
    if site_noise is None:
        if noise.numel() != 1:
            raise InvalidInputError(
                "With per-point noise, site_noise must be given: the variance that a weight of one stands for, "
                "usually the harmonic mean of the noise over all data."
            )
        site_noise = noise.reshape(())
    return beta.to(torch.float64) / site_noise.to(torch.float64)
