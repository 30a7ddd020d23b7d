r"""Sobol indices of a predicted function: which share of its variance needs a column.

Rows are taken in a random order, and each row is paired with the next one. With a the first row of a pair, b the second
and c the first row with its column j from the second,

.. math:: T_j = \frac{E[(f(a) - f(c))^2]}{2 \, \mathrm{Var} f}, \qquad
   S_j = \frac{E[(f(b) - E f)(f(c) - f(a))]}{\mathrm{Var} f}

(Jansen, 1999, and Saltelli et al., 2010). So one more prediction per row and column has both. §13 of
docs/mathematics.md says what they mean where columns are correlated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.data.scaling import ROUNDING, TINY

Function = Callable[[Array], Array]
"""From inputs [n, D] to values [n, Q]."""
Covariance = Callable[[Array], Array]
"""From inputs [n, D] to the posterior covariance of the function there [n, n, Q]."""

LEAST_PAIRS, MOST_PAIRS = 1024, 2048
"""As many pairs of rows as there are rows, between these; fewer only where columns are many."""
FEWEST_PAIRS = 64
"""However many columns there are."""
POSTERIOR_POINTS = 4096
"""Pairs times columns, of which the posterior standard deviation is made, within the limits below."""
POSTERIOR_PAIRS = (32, 64)


class SobolIndices(NamedTuple):
    """Shares of the variance of the predicted function, one number per column of the data.

    Attributes
    ----------
    first_order : ndarray of shape (n_columns,)
        The share that the column explains by itself.
    total : ndarray of shape (n_columns,)
        The share that needs the column, alone or together with others. Both are the same for a sum of functions of one
        column each; what a product of columns adds is counted for each of its columns, so totals may add up to more
        than one.
    first_order_error, total_error : ndarray of shape (n_columns,)
        Standard errors: the indices are averages over pairs of rows.
    total_sd : ndarray of shape (n_columns,)
        The posterior standard deviation of `total`: how much is not known since the function is not.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    >>> model = CVGPRegressor(n_coreset=20, max_iter=20, random_state=0).fit(X, X[:, 0] + 2 * X[:, 1])
    >>> found = model.sobol_indices()
    >>> bool(found.total[0] < found.total[1])
    True
    """

    first_order: Array
    total: Array
    first_order_error: Array
    total_error: Array
    total_sd: Array

    @property
    def total_uncertainty(self) -> Array:
        """The standard deviation of `total` from both sources."""
        return np.hypot(self.total_error, self.total_sd)


def number_of_pairs(num_rows: int, num_columns: int, most_predictions: int) -> int:
    """How many pairs of rows are predicted, once as they are and once more for each column."""
    affordable = max(most_predictions // (num_columns + 1), FEWEST_PAIRS)
    return min(max(num_rows, LEAST_PAIRS), MOST_PAIRS, affordable)


def drawn_in_random_order(x: Array, weight: Array | None, count: int, rng: np.random.Generator) -> Array:
    """So many rows, each as often as its weight says (a systematic sample)."""
    shares = np.ones(len(x)) if weight is None else weight
    edges = np.cumsum(shares)
    ticks = (np.arange(count) + rng.random()) * (edges[-1] / count)
    rows = np.minimum(np.searchsorted(edges, ticks, side="right"), len(x) - 1)
    return x[rng.permutation(rows)]


def sobol_indices(x: Array, columns: Sequence[slice], f: Function, covariance: Covariance) -> SobolIndices:
    """The indices of columns, each of which is some features of x [n, D], over rows x in random order."""
    values = f(x)
    z, unit = _standardised(values)  # [n, Q]
    found = np.zeros((5, len(columns)))
    num_pairs = int(np.clip(POSTERIOR_POINTS // (len(columns) + 1), *POSTERIOR_PAIRS))
    for j, features in enumerate(columns):
        replaced = x.copy()
        replaced[:, features] = np.roll(x[:, features], -1, axis=0)
        if not z.any() or np.array_equal(replaced, x):
            continue  # the function or the column is constant
        change = z - (f(replaced) - values.mean(axis=0)) * unit  # [n, Q]
        found[:4, j] = _indices(z, change)
        pairs = slice(num_pairs)
        found[4, j] = _posterior_sd(x[pairs], replaced[pairs], z[pairs], change[pairs], found[1, j], unit, covariance)
    found.flags.writeable = False  # a model keeps them
    return SobolIndices(*found)


def _standardised(values: Array) -> tuple[Array, Array]:
    """Values [n, Q] with mean zero and variance one, and what the centred ones are multiplied by [Q].

    An output that does not vary is zero.
    """
    centred = values - values.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    varies = largest > ROUNDING * np.abs(values).max(axis=0)
    largest = np.where(varies, largest, 1.0)  # squares of 1e200 would overflow
    sd = largest * np.sqrt(((centred / largest) ** 2).mean(axis=0))
    unit = np.where(varies, 1.0 / np.where(varies, sd, 1.0), 0.0)
    return centred * unit, unit


def _indices(z: Array, change: Array) -> tuple[float, float, float, float]:
    """First-order and total index of a column, and their standard errors; several outputs count alike.

    z [n, Q] are the standardised predictions of rows in random order, and `change` [n, Q] is what each of them loses
    where the column comes from the next row.
    """
    varying = z.any(axis=0)
    z, change = z[:, varying], change[:, varying]
    partner = np.roll(z, -1, axis=0)
    own = -(partner * change).mean(axis=1)  # [n]
    needed = 0.5 * (change**2).mean(axis=1)  # [n]
    spread = (z**2).mean(axis=1)  # [n], of mean one
    chance = (z * partner).mean(axis=1)  # [n]
    (first, first_error), (total, total_error) = (_average(terms, spread, chance) for terms in (own, needed))
    return first, max(total, 0.0), first_error, total_error


def _average(terms: Array, spread: Array, chance: Array) -> tuple[float, float]:
    """The mean of terms [n] over that of `spread`, which is one, and its standard error.

    `chance` [n] would be zero on average over all pairs. What it is on average over these is taken off the terms, by
    their regression on it: most of what differs between one draw of the pairs and another.
    """
    slope = float((terms - terms.mean()) @ chance) / max(float(chance @ chance), TINY)
    terms = terms - slope * chance
    mean = float(terms.mean())
    return mean, _standard_error(terms - mean * spread)


def _standard_error(influence: Array) -> float:
    """That of the mean of influences [n] of pairs, of which each shares a row with the next one."""
    variance = float((influence**2).mean())
    shared = float((influence * np.roll(influence, -1)).mean())
    return float(np.sqrt((variance + max(2.0 * shared, 0.0)) / len(influence)))


def _posterior_sd(
    x: Array, replaced: Array, z: Array, change: Array, total: float, unit: Array, covariance: Covariance
) -> float:
    r"""The posterior standard deviation of a total index, to first order in what the function may differ from its mean.

    A difference :math:`\delta` of the function changes the index by :math:`g^T \delta`. At a row as it is, g is
    :math:`(z_a - z_c) - 2 T z_a` over the number of pairs, and with its column replaced it is minus the first term.
    """
    C = covariance(np.vstack([x, replaced]))  # [2 n, 2 n, Q]
    slopes = np.vstack([change - 2.0 * total * z, -change]) * unit / len(x)  # [2 n, Q]
    variance = np.einsum("iq,ijq,jq->q", slopes, C, slopes)  # [Q]
    count = max(int(np.count_nonzero(unit)), 1)
    return float(np.sqrt(np.maximum(variance, 0.0).sum()) / count)
