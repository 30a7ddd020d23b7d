r"""Monotone transforms of y: a model that is Gaussian in t = T(y) is skewed in y.

``log`` is the logarithm, for outputs above zero. ``yeo-johnson`` (Yeo and Johnson, 2000) takes outputs of either sign,
here about their median c and in units r of their typical distance from it. With :math:`z = (y - c) / r`,
:math:`h_p(a) = ((1 + a)^p - 1) / p` and :math:`h_0(a) = \log(1 + a)` it is

.. math:: T(y) = h_\lambda(z) \text{ for } z \ge 0, \qquad T(y) = -h_{2 - \lambda}(-z) \text{ for } z < 0

so that a change of unit or origin of y does not matter. The power is between 0 and 2, where T reaches every number and
all moments of y exist. A power of 1 is a straight line.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from cvgp.data.rows import Array
from cvgp.data.scaling import median
from cvgp.errors import InvalidInputError

TransformName = Literal["identity", "log", "yeo-johnson"]
TRANSFORMS: tuple[TransformName, ...] = ("identity", "log", "yeo-johnson")
POWERS = (0.0, 2.0)
NORMAL_DISTANCE = 1.4826
"""Standard deviations of a normal variable in its median distance from the median."""
NO_POWER = 1e-12
"""A power closer to zero is zero: its function is the logarithm to rounding."""


class TargetTransform(NamedTuple):
    """A monotone function of each output; arrays are [Q], and empty where there is nothing to learn."""

    name: TransformName
    centre: Array = np.empty(0)
    unit: Array = np.empty(0)
    power: Array = np.empty(0)

    def apply(self, y: Array) -> Array:
        """T(y) of outputs [n, Q]; minus infinity at and below the end of what it takes."""
        if self.name == "identity":
            return y
        if self.name == "log":
            return np.log(y, out=np.full(y.shape, -np.inf), where=y > 0.0)
        z = (y - self.centre) / self.unit
        power = self._power_at(z)
        a = np.log1p(np.abs(z))
        return np.sign(z) * np.where(power < NO_POWER, a, np.expm1(power * a) / np.maximum(power, NO_POWER))

    def invert(self, t: Array) -> Array:
        """The y [n, Q] with T(y) = t; infinite where it is beyond the range of floats."""
        if self.name == "identity":
            return t
        with np.errstate(over="ignore"):
            if self.name == "log":
                return np.exp(t)
            power = self._power_at(t)
            grown = np.log1p(power * np.abs(t)) / np.maximum(power, NO_POWER)
            a = np.expm1(np.where(power < NO_POWER, np.abs(t), grown))
            return self.centre + self.unit * np.sign(t) * a

    def log_slope(self, y: Array) -> Array:
        """Log T'(y) [n, Q]: what a log density of T(y) gains as one of y."""
        if self.name == "identity":
            return np.zeros(y.shape)
        if self.name == "log":
            return -np.log(np.where(y > 0.0, y, 1.0))  # below zero the density of T(y) is zero already
        z = (y - self.centre) / self.unit
        return (self._power_at(z) - 1.0) * np.log1p(np.abs(z)) - np.log(self.unit)

    def _power_at(self, values: Array) -> Array:
        return np.where(values >= 0.0, self.power, 2.0 - self.power)


IDENTITY = TargetTransform("identity")


def learn_target(name: TransformName, y: Array, weight: Array | None = None) -> TargetTransform:
    """The transform of a name, for outputs [n, Q] of rows that count as often as their weights say.

    The power of ``yeo-johnson`` is that under which T(y) is most likely as a normal variable.
    """
    if name == "identity":
        return IDENTITY
    if name == "log":
        if not (y > 0.0).all():
            raise InvalidInputError(
                f"target='log' is for y above 0; got {np.count_nonzero(y <= 0.0)} of {y.size} values at or below it, "
                f"the smallest {y.min():g}. Leave these rows out, or use target='yeo-johnson', which takes any numbers."
            )
        return TargetTransform("log")
    centre = np.array([median(column, weight) for column in y.T])
    unit = np.array([_unit(column, weight) for column in (y - centre).T])
    powers = [_power(column, weight) for column in ((y - centre) / unit).T]
    return TargetTransform("yeo-johnson", centre, unit, np.array(powers))


def _unit(distance: Array, weight: Array | None) -> float:
    """What the standard deviation would be of a normal variable with these distances from the median."""
    away = distance != 0.0
    if not away.any():
        return 1.0
    return NORMAL_DISTANCE * median(np.abs(distance[away]), None if weight is None else weight[away])


def _power(z: Array, weight: Array | None) -> float:
    """The power with the largest likelihood of a normal T(y), its mean and variance at their best."""
    if not z.any():
        return 1.0
    share = np.full(len(z), 1.0 / len(z)) if weight is None else weight / weight.sum()

    def negative_density(power: float) -> float:
        transform = TargetTransform("yeo-johnson", np.zeros(1), np.ones(1), np.array([power]))
        t = transform.apply(z[:, None])[:, 0]
        variance = share @ (t - share @ t) ** 2
        return float(0.5 * np.log(variance) - share @ transform.log_slope(z[:, None])[:, 0])

    return float(minimize_scalar(negative_density, bounds=POWERS, method="bounded", options={"xatol": 1e-3}).x)
