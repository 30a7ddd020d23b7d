r"""Moments of y where T(y) is Gaussian: of an observation, and of what is expected of it.

T(y) = f + noise. The function in the units of y is :math:`\mu = E[y \mid f]`, which is f itself where T is the
identity. With t the standardised f + noise and :math:`g(t) = y`, an expansion in Hermite polynomials has

.. math:: g = \sum_k a_k H_k, \qquad
   \mathrm{Cov}(\mu_i, \mu_j) = \mathrm{Cov}(y_i, y_j) = \sum_{k \ge 1} k! \, a_{ik} a_{jk} \rho_{ij}^k

(Mehler, 1866), where rho is the covariance of f in units of the standard deviations of f + noise. For i = j the sum is
Var mu, and with rho = 1 it is Var y. For the logarithm the sums are exponentials.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.data.target import TargetTransform
from cvgp.errors import InvalidInputError

NODES, TERMS = 64, 32
"""Points of the Gauss-Hermite quadrature, and polynomials of the expansion."""
PART_ROWS = 4096


class Moments(NamedTuple):
    """Of y at each row and output, [n, Q]."""

    mean: Array
    f_variance: Array
    """Of the function E[y | f]."""
    noise_variance: Array
    """Of an observation about the function, on average over what is known of f."""

    @property
    def variance(self) -> Array:
        """Of an observation."""
        return self.f_variance + self.noise_variance


def moments_of_y(target: TargetTransform, mean: Array, f_var: Array, noise: Array) -> Moments:
    """Those of y where T(y) has a mean, a variance of f and a noise variance, all [n, Q]."""
    if target.name == "identity":
        return Moments(mean, f_var, noise)
    if target.name == "log":
        with np.errstate(over="ignore", invalid="ignore"):
            y_mean = np.exp(mean + 0.5 * (f_var + noise))
            square = y_mean**2
            found = Moments(y_mean, square * np.expm1(f_var), square * np.exp(f_var) * np.expm1(noise))
        return _checked(found)
    parts = range(0, len(mean), PART_ROWS)
    with np.errstate(over="ignore", invalid="ignore"):
        pieces = [_by_expansion(target, *(a[i : i + PART_ROWS] for a in (mean, f_var, noise))) for i in parts]
    return _checked(Moments(*(np.concatenate(column) for column in zip(*pieces, strict=True))))


def covariance_of_y(target: TargetTransform, mean: Array, f_cov: Array, noise: Array) -> Array:
    """Covariance of the function E[y | f] [n, n, Q], where T(y) has a mean [n, Q], f_cov [n, n, Q] and noise [n, Q]."""
    if target.name == "identity":
        return f_cov
    f_var = np.moveaxis(np.diagonal(f_cov), -1, 0)  # [n, Q]
    if target.name == "log":
        y_mean = moments_of_y(target, mean, f_var, noise).mean
        return np.asarray(y_mean[:, None] * y_mean[None] * np.expm1(f_cov))
    total = np.sqrt(f_var + noise)
    rho = f_cov / (total[:, None] * total[None])
    coefficients = _coefficients(target, mean, total)[1]  # [TERMS, n, Q]
    powers = np.ones_like(rho)
    cov: Array = np.zeros(rho.shape)
    for a in coefficients:
        powers *= rho
        cov += a[:, None] * a[None] * powers
    return cov


def _by_expansion(target: TargetTransform, mean: Array, f_var: Array, noise: Array) -> Moments:
    total = f_var + noise
    y, a = _coefficients(target, mean, np.sqrt(total))
    weights = _quadrature()[1]
    y_mean = np.tensordot(weights, y, 1)
    variance = np.tensordot(weights, (y - y_mean) ** 2, 1)
    share = np.divide(f_var, total, out=np.zeros_like(f_var), where=total > 0.0)
    powers = share ** np.arange(1, TERMS + 1)[:, None, None]
    f_variance = np.minimum((a**2 * powers).sum(0), variance)
    return Moments(y_mean, f_variance, variance - f_variance)


def _coefficients(target: TargetTransform, mean: Array, sd: Array) -> tuple[Array, Array]:
    """Y at the nodes [NODES, n, Q], and the coefficients of normalised polynomials from the first on [TERMS, n, Q]."""
    nodes, weights, polynomials = _quadrature()
    y = target.invert(mean + nodes[:, None, None] * sd)
    return y, np.tensordot(polynomials * weights, y, 1)


@cache
def _quadrature() -> tuple[Array, Array, Array]:
    """Nodes and weights of a standard normal variable, and H_k / sqrt(k!) at the nodes [TERMS, NODES] for k >= 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    rows = [np.ones(NODES), nodes]
    for k in range(1, TERMS):  # H_{k+1} = x H_k - k H_{k-1}, divided by the roots of factorials
        rows.append((nodes * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1))
    return nodes, weights / weights.sum(), np.array(rows[1:])


def _checked(moments: Moments) -> Moments:
    if not all(np.isfinite(values).all() for values in moments):
        raise InvalidInputError(
            "The mean or the variance of y is beyond the range of floating-point numbers, since its transform is very "
            "uncertain at some rows. Ask for quantiles of these rows, or fit with target='identity'."
        )
    return moments
