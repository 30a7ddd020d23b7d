r"""Power expectation propagation: an estimate of log p(y) between Titsias' bound and FITC (§6.3).

What the pseudo-inputs leave unexplained of the prior variance, :math:`d_i = k_{ii} - k_i^T K^{-1} k_i`, counts as noise
of row i, by a share :math:`0 < a \le 1` (the power):

.. math:: t_i = s_i + a\, d_i, \qquad
          \log N(y \mid 0, Q_{xx} + diag(t)) - \tfrac{1 - a}{2a} \sum_i \log(1 + a\, d_i / s_i).

As a falls to zero this is the bound of Titsias (2009); a = 1 is the log marginal likelihood of FITC. It is no lower
bound. Its sum over rows is that of the paper's bound with precisions :math:`1 / t_i`, with the explained variance
:math:`k_{ii} - d_i` in place of :math:`k_{ii}`, and with :math:`\log(1 + a\, d_i / s_i) / (2a)` taken from the log
normaliser of each row. So statistics, the best sites and minibatches stay as they are. Sections (§) are those of
docs/mathematics.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.elbo import weighted_elbo
from cvgp.gp.bounds.statistics import Statistics, Weighting, check_matrices, gather_whitened, site_precision, weigh
from cvgp.gp.bounds.titsias import TitsiasSolution, pull_back_rows, row_moments, unexplained_variance


def power_evidence(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    y: Tensor,
    y_c: Tensor,
    beta: Tensor,
    noise: Tensor,
    power: float,
    *,
    site_noise: Tensor | None = None,
    sample_weight: Tensor | None = None,
    num_data: float | None = None,
) -> Tensor:
    """The estimate of log p(y) for any sites, from all data or from a minibatch without bias, in nats (§6.3).

    Arguments and derivatives are those of :func:`cvgp.gp.bounds.elbo.elbo`, and `power` is in (0, 1].
    """
    check_matrices(K_cc, K_cx, k_xx, y)
    unexplained = unexplained_variance(K_cc, K_cx, k_xx)  # [B]
    weighting = _weigh_by_power(noise, unexplained, power, sample_weight=sample_weight, num_data=num_data)
    w = site_precision(beta, noise, site_noise)
    return weighted_elbo(K_cc, K_cx, k_xx - unexplained, y, y_c, w, weighting)


def gather_power(
    psi: Tensor, k_xx: Tensor, y: Tensor, noise: Tensor, power: float, *, sample_weight: Tensor | None = None
) -> Statistics:
    """Statistics of one batch, from whitened features psi = L_K^-1 K_cx `[M, B]` and outputs `y` `[B, Q]` (§6.3).

    The best sites that follow from them maximise :func:`power_evidence`.
    """
    unexplained = (k_xx - psi.square().sum(0)).clamp_min(0.0)  # [B]
    weighting = _weigh_by_power(noise, unexplained, power, sample_weight=sample_weight)
    return gather_whitened(psi, k_xx - unexplained, y, weighting.precision, weighting.log_normaliser)


class PowerPart(NamedTuple):
    """Derivatives of the estimate at the best full site covariance: one batch's part."""

    K_cx: Tensor  # [M, B]
    k_xx: Tensor  # [B]
    y: Tensor  # [B, Q]
    noise: Tensor  # [B]
    Psi: Tensor  # [M, M], as in TightPart


def power_data_gradient(
    solution: TitsiasSolution,
    L_K_inv: Tensor,
    psi: Tensor,
    k_xx: Tensor,
    y: Tensor,
    noise: Tensor,
    power: float,
    *,
    sample_weight: Tensor | None = None,
) -> PowerPart:
    r"""The second pass over a batch, for a `solution` of the sums of :func:`gather_power`; in float64 (§6.3).

    With :math:`e_i` the variance of the explained part of f, :math:`\rho_i = c_i / t_i` and one output,
    :math:`\partial / \partial t_i = \frac{\rho_i}{2} [(r_i^2 + e_i) / t_i - 1]`, and the derivative in the explained
    variance :math:`q_i`, through precision, normaliser and variance, is
    :math:`-\frac{a}{2} \rho_i (r_i^2 + e_i) / t_i`.
    """
    num_outputs, dtype = y.shape[1], psi.dtype
    psi, k_xx, y, noise = (t.to(torch.float64) for t in (psi, k_xx, y, noise))
    at = row_moments(solution, psi, k_xx, y)
    weighting = _weigh_by_power(noise, at.unexplained, power, sample_weight=sample_weight)
    rho, t = weighting.precision, noise + power * at.unexplained  # [B]
    misfit = at.r.square().sum(1) + num_outputs * (at.f_var - at.unexplained)  # [B], r^2 + e
    d_t = 0.5 * rho * (misfit / t - num_outputs)
    d_noise = d_t + 0.5 * num_outputs * (1.0 - power) * rho * at.unexplained / noise
    d_q = torch.where(at.unexplained > 0.0, -0.5 * power * rho * misfit / t, 0.0)
    back = pull_back_rows(solution, L_K_inv, psi, at, rho, d_q)
    d_K_cx, d_k_xx, d_y, d_noise = (g.to(dtype) for g in (back.K_cx, back.k_xx, back.y, d_noise))
    return PowerPart(d_K_cx, d_k_xx, d_y, d_noise, back.Psi)


def _weigh_by_power(
    noise: Tensor,
    unexplained: Tensor,
    power: float,
    *,
    sample_weight: Tensor | None = None,
    num_data: float | None = None,
) -> Weighting:
    """What :func:`cvgp.gp.bounds.statistics.weigh` gives at the noise t, with the payment of each row in it."""
    if not 0.0 < power <= 1.0:
        raise InvalidInputError(f"power must be above 0 and at most 1; got {power!r}.")
    weighting = weigh(noise, unexplained, sample_weight=sample_weight, num_data=num_data)
    ratio = power * unexplained.to(torch.float64) / noise.reshape(-1)  # [B], a d / s
    payment = ratio.log1p() if sample_weight is None else sample_weight * ratio.log1p()  # [B], times 2 a
    return weighting._replace(
        precision=weighting.precision / (1.0 + ratio).to(weighting.precision.dtype),
        log_normaliser=weighting.log_normaliser - weighting.scale * payment.sum() / (2.0 * power),
    )
