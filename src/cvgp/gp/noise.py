"""Noise models: outliers (§12), heavy tails as a scale mixture of normals, and noise that depends on x (both §10).

Tails of variance one leave means, variances and covariances unchanged: only densities, quantiles and draws depend on
them. The logarithm of the noise at x is g_0 + k(x, Z) alpha, with a Matern kernel at a few centers Z.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtr, ndtri
from torch import Tensor

from cvgp.errors import FileFormatError
from cvgp.files import TINY, Fields, State
from cvgp.gp.bounds import whitener
from cvgp.gp.linalg import add_jitter
from cvgp.gp.stationary import FAMILIES, Placed, StationaryKernel, covariance_at, cross_matrix, place, square_matrix

Array = NDArray[np.float64]

LARGEST_LOG = 300.0  # of a noise variance in a file; beyond it the exponential overflows
BISECTIONS = 60  # halvings of a bracket, after which it is as narrow as rounding


class Contamination(NamedTuple):
    """The share of outliers, and their extra variance."""

    share: float
    variance: Array  # [Q], of outliers, in addition to that of regular observations

    def to_state(self) -> State:
        """Values for a file."""
        return self._asdict()

    @classmethod
    def from_state(cls, state: Fields, num_outputs: int) -> "Contamination":
        """From a file that need not be trusted."""
        share = state.number("share", TINY, 1.0 - 1e-15)
        return cls(share, state.array("variance", (num_outputs,), limits=(TINY, 1e300)))

    def log_density(self, error: Array, variance: Array) -> Array:
        """Log density of each error [n, Q], if regular errors have the variance [n, Q]."""
        regular, outlier = log_normal(error, variance), log_normal(error, variance + self.variance)
        return np.asarray(np.logaddexp(np.log1p(-self.share) + regular, np.log(self.share) + outlier))

    def probability(self, error: Array, variance: Array) -> Array:
        """Probability that a row is an outlier [n], given its errors [n, Q] in all outputs."""
        regular, outlier = log_normal(error, variance).sum(1), log_normal(error, variance + self.variance).sum(1)
        log_odds = np.log(self.share) - np.log1p(-self.share) + outlier - regular
        return np.asarray(np.exp(-np.logaddexp(0.0, -log_odds)))

    def quantile(self, level: float, variance: Array) -> Array:
        """The `level` quantile of the error [n, Q], which lies between the quantiles of the two components."""
        sd, outlier_sd = np.sqrt(variance), np.sqrt(variance + self.variance)
        ends = ndtri(level) * sd, ndtri(level) * outlier_sd
        low, high = np.minimum(*ends), np.maximum(*ends)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            is_low = (1.0 - self.share) * ndtr(middle / sd) + self.share * ndtr(middle / outlier_sd) < level
            low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        return 0.5 * (low + high)


def log_normal(error: Array, variance: Array) -> Array:
    """Log density of normal errors."""
    return -0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)


GRID = tuple(4.0**power for power in range(-8, 5))  # variance multipliers whose weights are learned
STEPS = 100
PRIOR_ROWS = 20.0  # prior weight of the normal distribution, in rows
FIRST_DEGREES = 4.0  # degrees of freedom of the Student-t whose shape learning starts from
SMALLEST, LARGEST, POINTS = 1e-8, 1e4, 8000  # range and number of the residuals for which probabilities are tabulated


class Tails(NamedTuple):
    """The distribution of a residual over the square root of s; all float64."""

    multipliers: Tensor  # [K]
    weights: Tensor  # [K]

    @property
    def variance(self) -> Tensor:
        """The variance of this distribution `[]`."""
        return (self.weights * self.multipliers).sum()

    def cpu(self) -> "Tails":
        """On the CPU."""
        return Tails(self.multipliers.cpu(), self.weights.cpu())

    def of_variance_one(self) -> "Tails":
        """The same shape, scaled to a variance of one."""
        return self._replace(multipliers=self.multipliers / self.variance)

    @property
    def is_normal(self) -> bool:
        """Whether it is the standard normal distribution."""
        return len(self.weights) == 1

    def log_density(self, square: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Log density of residuals with these squares, and its derivative in the logarithm of the variance."""
        if self.is_normal:
            share = square / variance
            return -0.5 * ((2.0 * math.pi * variance).log() + share), 0.5 * (share - 1.0)
        parts = self.weights.log() + _log_normals(square / variance, self.multipliers)  # [..., K]
        most = parts.amax(-1)
        terms = (parts - most[..., None]).exp()
        total = terms.sum(-1)
        inverse = (terms @ self.multipliers.reciprocal()) / total  # of the multiplier that a residual has, expected
        return most + total.log() - 0.5 * variance.log(), 0.5 * (inverse * square / variance - 1.0)

    def from_normal(self, z: ArrayLike) -> Array:
        """The quantiles of this distribution at the ranks that z has in the standard normal one."""
        z = np.asarray(z, dtype=np.float64)
        if self.is_normal:
            return z
        at, upper = upper_tail(tuple(self.multipliers.tolist()), tuple(self.weights.tolist()))
        # The smaller of the two tails keeps its digits.
        return np.asarray(np.sign(z) * np.interp(-log_ndtr(-np.abs(z)), -upper, at))

    def quantiles(self, levels: ArrayLike) -> Array:
        """Quantiles for probabilities between 0 and 1."""
        return self.from_normal(ndtri(np.asarray(levels, dtype=np.float64)))


@lru_cache(maxsize=8)  # it takes ten times as long as the prediction of a row
def upper_tail(multipliers: tuple[float, ...], weights: tuple[float, ...]) -> tuple[Array, Array]:
    """Residuals, and the logarithm of the probability of larger ones."""
    at = np.geomspace(SMALLEST, LARGEST, POINTS)
    with np.errstate(divide="ignore"):  # a weight may be zero
        log_weights = np.log(weights)
    return at, np.logaddexp.reduce(log_weights + log_ndtr(-at[:, None] / np.sqrt(multipliers)), axis=1)


def normal(like: Tensor) -> Tails:
    """The standard normal distribution."""
    one = torch.ones(1, dtype=torch.float64, device=like.device)
    return Tails(one, one)


def heavy(like: Tensor) -> Tails:
    """Plausibly heavy tails, from which learning starts."""
    return _student_t(FIRST_DEGREES, like).of_variance_one()


def with_rare(tails: Tails, share: float) -> Tails:
    """The same tails for all but a share of the residuals, which have a Cauchy distribution (§10)."""
    rare = _student_t(1.0, tails.weights)
    weights = torch.cat([(1.0 - share) * tails.weights, share * rare.weights])
    return Tails(torch.cat([tails.multipliers, rare.multipliers]), weights)


def _student_t(degrees: float, like: Tensor) -> Tails:
    grid = torch.tensor(GRID, dtype=torch.float64, device=like.device)
    # The multipliers of a Student-t have an inverse gamma distribution; here is its density in their logarithm.
    return Tails(grid, torch.softmax(-0.5 * degrees * (grid.log() + 1.0 / grid), 0))


def learn_tails(square: Tensor, weight: Tensor) -> Tails:
    """The weights that make residuals of variance about one most likely, by expectation maximization."""
    grid = torch.tensor(GRID, dtype=torch.float64, device=square.device)
    log_normals = _log_normals(square, grid).reshape(-1, len(grid))  # [n Q, K]
    count = (weight[:, None] / square.shape[1]).expand(square.shape).reshape(-1, 1)
    prior = PRIOR_ROWS * (grid == 1.0)
    # A factor common to a row's densities cancels; this one makes the largest of them one.
    density = (log_normals - log_normals.amax(1, keepdim=True)).exp()
    pi = torch.full_like(grid, 1.0 / len(grid))
    for _ in range(STEPS):
        share = count / (density @ pi[:, None]).clamp_min(torch.finfo(pi.dtype).tiny)  # [n Q, 1]
        pi = pi * (density.mT @ share)[:, 0] + prior
        pi = pi / pi.sum()
    return Tails(grid, pi.clamp_min(torch.finfo(pi.dtype).tiny))


def _log_normals(square: Tensor, multipliers: Tensor) -> Tensor:
    """Normal log densities log N(r | 0, m_k) [..., K] for squared residuals [...]."""
    return -0.5 * ((2.0 * math.pi * multipliers).log() + square[..., None] / multipliers)


JITTER = 1e-6


class InputNoise(NamedTuple):
    """The noise variance at each x, the shape of the residuals, and corrections of the variance of f; model units."""

    centers: Tensor  # [G, D]
    inverse_lengthscale: Tensor  # [D]
    alpha: Tensor  # [G]
    level: Tensor  # [], g_0
    lowest: Tensor  # [], range of the log noise over the training rows
    highest: Tensor  # []
    variance_discount: Tensor  # [], discount of small variances of f
    f_scale: Tensor  # [], factor of the variance of f
    f_prior: Tensor  # [], prior variance of f
    multipliers: Tensor  # [K], of tails of variance one
    weights: Tensor  # [K]
    constant: Tensor  # [], the noise variance of the fit with constant noise
    base: Tensor  # [], noise variance of the model if its rows are weighted by this noise; otherwise 0

    def to_state(self) -> State:
        """Values for a file."""
        return self._asdict()

    @classmethod
    def from_state(cls, state: Fields, num_dims: int) -> "InputNoise":
        """From a file that need not be trusted; no prediction can overflow."""
        largest = math.exp(LARGEST_LOG)
        limits = dict.fromkeys(cls._fields, (-largest, largest))
        limits |= dict.fromkeys(("f_scale", "f_prior", "multipliers", "constant"), (1.0 / largest, largest))
        limits |= dict.fromkeys(("variance_discount", "base"), (0.0, largest))
        limits |= dict.fromkeys(("lowest", "highest"), (-LARGEST_LOG, LARGEST_LOG)) | {"weights": (TINY, 1.0)}
        shapes: dict[str, tuple[int | None, ...]] = {"centers": (None, num_dims), "weights": (None,)}
        shapes["inverse_lengthscale"] = (num_dims,)
        parts = {name: state.array(name, shapes.get(name, ()), limits=limits[name]) for name in ("centers", "weights")}
        shapes |= {"alpha": (len(parts["centers"]),), "multipliers": parts["weights"].shape}
        parts |= {
            name: state.array(name, shapes.get(name, ()), limits=limits[name])
            for name in cls._fields
            if name not in parts
        }
        if parts["lowest"] > parts["highest"]:
            raise FileFormatError(f"{state.where}.lowest must not be above {state.where}.highest.")
        weights, variance = parts["weights"].sum(), parts["weights"] @ parts["multipliers"]
        if max(abs(weights - 1.0), abs(variance - 1.0)) > 1e-6:
            raise FileFormatError(
                f"{state.where}.weights and multipliers must have a total weight and a variance of 1."
            )
        return cls(**{name: torch.tensor(part) for name, part in parts.items()})

    def times(self, factor: Tensor) -> "InputNoise":
        """That of an output with this factor of the noise; a discount suits residuals in units of its root."""
        moved = {name: getattr(self, name) + factor.log() for name in ("level", "lowest", "highest")}
        scaled = {name: factor * getattr(self, name) for name in ("variance_discount", "constant", "base")}
        return self._replace(**moved, **scaled)

    @property
    def tails(self) -> Tails:
        """The shape of the residuals."""
        return Tails(self.multipliers, self.weights)

    def placed(self, dtype: torch.dtype) -> Placed:
        """The centers, for many evaluations without gradients."""
        return place(_kernel(self.inverse_lengthscale.to(dtype)), self.centers, dtype)

    def variance(self, x: Tensor, placed: Placed | None = None) -> Tensor:
        """The noise variance at x `[..., n, D]`; with `placed` centers at x `[n, D]`, and without gradients."""
        if placed is None:
            centers, inverse_lengthscale = self.centers.to(x.dtype), self.inverse_lengthscale.to(x.dtype)
            K = cross_matrix(_kernel(inverse_lengthscale), centers, x)  # [..., G, n]
        else:
            K = covariance_at(placed, x).K
        log_noise = self.level + (self.alpha.to(x.dtype)[:, None] * K).sum(-2)
        return log_noise.clamp(self.lowest, self.highest).exp()

    def beyond_base(self, x: Tensor) -> Tensor:
        """Noise variance in excess of the base `[n]`."""
        return (self.variance(x) - self.base.to(x.dtype)).clamp_min(0.0)

    def f_factor(self, f_var: Tensor) -> Tensor:
        """Factor of each variance of f `[n]` (§10), which returns to one as it approaches that of the prior."""
        known = self.f_scale * believed_share(f_var, self.variance_discount)
        return known + (1.0 - self.f_scale).clamp_min(0.0) * (f_var / self.f_prior).square()


class Features:
    """Whitened features at given centers `[G, D]` and inverse lengthscales `[D]`."""

    def __init__(self, centers: Tensor, inverse_lengthscale: Tensor) -> None:
        self.centers, self.inverse_lengthscale = centers, inverse_lengthscale
        self.kernel = _kernel(inverse_lengthscale)
        self.L_inv = whitener(add_jitter(square_matrix(self.kernel, centers), JITTER))

    def at(self, x: Tensor) -> Tensor:
        """The features of rows x, `[n, G]`."""
        return (self.L_inv @ cross_matrix(self.kernel, self.centers, x)).mT


def believed_share(f_var: Tensor, variance_discount: Tensor) -> Tensor:
    """The factor v / (v + discount) of a variance v of f: close to one if v is large, and small if v is small (§10)."""
    return f_var / (f_var + variance_discount).clamp_min(torch.finfo(f_var.dtype).tiny)


class RowDensities(NamedTuple):
    """Log densities of rows, averaged over outputs, with their derivatives."""

    value: Tensor  # [n]
    in_log_noise: Tensor  # [n]
    in_f_var: Tensor  # [n]


def log_density(log_noise: Tensor, square: Tensor, f_var: Tensor, known: Tensor, tails: Tails) -> RowDensities:
    """Log density of rows with squared residuals `[n, Q]`, given the variances of f, the known and the log noise."""
    noise = log_noise.exp()
    total = f_var + known + noise
    value, slope = (part.mean(1) for part in tails.log_density(square, total[:, None]))
    return RowDensities(value, slope * noise / total, slope / total)


def _kernel(inverse_lengthscale: Tensor) -> StationaryKernel:
    one = torch.ones((), dtype=inverse_lengthscale.dtype, device=inverse_lengthscale.device)
    return StationaryKernel(FAMILIES["matern32"], inverse_lengthscale, one, one)
