"""Divergences of Gaussian posteriors, and the joint density of held-out points, as the paper reports them; in nats."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from cvgp.coreset import FloatArray, finite_array
from cvgp.errors import FactorizationError, InvalidInputError
from cvgp.metrics import LOG_2PI, check_positive, vectors

_LOG_2 = float(np.log(2))

# Jensen-Shannon quadrature: Gauss-Legendre on panels one standard deviation wide, out to 9 on either side of each
# mean, beyond which lies a mass of 2e-19.
_PANEL_EDGES = np.arange(-9.0, 10.0)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)
PAIRS_AT_ONCE = 2048  # bounds the memory: about 10 MB for each intermediate array


def joint_log_density(y: ArrayLike, mean: ArrayLike, covariance: ArrayLike) -> float:
    """Log N(y; mean, covariance) of all points together, in nats; divide by n to compare with the paper's PPLL."""
    y, mean = vectors(y=y, mean=mean)
    L = cholesky("covariance", covariance, len(y))  # [n, n]
    z = solve_triangular(L, y - mean, lower=True)  # [n]
    return float(-0.5 * (len(y) * LOG_2PI + z @ z) - np.sum(np.log(np.diag(L))))


def kl_gaussian(m0: ArrayLike, S0: ArrayLike, m1: ArrayLike, S1: ArrayLike) -> float:
    """KL(N(m0, S0) || N(m1, S1)) in nats, at least 0."""
    m0, m1 = vectors(m0=m0, m1=m1)
    L0, L1 = cholesky("S0", S0, len(m0)), cholesky("S1", S1, len(m0))
    A = solve_triangular(L1, L0, lower=True)  # [n, n], lower triangular, the identity where S0 = S1
    z = solve_triangular(L1, m1 - m0, lower=True)  # [n]
    # With e = diag(A)^2 - 1, trace and determinants give e - log(1 + e): no term can be negative or cancel another.
    excess = np.diag(A) ** 2 - 1
    return float(0.5 * (np.sum(np.tril(A, -1) ** 2) + np.sum(excess - np.log1p(excess)) + z @ z))


def jeffreys(m0: ArrayLike, S0: ArrayLike, m1: ArrayLike, S1: ArrayLike) -> float:
    """Mean of the two Kullback-Leibler divergences; the paper's figures call it, per point, Jensen-Shannon."""
    return 0.5 * (kl_gaussian(m0, S0, m1, S1) + kl_gaussian(m1, S1, m0, S0))


def jensen_shannon_marginals(mean0: ArrayLike, sd0: ArrayLike, mean1: ArrayLike, sd1: ArrayLike) -> FloatArray:
    """Jensen-Shannon divergence of each pair of normals [n], between 0 and log 2, by quadrature to 1e-12."""
    mean0, sd0, mean1, sd1 = vectors(mean0=mean0, sd0=sd0, mean1=mean1, sd1=sd1)
    check_positive("sd0", sd0)
    check_positive("sd1", sd1)
    # The narrower of the two becomes N(0, 1), so that rounding never swallows its panels.
    narrow = np.minimum(sd0, sd1)
    ratio = np.maximum(sd0, sd1) / narrow
    # From 40 standard deviations on there is no overlap left, and a greater distance would swallow them as well.
    distance = np.minimum(np.abs(mean1 - mean0) / narrow, 40 * (1 + ratio))
    starts = range(0, len(narrow), PAIRS_AT_ONCE)
    parts = [_jensen_shannon(distance[i : i + PAIRS_AT_ONCE], ratio[i : i + PAIRS_AT_ONCE]) for i in starts]
    return np.concatenate(parts)


def _jensen_shannon(distance: FloatArray, ratio: FloatArray) -> FloatArray:
    """Divergence of p = N(0, 1) from q = N(distance, ratio^2), ratio >= 1, for each pair."""
    center, scale = distance[:, None], ratio[:, None]  # [n, 1]
    own = np.broadcast_to(_PANEL_EDGES, (len(distance), len(_PANEL_EDGES)))
    edges = np.sort(np.concatenate([own, center + scale * _PANEL_EDGES], axis=1), axis=1)  # [n, panels + 1]
    half_width = 0.5 * np.diff(edges)[..., None]  # [n, panels, 1]
    t = 0.5 * (edges[:, :-1] + edges[:, 1:])[..., None] + half_width * _NODES  # [n, panels, nodes]
    # 1000 standard deviations out a density is zero, and its square must not overflow.
    z_p = np.clip(t, -1e3, 1e3)
    z_q = np.clip((t - center[..., None]) / scale[..., None], -1e3, 1e3)
    log_p, log_q = -0.5 * z_p**2, -0.5 * z_q**2 - np.log(scale[..., None])  # without the factor 1 / sqrt(2 pi)
    mixture = 0.5 * (np.exp(log_p) + np.exp(log_q)) / np.sqrt(2 * np.pi)
    # p = mixture (1 + u) and q = mixture (1 - u) with u = tanh(gap / 2), so the integrand is the mixture times half of
    # (1 + u) log(1 + u) + (1 - u) log(1 - u) = u gap - 2 log cosh(gap / 2), which is 2 log 2 from a gap of 60 on.
    gap = np.minimum(np.abs(log_p - log_q), 60.0)
    divergence = 0.5 * (gap * np.tanh(0.5 * gap) - np.log1p(np.sinh(0.5 * gap) ** 2))
    total = np.sum(_NODE_WEIGHTS * half_width * mixture * divergence, axis=(1, 2))  # [n]
    return np.asarray(np.minimum(total, _LOG_2))  # rounding may exceed the limit by an ulp


def cholesky(name: str, value: ArrayLike, n: int) -> FloatArray:
    """The Cholesky factor [n, n] of a covariance."""
    matrix = finite_array(name, value)
    if matrix.shape != (n, n):
        raise InvalidInputError(f"{name} must have shape ({n}, {n}), as the means have length {n}; got {matrix.shape}.")
    asymmetry = np.max(np.abs(matrix - matrix.T))
    if asymmetry > 1e-5 * np.max(np.abs(matrix)):  # room for the rounding of single precision
        raise InvalidInputError(f"{name} must be symmetric, but its mirrored entries differ by up to {asymmetry:g}.")
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise FactorizationError(
            f"{name} is not positive definite, so it has no density; include the noise or add a small diagonal."
        ) from error
