"""The distribution of new observations at some rows, in the units of y."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri

from cvgp.data.rows import Array, Rows
from cvgp.data.target import TargetTransform
from cvgp.data.uncertain import Inputs
from cvgp.errors import InvalidInputError
from cvgp.estimators.back_transformed import Moments, covariance_of_y, moments_of_y
from cvgp.estimators.inputs import check_noise
from cvgp.estimators.units import ScaledGP
from cvgp.gp.contamination import Contamination, log_normal
from cvgp.gp.tails import Tails
from cvgp.training.wild_rows import kept_rows

CRPS_LEVELS, LEVELS_AT_ONCE = 1000, 50


class Predictive:
    """Observations y of which T(y) is Gaussian, but for outliers.

    Parameters
    ----------
    target
        The transform T.
    mean, f_var, noise
        Of T(y): its mean, the variance of f and that of the noise, each [n, Q].
    outliers
        Where some observations are wildly wrong. Quantiles and densities count them, and moments do not.
    tails
        The shape of observations around their mean, where it is not normal; never beside outliers.
    """

    def __init__(
        self,
        target: TargetTransform,
        mean: Array,
        f_var: Array,
        noise: Array,
        outliers: Contamination | None = None,
        tails: Tails | None = None,
    ) -> None:
        self.target, self.mean, self.f_var, self.noise, self.outliers = target, mean, f_var, noise, outliers
        self.tails = tails

    @classmethod
    def at(cls, gp: ScaledGP, x: Array | Inputs) -> Predictive:
        """That of a fitted model at inputs [n, D], with the noise that it has learned."""
        return cls(gp.target, *gp.mean_and_variance(x), gp.noise_at(x), gp.outliers, gp.tails)

    @cached_property
    def moments(self) -> Moments:
        """Mean and variances of y [n, Q], of observations that are no outliers."""
        return moments_of_y(self.target, self.mean, self.f_var, self.noise)

    def function_covariance(self, f_cov: Array) -> Array:
        """Joint covariance of the function E[y | f] [n, n, Q], from that of f."""
        return covariance_of_y(self.target, self.mean, f_cov, self.noise)

    def quantiles(self, levels: Array) -> Array:
        """Quantiles of y at probabilities [L], as [n, Q, L]: a monotone transform maps quantiles to quantiles."""
        variance = self.f_var + self.noise
        if self.outliers is None:
            errors = [
                np.sqrt(variance) * z for z in (ndtri(levels) if self.tails is None else self.tails.quantiles(levels))
            ]
        else:
            errors = [self.outliers.quantile(level, variance) for level in levels]
        return np.stack([self.target.invert(self.mean + error) for error in errors], axis=-1)

    def log_density(self, y: Array) -> Array:
        """Log density of observations [n, Q], of each by itself."""
        variance, error = self.f_var + self.noise, self.target.apply(y) - self.mean
        if self.tails is not None:
            square = torch.as_tensor(error**2)
            found = self.tails.cpu().log_density(square, torch.as_tensor(variance).expand(square.shape))[0].numpy()
        else:
            found = (log_normal if self.outliers is None else self.outliers.log_density)(error, variance)
        return np.asarray(found + self.target.log_slope(y))

    def regular(self, rows: Rows[Array]) -> Rows[Array]:
        """The rows that are predicted, which count by the probability that they are no outliers."""
        if self.outliers is None:
            return rows
        error = self.target.apply(rows.y) - self.mean
        return kept_rows(rows, self.outliers.probability(error, self.f_var + self.noise))

    def crps(self, y: Array) -> Array:
        r"""Continuous ranked probability score of observations [n, Q], in the unit of y.

        It is :math:`2 \int_0^1 (1[y < q_p] - p)(q_p - y) \, dp` over the quantiles (Laio and Tamea, 2007), taken at
        the midpoints of equal steps.
        """
        levels = (np.arange(CRPS_LEVELS) + 0.5) / CRPS_LEVELS
        total = np.zeros(y.shape)
        for start in range(0, CRPS_LEVELS, LEVELS_AT_ONCE):
            p = levels[start : start + LEVELS_AT_ONCE]
            q = self.quantiles(p)
            total += (((y[..., None] < q) - p) * (q - y[..., None])).sum(axis=-1)
        return 2.0 * total / CRPS_LEVELS


def ends_of_interval(level: float) -> Array:
    """The probabilities [2] below the ends of a central interval."""
    return np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])


def known_noise(target: TargetTransform, noise_variance: ArrayLike | None, num_rows: int) -> Array:
    """Known noise variances of points to predict [n, 1]; zero where there are none."""
    if noise_variance is None:
        return np.zeros((num_rows, 1))
    if target.name != "identity":
        raise InvalidInputError(
            f"noise_variance is in the units of y squared, and the model describes y by target={target.name!r}. Fit "
            "with target='identity' to predict with known noise."
        )
    return check_noise(noise_variance, num_rows)[:, None]
