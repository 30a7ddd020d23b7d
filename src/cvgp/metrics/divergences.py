"""How far apart two Gaussian posteriors lie, in nats."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from cvgp.finite import FloatArray
from cvgp.metrics.arguments import check_positive, cholesky, vectors

__all__ = ["jeffreys", "jensen_shannon_marginals", "kl_gaussian"]

_LOG_2 = float(np.log(2))

# Jensen-Shannon quadrature: Gauss-Legendre on panels one standard deviation wide, out to 9 on either side of each
# mean, beyond which lies a mass of 2e-19.
_PANEL_EDGES = np.arange(-9.0, 10.0)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)
PAIRS_AT_ONCE = 2048  # bounds the memory: about 10 MB for each intermediate array


def kl_gaussian(m0: ArrayLike, S0: ArrayLike, m1: ArrayLike, S1: ArrayLike) -> float:
    """KL(N(m0, S0) || N(m1, S1)).

    Parameters
    ----------
    m0, m1 : array-like of shape [n]
        Means.
    S0, S1 : array-like of shape [n, n]
        Covariances, symmetric and positive definite.

    Returns
    -------
    float
        Nats, at least 0.

    Raises
    ------
    InvalidInputError
        If the arguments are not finite, their shapes do not fit, or a covariance is not symmetric.
    InvalidTypeError
        If they hold no real numbers.
    FactorisationError
        If a covariance is not positive definite.

    Examples
    --------
    >>> from cvgp.metrics import kl_gaussian
    >>> kl_gaussian([0.0], [[1.0]], [1.0], [[1.0]])
    0.5
    """
    m0, m1 = vectors(m0=m0, m1=m1)
    L0, L1 = cholesky("S0", S0, len(m0)), cholesky("S1", S1, len(m0))
    A = solve_triangular(L1, L0, lower=True)  # [n, n], lower triangular, the identity where S0 = S1
    z = solve_triangular(L1, m1 - m0, lower=True)  # [n]
    # With e = diag(A)^2 - 1, trace and determinants give e - log(1 + e): no term can be negative or cancel another.
    excess = np.diag(A) ** 2 - 1
    return float(0.5 * (np.sum(np.tril(A, -1) ** 2) + np.sum(excess - np.log1p(excess)) + z @ z))


def jeffreys(m0: ArrayLike, S0: ArrayLike, m1: ArrayLike, S1: ArrayLike) -> float:
    """Mean of the two Kullback-Leibler divergences between N(m0, S0) and N(m1, S1).

    The paper's figures call this, divided by the number of points, a Jensen-Shannon divergence.

    Parameters
    ----------
    m0, m1 : array-like of shape [n]
        Means.
    S0, S1 : array-like of shape [n, n]
        Covariances, symmetric and positive definite.

    Returns
    -------
    float
        Nats, at least 0.

    Raises
    ------
    InvalidInputError
        If the arguments are not finite, their shapes do not fit, or a covariance is not symmetric.
    InvalidTypeError
        If they hold no real numbers.
    FactorisationError
        If a covariance is not positive definite.

    Examples
    --------
    >>> from cvgp.metrics import jeffreys
    >>> jeffreys([0.0], [[1.0]], [1.0], [[1.0]])
    0.5
    """
    return 0.5 * (kl_gaussian(m0, S0, m1, S1) + kl_gaussian(m1, S1, m0, S0))


def jensen_shannon_marginals(mean0: ArrayLike, sd0: ArrayLike, mean1: ArrayLike, sd1: ArrayLike) -> FloatArray:
    """Jensen-Shannon divergence of each pair of one-dimensional Gaussians, between 0 and log 2.

    By quadrature, since the mixture of two Gaussians has no entropy in closed form; the absolute error stays
    below 1e-12 however unequal the pair.

    Parameters
    ----------
    mean0, sd0, mean1, sd1 : array-like of shape [n]
        Means and standard deviations.

    Returns
    -------
    ndarray of shape [n]
        Nats, one number per pair.

    Raises
    ------
    InvalidInputError
        If the arguments are not finite vectors of one length, or a standard deviation is not positive.
    InvalidTypeError
        If they hold no real numbers.

    Examples
    --------
    >>> from cvgp.metrics import jensen_shannon_marginals
    >>> jensen_shannon_marginals([0.0, 0.0], [1.0, 1.0], [0.0, 99.0], [1.0, 1.0]).round(3).tolist()
    [0.0, 0.693]
    """
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
    centre, scale = distance[:, None], ratio[:, None]  # [n, 1]
    own = np.broadcast_to(_PANEL_EDGES, (len(distance), len(_PANEL_EDGES)))
    edges = np.sort(np.concatenate([own, centre + scale * _PANEL_EDGES], axis=1), axis=1)  # [n, panels + 1]
    half_width = 0.5 * np.diff(edges)[..., None]  # [n, panels, 1]
    t = 0.5 * (edges[:, :-1] + edges[:, 1:])[..., None] + half_width * _NODES  # [n, panels, nodes]
    # 1000 standard deviations out a density is zero, and its square must not overflow.
    z_p = np.clip(t, -1e3, 1e3)
    z_q = np.clip((t - centre[..., None]) / scale[..., None], -1e3, 1e3)
    log_p, log_q = -0.5 * z_p**2, -0.5 * z_q**2 - np.log(scale[..., None])  # without the factor 1 / sqrt(2 pi)
    mixture = 0.5 * (np.exp(log_p) + np.exp(log_q)) / np.sqrt(2 * np.pi)
    # p = mixture (1 + u) and q = mixture (1 - u) with u = tanh(gap / 2), so the integrand is the mixture times half of
    # (1 + u) log(1 + u) + (1 - u) log(1 - u) = u gap - 2 log cosh(gap / 2), which is 2 log 2 from a gap of 60 on.
    gap = np.minimum(np.abs(log_p - log_q), 60.0)
    divergence = 0.5 * (gap * np.tanh(0.5 * gap) - np.log1p(np.sinh(0.5 * gap) ** 2))
    total = np.sum(_NODE_WEIGHTS * half_width * mixture * divergence, axis=(1, 2))  # [n]
    return np.asarray(np.minimum(total, _LOG_2))  # rounding may exceed the limit by an ulp
