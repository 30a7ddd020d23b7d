"""Naive, dense NumPy versions of what cvgp computes fast: the arbiter of the other tests.

Every function follows its definition in float64, with plain inverses and determinants, for small and well
conditioned problems only. Nothing here imports cvgp, and nothing uses its stable forms, so that an agreement
between the two is evidence. `test_reference.py` checks the identities that hold between these functions.

Conventions: K_cc [M, M], K_cx [M, B], K_xx [B, B]; y [B] or [B, Q], Q independent outputs that share their
covariance (y_c is then [M, Q], and KL divergences and bounds are sums over the outputs); `noise` is a
variance, one number or one per data point [B]; `beta` [M] may hold zeros unless a function says otherwise.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Noise = float | Array
Scale = float | Array
Moments = tuple[Array, Array]  # mean, covariance

inv = np.linalg.inv


# Kernels: [N1, D], [N2, D] -> [N1, N2], `lengthscale` one number or one per dimension.


def _distance(X1: Array, X2: Array, lengthscale: Scale) -> Array:
    difference = (X1[:, None, :] - X2[None, :, :]) / lengthscale  # [N1, N2, D]
    return np.sqrt(np.sum(difference**2, axis=-1))


def rbf(X1: Array, X2: Array, lengthscale: Scale = 1.0, outputscale: float = 1.0) -> Array:
    return outputscale * np.exp(-0.5 * _distance(X1, X2, lengthscale) ** 2)


def matern12(X1: Array, X2: Array, lengthscale: Scale = 1.0, outputscale: float = 1.0) -> Array:
    return outputscale * np.exp(-_distance(X1, X2, lengthscale))


def matern32(X1: Array, X2: Array, lengthscale: Scale = 1.0, outputscale: float = 1.0) -> Array:
    d = np.sqrt(3.0) * _distance(X1, X2, lengthscale)
    return outputscale * (1.0 + d) * np.exp(-d)


def matern52(X1: Array, X2: Array, lengthscale: Scale = 1.0, outputscale: float = 1.0) -> Array:
    d = np.sqrt(5.0) * _distance(X1, X2, lengthscale)
    return outputscale * (1.0 + d + d**2 / 3.0) * np.exp(-d)


def rq(X1: Array, X2: Array, lengthscale: Scale = 1.0, outputscale: float = 1.0, alpha: float = 1) -> Array:
    return outputscale * (1.0 + _distance(X1, X2, lengthscale) ** 2 / (2.0 * alpha)) ** (-alpha)


# Gaussians.


def _logdet(S: Array) -> float:
    sign, value = np.linalg.slogdet(S)
    assert sign > 0, "the matrix is not positive definite: too badly conditioned for the reference"
    return float(value)


def _columns(y: Array) -> Array:
    return y.reshape(len(y), -1)  # [B] or [B, Q] -> [B, Q]


def gaussian_logpdf(y: Array, mean: Array, S: Array) -> float:
    """log N(y | mean, S), summed over the outputs."""
    r = _columns(y - mean)  # [B, Q]
    B, T = r.shape
    return float(-0.5 * T * (B * np.log(2 * np.pi) + _logdet(S)) - 0.5 * np.sum(r * (inv(S) @ r)))


def gaussian_kl(m0: Array, S0: Array, m1: Array, S1: Array) -> float:
    """KL(N(m0, S0) || N(m1, S1)), summed over the outputs."""
    r = _columns(m1 - m0)  # [M, Q]
    M, T = r.shape
    covariance_part = T * (np.trace(inv(S1) @ S0) - M + _logdet(S1) - _logdet(S0))
    return float(0.5 * (covariance_part + np.sum(r * (inv(S1) @ r))))


def _expected_log_lik(
    f_mean: Array,
    f_var: Array,
    y: Array,
    noise: Noise,
    sample_weight: Array | None = None,
    num_data: int | None = None,
) -> float:
    """sum_i weight_i E_{N(f_i | mean_i, var_i)} [log N(y_i | f_i, noise_i)], times N/B for a batch."""
    noise_i = np.broadcast_to(noise, f_var.shape)[:, None]  # [B, 1]
    squares = _columns(y - f_mean) ** 2 + f_var[:, None]  # [B, Q]
    per_point = np.sum(-0.5 * np.log(2 * np.pi * noise_i) - squares / (2 * noise_i), axis=1)  # [B]
    return _data_sum(per_point, sample_weight, num_data)


def _data_sum(per_point: Array, sample_weight: Array | None, num_data: int | None) -> float:
    weight = np.ones(len(per_point)) if sample_weight is None else sample_weight
    scale = 1.0 if num_data is None else num_data / len(per_point)
    return float(scale * np.sum(weight * per_point))


# The coreset posterior (eq. coreset_gp_posterior_f_analytical) and its KL.


def _site_posterior(K_cc: Array, K_cx: Array, K_xx: Array, y_c: Array, Sigma: Array) -> Moments:
    """Posterior at x of a GP that observed y_c with the noise covariance Sigma [M, M]."""
    A = inv(K_cc + Sigma)
    return K_cx.T @ A @ y_c, K_xx - K_cx.T @ A @ K_cx


def posterior(K_cc: Array, K_cx: Array, K_xx: Array, y_c: Array, beta: Array, noise: float) -> Moments:
    """Mean [B] or [B, Q] and covariance [B, B] of q(f); `noise` is the one of the sites, w = beta / noise.

    A likelihood raised to the power 0 says nothing: points of zero weight are left out of the observations.
    """
    seen = beta > 0
    Sigma = np.diag(noise / beta[seen])
    return _site_posterior(K_cc[np.ix_(seen, seen)], K_cx[seen], K_xx, y_c[seen], Sigma)


def coreset_q(K_cc: Array, y_c: Array, beta: Array, noise: float) -> Moments:
    """Mean and covariance of q(f_c) (eq. coreset_gp_posterior_fC_analytical)."""
    return posterior(K_cc, K_cc, K_cc, y_c, beta, noise)


def coreset_kl(K_cc: Array, y_c: Array, beta: Array, noise: float) -> float:
    """KL(q(f_c) || p(f_c))."""
    m, S = coreset_q(K_cc, y_c, beta, noise)
    return gaussian_kl(m, S, np.zeros_like(m), K_cc)


# Bounds of the coreset posterior, in total nats.


def _scalar_site_noise(noise: Noise, noise_site: float | None) -> float:
    if noise_site is not None:
        return noise_site
    assert np.ndim(noise) == 0, "with per-point noise, pass noise_site"
    return float(noise)


def elbo(
    K_cc: Array,
    K_cx: Array,
    K_xx: Array,
    y_c: Array,
    beta: Array,
    noise: Noise,
    y: Array,
    *,
    noise_site: float | None = None,
    sample_weight: Array | None = None,
    num_data: int | None = None,
) -> float:
    """The paper's bound (eq. loss_coreset_posterior_gp).

    `sample_weight` [B] multiplies each point's log-likelihood; `num_data` scales the data sum, not the KL.
    """
    site = _scalar_site_noise(noise, noise_site)
    mean, S = posterior(K_cc, K_cx, K_xx, y_c, beta, site)
    data_term = _expected_log_lik(mean, np.diag(S), y, noise, sample_weight, num_data)
    return data_term - coreset_kl(K_cc, y_c, beta, site)


def collapsed_optimum(
    K_cc: Array,
    K_cx: Array,
    beta: Array,
    noise: Noise,
    y: Array,
    *,
    noise_site: float | None = None,
    sample_weight: Array | None = None,
) -> Array:
    """The y_c that maximizes `elbo` at a fixed beta > 0: the zero of its gradient, which is linear in y_c."""
    assert np.all(beta > 0), "a point of zero weight has no best pseudo-output"
    precision = np.ones(len(y)) / noise if sample_weight is None else sample_weight / noise  # [B]
    A = inv(K_cc + np.diag(_scalar_site_noise(noise, noise_site) / beta))
    design = K_cx.T @ A  # [B, M]: the mean is design @ y_c
    curvature = design.T @ np.diag(precision) @ design + A @ K_cc @ A
    return inv(curvature) @ design.T @ np.diag(precision) @ y


# Bounds and predictions for an arbitrary q(u) = N(m, S); with u = f_c, take m, S from `coreset_q`.


def sparse_predict(m: Array, S: Array, K_uu: Array, K_us: Array, K_ss: Array) -> Moments:
    """Mean and covariance of the integral of p(f_s | u) q(u) over u."""
    projection = K_us.T @ inv(K_uu)  # [B, M]
    return projection @ m, K_ss - projection @ K_us + projection @ S @ projection.T


def svgp_elbo(
    m: Array, S: Array, K_uu: Array, K_ux: Array, K_xx: Array, y: Array, noise: Noise, **options: Any
) -> float:
    """The bound of Hensman et al. 2013 (eq. dataloglikelihood_lowerbound_SVGP).

    The options are `sample_weight` and `num_data`, as in `elbo`.
    """
    mean, covariance = sparse_predict(m, S, K_uu, K_ux, K_xx)
    data_term = _expected_log_lik(mean, np.diag(covariance), y, noise, **options)
    return data_term - gaussian_kl(m, S, np.zeros_like(m), K_uu)


def tight_bound(
    m: Array,
    S: Array,
    K_uu: Array,
    K_ux: Array,
    K_xx: Array,
    y: Array,
    noise: Noise,
    *,
    sample_weight: Array | None = None,
    num_data: int | None = None,
) -> float:
    """The bound of Titsias 2025, from its posterior q(f | u) = N(K_xu K_uu^-1 u, C^1/2 diag(v) C^1/2).

    C is the prior's conditional covariance K_xx - Q_xx; the best v_i is 1 / (1 + weight_i C_ii / noise_i).
    The variance that q(f | u) leaves and its divergence from p(f | u) are computed apart here; they add up to
    -1/2 log(1 + weight_i C_ii / noise_i).
    """
    T = _columns(y).shape[1]
    projection = K_ux.T @ inv(K_uu)  # [B, M]
    C_ii = np.diag(K_xx - projection @ K_ux)  # [B]
    weight = np.ones(len(y)) if sample_weight is None else sample_weight
    v = 1.0 / (1.0 + weight * C_ii / noise)
    f_var = v * C_ii + np.diag(projection @ S @ projection.T)
    conditional_kl = 0.5 * T * (v - 1.0 - np.log(v))  # [B]
    data_term = _expected_log_lik(projection @ m, f_var, y, noise, sample_weight, num_data)
    data_term -= _data_sum(conditional_kl, None, num_data)
    return data_term - gaussian_kl(m, S, np.zeros_like(m), K_uu)


# Titsias 2009 and the exact GP.


def titsias_q(K_uu: Array, K_ux: Array, y: Array, noise: Noise) -> Moments:
    """Mean and covariance of the optimal q(u) (eq. sparseGP_optimal_q)."""
    precision = np.diag(np.ones(len(y)) / noise)  # [B, B]
    middle = inv(K_uu + K_ux @ precision @ K_ux.T)
    return K_uu @ middle @ K_ux @ precision @ y, K_uu @ middle @ K_uu


def titsias_bound(K_uu: Array, K_ux: Array, K_xx: Array, y: Array, noise: Noise) -> float:
    """eq. dataloglikelihood_lowerbound_titsias_analytical."""
    Q_xx = K_ux.T @ inv(K_uu) @ K_ux
    N, T = _columns(y).shape
    trace_term = -0.5 * T * np.sum(np.diag(K_xx - Q_xx) / noise)
    return gaussian_logpdf(y, np.zeros_like(y), Q_xx + np.diag(np.ones(N) * noise)) + float(trace_term)


def sgpr_predict(K_uu: Array, K_ux: Array, K_us: Array, K_ss: Array, y: Array, noise: Noise) -> Moments:
    """Mean and covariance of f at new inputs s under Titsias' optimal q(u)."""
    m, S = titsias_q(K_uu, K_ux, y, noise)
    return sparse_predict(m, S, K_uu, K_us, K_ss)


def log_marginal(K_xx: Array, y: Array, noise: Noise) -> float:
    """log p(y) of the exact GP."""
    return gaussian_logpdf(y, np.zeros_like(y), K_xx + np.diag(np.ones(len(y)) * noise))


def exact_gp_predict(K_xx: Array, K_xs: Array, K_ss: Array, y: Array, noise: Noise) -> Moments:
    """Mean and covariance of f at new inputs s given all the data."""
    return _site_posterior(K_xx, K_xs, K_ss, y, np.diag(np.ones(len(y)) * noise))


# Rows given their neighbors.


def neighbor_chain(C: Array, noise: Noise, neighbors: list[list[int]]) -> Array:
    """Covariance [N, N] of outputs that follow one another: output i given those of its neighbors alone.

    C [N, N] is the covariance of the process. `neighbors` lists, for each row, rows before it.
    """
    N = len(C)
    S = C + np.diag(np.ones(N) * noise)
    weights, left = np.zeros((N, N)), np.zeros(N)
    for i, before in enumerate(neighbors):
        weights[i, before] = inv(S[np.ix_(before, before)]) @ S[before, i]
        left[i] = S[i, i] - weights[i] @ S[:, i]
    chain = inv(np.eye(N) - weights)
    return chain @ np.diag(left) @ chain.T


def neighbor_model(K: Array, Psi: Array, noise: Noise, neighbors: list[list[int]]) -> Array:
    """Covariance [N, N] of outputs with the features Psi [N, M] and neighbors for what these leave."""
    return Psi @ Psi.T + neighbor_chain(K - Psi @ Psi.T, noise, neighbors)


def gaussian_condition(S: Array, y: Array, seen: list[int], wanted: list[int]) -> Moments:
    """Mean and covariance of some variables given the values y of others, all of covariance S and mean zero."""
    gain = S[np.ix_(wanted, seen)] @ inv(S[np.ix_(seen, seen)])
    return gain @ y, S[np.ix_(wanted, wanted)] - gain @ S[np.ix_(seen, wanted)]


# Weight space.


def weight_space_posterior(Phi_c: Array, y_c: Array, beta: Array, noise: float) -> tuple[Array, Array, float]:
    """Mean, covariance and KL from N(0, I) of q(weights) for the features Phi_c [M, F].

    Bayesian linear regression on the weighted pseudo-data (eq. coreset_posterior_w_propto).
    """
    W = np.diag(beta / noise)
    covariance = inv(np.eye(Phi_c.shape[1]) + Phi_c.T @ W @ Phi_c)
    mean = covariance @ Phi_c.T @ W @ y_c
    return mean, covariance, gaussian_kl(mean, covariance, np.zeros_like(mean), np.eye(Phi_c.shape[1]))
