"""The coreset as a value: M weighted pseudo-observations, which is a small data set of its own.

The CVGP posterior is that of an exact GP which saw the triplet (X, y, beta) (paper, eq.
coreset_gp_posterior_C_f), so coresets can be concatenated, thinned out and kept as tables.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.extras import optional_packages

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Coreset"]

logger = logging.getLogger("cvgp")

FloatArray = npt.NDArray[np.float64]
Numbers = npt.ArrayLike | torch.Tensor

_REAL_KINDS = "biuf"  # NumPy's codes for bool, int, unsigned int and float
_NUMBERED_OUTPUT = re.compile(r"y(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Coreset:
    """An immutable set of weighted pseudo-observations, held as read-only float64 copies.

    Parameters
    ----------
    X : array-like or tensor of shape [M, D]
        Pseudo-inputs.
    y : array-like or tensor of shape [M] or [M, T]
        Pseudo-outputs, one column per output.
    beta : array-like or tensor of shape [M]
        Weights, at least 0: how many times each point counts.
    n_pruned : int
        How many points the `prune` that made this coreset dropped; no part of its value.

    Examples
    --------
    >>> coreset = Coreset(X=[[0.0], [1.0], [2.0]], y=[0.1, 0.9, 0.2], beta=[5.0, 5.0, 0.0])
    >>> coreset
    Coreset(M=3, D=1, T=1, effective_size=2)
    >>> coreset.prune(1e-3)
    Coreset(M=2, D=1, T=1, effective_size=2)
    """

    X: FloatArray
    y: FloatArray
    beta: FloatArray
    n_pruned: int = field(default=0, compare=False)

    def __init__(self, X: Numbers, y: Numbers, beta: Numbers, n_pruned: int = 0) -> None:
        for name, value in (("X", X), ("y", y), ("beta", beta)):
            object.__setattr__(self, name, _read_only(name, value))
        object.__setattr__(self, "n_pruned", n_pruned)
        _check_triplet(self.X, self.y, self.beta)

    def __reduce__(self) -> tuple[type[Coreset], tuple[FloatArray, FloatArray, FloatArray, int]]:
        # NumPy forgets the read-only flag in copies and pickles; the constructor sets it again.
        return type(self), (self.X, self.y, self.beta, self.n_pruned)

    def __len__(self) -> int:
        return len(self.beta)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coreset):
            return NotImplemented
        pairs = ((self.X, other.X), (self.y, other.y), (self.beta, other.beta))
        return all(np.array_equal(mine, theirs) for mine, theirs in pairs)

    def __repr__(self) -> str:
        sizes = f"M={len(self)}, D={self.num_dims}, T={self.num_outputs}"
        return f"Coreset({sizes}, effective_size={self.effective_size:.3g})"

    @property
    def num_dims(self) -> int:
        """The number of input dimensions D."""
        return int(self.X.shape[1])

    @property
    def num_outputs(self) -> int:
        """The number of outputs T; 1 when y is a vector."""
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
            Of the same D and T; its points come last.

        Examples
        --------
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
                "merge only coresets with equal D and T."
            )
        y_other = other.y.reshape(len(other), *self.y.shape[1:])  # one output may be [M] or [M, 1]
        return Coreset(
            np.concatenate([self.X, other.X]),
            np.concatenate([self.y, y_other]),
            np.concatenate([self.beta, other.beta]),
        )

    def prune(self, threshold: float) -> Coreset:
        """Drop the points whose weight is below a threshold; `n_pruned` of the result says how many.

        The other points stay as they are, so the posterior moves; a model's own `prune` re-solves for them.

        Parameters
        ----------
        threshold : float
            Points with beta < threshold go; finite and at least 0.

        Examples
        --------
        >>> Coreset([[0.0], [1.0]], [1.0, 2.0], [3.0, 1e-9]).prune(1e-6).n_pruned
        1
        """
        limit = _read_only("threshold", threshold)
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
        return Coreset(self.X[keep], self.y[keep], self.beta[keep], n_pruned)

    def to_frame(self, feature_names: Sequence[str] | None = None) -> pd.DataFrame:
        """The coreset as a table: the features, then `y` (or `y0`, `y1`, ... when y is [M, T]), then `beta`.

        Parameters
        ----------
        feature_names : sequence of str, optional
            One name per input dimension; `x0`, `x1`, ... by default.

        Examples
        --------
        >>> list(Coreset([[0.0, 1.0]], [2.0], [3.0]).to_frame(["age", "dose"]).columns)
        ['age', 'dose', 'y', 'beta']
        """
        with optional_packages():
            import pandas as pd

        outputs = ["y"] if self.y.ndim == 1 else [f"y{t}" for t in range(self.num_outputs)]
        names = [f"x{d}" for d in range(self.num_dims)] if feature_names is None else feature_names
        features = list(np.atleast_1d(np.asarray(names, dtype=object)))  # also an Index, an array, one str
        if not all(isinstance(name, str) for name in features):
            raise InvalidTypeError(f"Feature names must be text, got {features}; pass a list of str.")
        if len(features) != self.num_dims:
            raise InvalidInputError(
                f"Expected {self.num_dims} feature names, got {features}; pass one per column of X."
            )
        columns = [*features, *outputs, "beta"]
        if len(set(columns)) < len(columns) or _output_columns(columns) != outputs:
            raise InvalidInputError(
                "Feature names must be unique, and not the names of outputs ('y', 'y0', ...) or weights "
                f"('beta'), got {features}; rename the features."
            )
        return pd.DataFrame(np.column_stack([self.X, self.y, self.beta]), columns=columns)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Coreset:
        """The coreset in a table such as `to_frame` makes.

        Parameters
        ----------
        frame : pandas.DataFrame
            A column `beta`; a column `y`, or instead of it columns `y0`, `y1`, ... without a gap; every other
            column is a feature, in the table's order.

        Examples
        --------
        >>> coreset = Coreset([[0.0, 1.0]], [2.0], [3.0])
        >>> Coreset.from_frame(coreset.to_frame()) == coreset
        True
        """
        with optional_packages():
            import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise InvalidTypeError(f"Expected a DataFrame, got {type(frame).__name__}; convert it to one.")
        columns = list(frame.columns)
        if len(set(columns)) < len(columns):
            raise InvalidInputError(f"Column names must be unique, got {columns}; rename the repeated ones.")
        outputs = _output_columns(columns)
        if not outputs or "beta" not in columns:
            raise InvalidInputError(
                "Expected a column 'beta' and a column 'y' (or 'y0', 'y1', ... without a gap), "
                f"got {columns}; add or rename the missing ones."
            )
        kinds = [dtype.kind for dtype in frame.dtypes]
        not_numeric = [name for name, kind in zip(columns, kinds, strict=True) if kind not in _REAL_KINDS]
        if not_numeric:
            raise InvalidTypeError(
                f"Every column must hold real numbers, but {not_numeric} do not; convert them with "
                "pd.to_numeric or drop them."
            )
        features = [name for name in columns if name != "beta" and name not in outputs]
        values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        X = values[:, [columns.index(name) for name in features]]
        y = values[:, [columns.index(name) for name in outputs]]
        return cls(X, y[:, 0] if outputs == ["y"] else y, values[:, columns.index("beta")])


def _read_only(name: str, value: Numbers) -> FloatArray:
    """Copy real, finite numbers of any container and device into a float64 array that cannot be written."""
    try:
        if isinstance(value, torch.Tensor) and not value.is_complex():
            # NumPy has no bfloat16, so torch does the conversion to float64.
            value = value.detach().to("cpu", torch.float64).numpy()
        array: npt.NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} must be a rectangular array of real numbers, but the {type(value).__name__} that came "
            f"gives none ({error}); pass an array or a dense tensor."
        ) from error
    if array.dtype.kind not in _REAL_KINDS:
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert to float.")
    copy = np.array(array, dtype=np.float64, order="C")
    bad = np.argwhere(~np.isfinite(copy))
    if len(bad):
        raise InvalidInputError(
            f"{name} must be finite, but {len(bad)} of its {copy.size} values are NaN or infinite, "
            f"the first at index {bad[0].tolist()}; remove or replace them."
        )
    copy.flags.writeable = False
    return copy


def _check_triplet(X: FloatArray, y: FloatArray, beta: FloatArray) -> None:
    if X.ndim != 2 or X.size == 0:
        raise InvalidInputError(
            f"X must have shape [M, D] with M >= 1 points and D >= 1 features, got {X.shape}; "
            "for a single feature use X.reshape(-1, 1)."
        )
    M = len(X)
    if y.ndim not in (1, 2) or len(y) != M or y.size == 0:
        raise InvalidInputError(
            f"y must have shape [{M}] or [{M}, T], T >= 1, got {y.shape}; pass one row per row of X."
        )
    if beta.shape != (M,):
        raise InvalidInputError(f"beta must have shape [{M}], got {beta.shape}; pass one weight per point.")
    if np.any(beta < 0):
        raise InvalidInputError(
            f"The weights beta must be at least 0, but the smallest is {beta.min():g}, at index "
            f"{beta.argmin()}; clip them at 0 or drop the points."
        )


def _output_columns(columns: list[Any]) -> list[str]:
    """Return `y`, or else y0 .. y{T-1} if these are all the columns so numbered, or else nothing."""
    if "y" in columns:
        return ["y"]
    numbered = {name for name in columns if isinstance(name, str) and _NUMBERED_OUTPUT.fullmatch(name)}
    expected = [f"y{t}" for t in range(len(numbered))]
    return expected if numbered == set(expected) else []
