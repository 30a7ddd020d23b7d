"""The one comparison rule: whether A is better than B on rows that neither has seen.

Both are scored by the log density and by the squared error of the same rows. What makes a row hard for both cancels in
the differences, so their standard errors are small. A single row counts for at most a few nats, since otherwise one
gross outlier would decide, or would make every difference look uncertain.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

LARGEST_GAIN = 3.0
"""Nats that one row may count for."""
STANDARD_ERRORS = 2.0
"""A difference is clear if it exceeds this many of its standard errors."""


class Scores(NamedTuple):
    """How well a model predicts rows that it has not seen."""

    densities: Tensor  # [n], log p(y | x) in nats, the mean over outputs
    squares: Tensor  # [n], squared errors, the mean over outputs
    weight: Tensor  # [n]

    @property
    def density(self) -> float:
        """Mean log density, in nats per row."""
        return _mean(self.densities, self.weight)

    @property
    def square(self) -> float:
        """Mean squared error."""
        return _mean(self.squares, self.weight)

    @property
    def error(self) -> float:
        """Standard error of the mean log density."""
        return _standard_error(self.densities, self.weight)

    @staticmethod
    def joined(parts: "list[Scores]") -> "Scores":
        """Scores of all rows of several parts."""
        return Scores(*(torch.cat(values) for values in zip(*parts, strict=True)))


class Comparison(NamedTuple):
    """By how much A is ahead of B, in nats and in squared error per row, each with its standard error."""

    gain: float
    gain_error: float
    square_gain: float
    square_error: float
    raw_gain: float
    """The gain in nats with no limit on what one row counts for."""

    @property
    def is_clear(self) -> bool:
        """Whether A is clearly more likely, and neither less likely by its worst rows nor clearly less accurate."""
        likelier = self.gain > STANDARD_ERRORS * self.gain_error and self.raw_gain > 0.0
        return likelier and not self.is_less_accurate

    @property
    def is_less_accurate(self) -> bool:
        """Whether the squared error of A is clearly larger."""
        return -self.square_gain > STANDARD_ERRORS * self.square_error


def compare(a: Scores, b: Scores) -> Comparison:
    """Compare two models by their scores of the same rows."""
    if not len(a.densities):
        return Comparison(0.0, math.inf, 0.0, math.inf, 0.0)
    difference = torch.nan_to_num(a.densities - b.densities, nan=0.0)
    gain = difference.clamp(-LARGEST_GAIN, LARGEST_GAIN)
    square = b.squares - a.squares
    return Comparison(
        _mean(gain, a.weight),
        _standard_error(gain, a.weight),
        _mean(square, a.weight),
        _standard_error(square, a.weight),
        _mean(difference, a.weight),
    )


def _mean(values: Tensor, weight: Tensor) -> float:
    return ((weight * values).sum() / weight.sum()).item()


def _standard_error(values: Tensor, weight: Tensor) -> float:
    center = (weight * values).sum() / weight.sum()
    return ((weight * (values - center)).square().sum().sqrt() / weight.sum()).item()
