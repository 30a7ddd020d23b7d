"""Predictions at rows with cells that are not known: mixtures over what the cells may be (§14 of the mathematics)."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.data.uncertain import DRAWS, Inputs

ROWS_AT_ONCE = 4096
"""Rows whose draws are in memory together."""


def mixed_mean(function: Callable[[Array], Array], inputs: Inputs) -> Array:
    """The mean over draws [n, Q] of a function of features."""
    found = np.array(function(inputs.x))
    for rows, draws in _draws(inputs):
        found[rows] = _by_draw(function(draws)).mean(axis=1)
    return found


def mixed_moments(moments: Callable[[Array], tuple[Array, Array]], inputs: Inputs) -> tuple[Array, Array]:
    """Mean and variance [n, Q] of mixtures of distributions that have these moments at features."""
    mean, variance = (np.array(values) for values in moments(inputs.x))
    for rows, draws in _draws(inputs):
        means, variances = (_by_draw(values) for values in moments(draws))
        mean[rows] = means.mean(axis=1)
        variance[rows] = variances.mean(axis=1) + means.var(axis=1)
    return mean, variance


def noise_of_gaps(mean: Callable[[Array], Array], noise: Callable[[Array], Array], inputs: Inputs) -> Array:
    """The noise variance [n, Q] of rows: at a gap at least that of a complete row, and what the cell would change.

    Where the training table had many gaps, the noise may have learned as much. A few gaps teach it nothing.
    """
    found = mixed_mean(noise, inputs)
    for rows, draws in _draws(inputs.filled):
        complete = _by_draw(noise(draws)).mean(axis=1) + _by_draw(mean(draws)).var(axis=1)
        found[rows] = np.maximum(found[rows], complete)
    return found


def _draws(inputs: Inputs) -> Iterator[tuple[NDArray[np.int64], Array]]:
    """Uncertain rows [k], and the features [k DRAWS, D] of all their draws."""
    uncertain = inputs.uncertain_rows
    for start in range(0, len(uncertain), ROWS_AT_ONCE):
        rows = uncertain[start : start + ROWS_AT_ONCE]
        draws = inputs.take(rows).draws()
        yield rows, draws.reshape(-1, draws.shape[-1])


def _by_draw(values: Array) -> Array:
    return values.reshape(-1, DRAWS, values.shape[1])
