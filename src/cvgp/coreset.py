"""The coreset as a value: M weighted pseudo-observations, which is a small data set of its own.

The CVGP posterior is that of an exact GP which saw the triplet (X, y, beta) (paper, eq.
coreset_gp_posterior_C_f), so coresets can be concatenated, thinned out and kept as tables.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from cvgp.coreset_table import NamedColumn, decoded_table, html_table, table_of, triplet_in
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.finite import FloatArray, finite_array

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Coreset"]

logger = logging.getLogger("cvgp")

Numbers = ArrayLike | torch.Tensor


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Coreset:
    """An immutable set of weighted pseudo-observations, held as read-only float64 copies.

    Parameters
    ----------
    X : array-like or tensor of shape [M, D]
        Pseudo-inputs.
    y : array-like or tensor of shape [M] or [M, Q]
        Pseudo-outputs, one column per output.
    beta : array-like or tensor of shape [M]
        Weights, at least 0: how many times each point counts.
    n_pruned : int
        How many points the `prune` that made this coreset dropped; no part of its value.
    columns : sequence of NamedColumn, optional
        The columns of a user's table that the inputs stand for, which `to_frame` shows; no part of its value.

    Raises
    ------
    InvalidInputError
        If shapes do not fit, columns are not those of X, a value is NaN or infinite, or a weight is negative.
    InvalidTypeError
        If X, y or beta holds no real numbers.

    Examples
    --------
    >>> from cvgp import Coreset
    >>> coreset = Coreset(X=[[0.0], [1.0], [2.0]], y=[0.1, 0.9, 0.2], beta=[5.0, 5.0, 0.0])
    >>> coreset
    Coreset(M=3, D=1, Q=1, effective_size=2)
    >>> coreset.prune(1e-3)
    Coreset(M=2, D=1, Q=1, effective_size=2)
    """

    X: FloatArray
    y: FloatArray
    beta: FloatArray
    n_pruned: int = field(default=0, compare=False)
    columns: tuple[NamedColumn, ...] | None = field(default=None, compare=False)

    def __init__(
        self,
        X: Numbers,
        y: Numbers,
        beta: Numbers,
        n_pruned: int = 0,
        columns: Sequence[NamedColumn] | None = None,
    ) -> None:
        for name, value in (("X", X), ("y", y), ("beta", beta)):
            array = finite_array(name, value)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "n_pruned", n_pruned)
        object.__setattr__(self, "columns", None if columns is None else tuple(columns))
        _check_triplet(self.X, self.y, self.beta)
        if self.columns is not None and sum(column.width for column in self.columns) != self.num_dims:
            raise InvalidInputError(f"The columns must stand for the {self.num_dims} inputs of X; got {self.columns}.")

    def __reduce__(self) -> tuple[type[Coreset], tuple[Any, ...]]:
        # NumPy forgets the read-only flag in copies and pickles; the constructor sets it again.
        return type(self), (self.X, self.y, self.beta, self.n_pruned, self.columns)

    def __len__(self) -> int:
        return len(self.beta)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coreset):
            return NotImplemented
        pairs = ((self.X, other.X), (self.y, other.y), (self.beta, other.beta))
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def __repr__(self) -> str:
        sizes = f"M={len(self)}, D={self.num_dims}, Q={self.num_outputs}"
        return f"Coreset({sizes}, effective_size={self.effective_size:.3g})"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}, the heaviest points:</p>{html_table(self.X, self.y, self.beta, self.columns)}"

    @property
    def num_dims(self) -> int:
        """The number of input dimensions D."""
        return int(self.X.shape[1])

    @property
    def num_outputs(self) -> int:
        """The number of outputs Q; 1 when y is a vector."""
        return 1 if self.y.ndim == 1 else int(self.y.shape[1])

    @property
    def effective_size(self) -> float:
        """(sum beta)^2 / sum beta^2: M if all weights are equal, near 1 if one dominates, 0 if all are 0."""
        largest = self.beta.max()
        if largest == 0:
            return 0.0
        share = self.beta / largest  # the ratio does not depend on the scale, and squares could overflow
        return float(share.sum() ** 2 / np.sum(share**2))

    def merge(self, other: Coreset) -> Coreset:
        """Concatenate two coresets: the posterior that has seen the pseudo-observations of both.

        Parameters
        ----------
        other : Coreset
            Of the same D and Q; its points come last.

        Returns
        -------
        Coreset
            A new one; both old ones stay as they are.

        Raises
        ------
        InvalidInputError
            If `other` has another D or Q.
        InvalidTypeError
            If `other` is no Coreset.

        Examples
        --------
        >>> from cvgp import Coreset
        >>> a = Coreset([[0.0]], [1.0], [2.0])
        >>> len(a.merge(a))
        2
        """
        if not isinstance(other, Coreset):
            raise InvalidTypeError(
                f"Expected a Coreset to merge with, got {type(other).__name__}; pass Coreset(X, y, beta)."
            )
        if (self.num_dims, self.num_outputs) != (other.num_dims, other.num_outputs):
            raise InvalidInputError(
                f"Coresets to merge must have the same inputs and outputs, got {self} and {other}; "
                "merge only coresets with equal D and Q."
            )
        y_other = other.y.reshape(len(other), *self.y.shape[1:])  # one output may be [M] or [M, 1]
        return Coreset(
            np.concatenate([self.X, other.X]),
            np.concatenate([self.y, y_other]),
            np.concatenate([self.beta, other.beta]),
            columns=self.columns if self.columns == other.columns else None,
        )

    def prune(self, threshold: float) -> Coreset:
        """Return a new coreset without the points whose weight is below a threshold; this one stays as it is.

        The points that are kept do not change, so the posterior changes. `CVGPRegressor.prune` solves for them again.

        Parameters
        ----------
        threshold : float
            Points with beta < threshold are dropped; finite and at least 0.

        Returns
        -------
        Coreset
            Its `n_pruned` says how many points were dropped.

        Raises
        ------
        InvalidInputError
            If the threshold is not a finite number of at least 0, or no point would be left.

        Examples
        --------
        >>> from cvgp import Coreset
        >>> Coreset([[0.0], [1.0]], [1.0, 2.0], [3.0, 1e-9]).prune(1e-6).n_pruned
        1
        """
        limit = finite_array("threshold", threshold)
        if limit.ndim > 0 or limit < 0:
            raise InvalidInputError(
                f"The threshold must be one number, at least 0, got {threshold}; try one such as 1e-3."
            )
        keep = self.beta >= limit
        n_pruned = int(np.sum(~keep))
        if n_pruned == len(self):
            raise InvalidInputError(
                f"A coreset keeps at least one point, but all {n_pruned} weights are below the threshold "
                f"{threshold}; use at most the largest weight, {self.beta.max():g}."
            )
        logger.info("Pruned %d of %d coreset points, with weights below %g.", n_pruned, len(self), limit)
        return Coreset(self.X[keep], self.y[keep], self.beta[keep], n_pruned, self.columns)

    def to_frame(self, feature_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the coreset as a table: the features, then `y` (or `y0`, `y1`, ... when y is [M, Q]), then `beta`.

        The coreset of a fitted model knows the names of the columns of its data, and shows them. Of a column of text
        it shows the category whose input is the largest. Inputs are learned, so that a point may lie between
        categories: names for all inputs show these as numbers, from which `from_frame` makes the same coreset.

        Parameters
        ----------
        feature_names : sequence of str, optional
            One name per input dimension. By default the columns that the coreset knows, and otherwise `x0`, `x1`, ...

        Returns
        -------
        pandas.DataFrame
            One row per point. Outputs and weights get a number, as in `y_2` and `beta_2`, where a known column has
            one of their names.

        Raises
        ------
        InvalidInputError
            If names are missing, repeated, or those of outputs or weights.
        InvalidTypeError
            If a name is not text.

        Examples
        --------
        >>> from cvgp import Coreset
        >>> list(Coreset([[0.0, 1.0]], [2.0], [3.0]).to_frame(["age", "dose"]).columns)
        ['age', 'dose', 'y', 'beta']
        """
        if feature_names is None and self.columns is not None:
            return decoded_table(self.X, self.y, self.beta, self.columns)
        return table_of(self.X, self.y, self.beta, feature_names)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Coreset:
        """Make a coreset from a table such as `to_frame` returns.

        Parameters
        ----------
        frame : pandas.DataFrame
            A column `beta`; a column `y`, or instead of it columns `y0`, `y1`, ... without a gap; every other
            column is a feature, in the table's order.

        Returns
        -------
        Coreset
            One point per row.

        Raises
        ------
        InvalidInputError
            If a column is missing or repeated, or a value cannot be part of a coreset.
        InvalidTypeError
            If `frame` is no DataFrame, or a column holds no real numbers.

        Examples
        --------
        >>> from cvgp import Coreset
        >>> coreset = Coreset([[0.0, 1.0]], [2.0], [3.0])
        >>> Coreset.from_frame(coreset.to_frame()) == coreset
        True
        """
        return cls(*triplet_in(frame))


def _check_triplet(X: FloatArray, y: FloatArray, beta: FloatArray) -> None:
    if X.ndim != 2 or X.size == 0:
        raise InvalidInputError(
            f"X must have shape [M, D] with M >= 1 points and D >= 1 features, got {X.shape}; "
            "for a single feature use X.reshape(-1, 1)."
        )
    M = len(X)
    if y.ndim not in (1, 2) or len(y) != M or y.size == 0:
        raise InvalidInputError(
            f"y must have shape [{M}] or [{M}, Q], Q >= 1, got {y.shape}; pass one row per row of X."
        )
    if beta.shape != (M,):
        raise InvalidInputError(f"beta must have shape [{M}], got {beta.shape}; pass one weight per point.")
    if np.any(beta < 0):
        raise InvalidInputError(
            f"The weights beta must be at least 0, but the smallest is {beta.min():g}, at index "
            f"{beta.argmin()}; clip them at 0 or drop the points."
        )
