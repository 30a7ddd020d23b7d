"""The coreset as a value: M weighted pseudo-observations (X, y, beta), a small data set of its own.

:func:`finite_array` makes every array of numbers that a user passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from cvgp.errors import (
    InvalidInputError,
    InvalidTypeError,
    MissingDependencyError,
    optional_packages,
    printable_lines,
)
from cvgp.runtime import single_threaded_blas, sklearn_alone

if TYPE_CHECKING:
    import pandas as pd
    from gpytorch.kernels import Kernel


__all__ = ["Coreset"]

FloatArray = NDArray[np.float64]
Numbers = ArrayLike | torch.Tensor

REAL_KINDS = "biuf"  # NumPy's codes for bool, int, unsigned int and float


def refuse_masked(name: str, value: object) -> None:
    """Raise on a masked array with masked values, which NumPy would silently unmask."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        where = np.argwhere(np.ma.getmaskarray(value))
        raise InvalidInputError(
            f"{name} is a masked array of which {len(where)} of {value.size} values are masked, the first at index "
            f"{where[0].tolist()}, and values that are missing cannot be used. Leave these rows out, or fill the "
            "values by `.filled(value)`."
        )


def finite_array(name: str, value: ArrayLike | torch.Tensor) -> FloatArray:
    """A float64 copy of numbers in any container and on any device; `name` is what errors call them."""
    refuse_masked(name, value)
    try:
        if isinstance(value, torch.Tensor) and not value.is_complex():
            # NumPy has no bfloat16, so torch does the conversion to float64.
            value = value.detach().to("cpu", torch.float64).numpy()
        array: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} must be a rectangular array of real numbers, but the {type(value).__name__} that came "
            f"gives none ({error}); pass an array or a dense tensor."
        ) from error
    if array.dtype.kind not in REAL_KINDS:
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert to float.")
    copy = np.array(array, dtype=np.float64, order="C")
    bad = np.argwhere(~np.isfinite(copy))
    if len(bad):
        raise InvalidInputError(
            f"{name} must be finite, but {len(bad)} of its {copy.size} values are NaN or infinite, "
            f"the first at index {bad[0].tolist()}; remove or replace them."
        )
    return copy


LEAST_SUM, MOST_SUM = 1e-100, 1e100  # between these, sums of weights and of their products with squares are numbers too


def check_sum(name: str, values: NDArray[np.float64]) -> None:
    """Raise if the sum of nonnegative numbers is too close to the limits of floating point."""
    with np.errstate(over="ignore"):
        total = float(values.sum())
    if not LEAST_SUM < total < MOST_SUM:
        raise InvalidInputError(
            f"The {name} must sum to a number between {LEAST_SUM:g} and {MOST_SUM:g}; they sum to {total:.3g}. "
            "Divide them by their mean."
        )


SHOWN_POINTS, SHOWN_COLUMNS = 5, 10  # in a notebook


class NamedColumn(NamedTuple):
    """A column that inputs of a coreset stand for: one of them, or one per category."""

    name: str
    categories: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """How many inputs."""
        return len(self.categories) or 1


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
    columns : sequence of NamedColumn, optional
        The columns of a user's table that the inputs stand for, which `to_frame` shows; ignored by ``==``.

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
    columns: tuple[NamedColumn, ...] | None = field(default=None, compare=False)

    def __init__(self, X: Numbers, y: Numbers, beta: Numbers, columns: Sequence[NamedColumn] | None = None) -> None:
        for name, value in (("X", X), ("y", y), ("beta", beta)):
            array = finite_array(name, value)
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "columns", None if columns is None else tuple(columns))
        _check_triplet(self.X, self.y, self.beta)
        if self.columns is not None and sum(column.width for column in self.columns) != self.num_dims:
            raise InvalidInputError(f"The columns must stand for the {self.num_dims} inputs of X; got {self.columns}.")

    def __reduce__(self) -> tuple[type[Coreset], tuple[Any, ...]]:
        # NumPy forgets the read-only flag in copies and pickles; the constructor sets it again.
        return type(self), (self.X, self.y, self.beta, self.columns)

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
        title = escape(repr(self))
        try:
            heaviest = self.to_frame().iloc[np.argsort(-self.beta, kind="stable")[:SHOWN_POINTS]]
        except MissingDependencyError:
            return f"<p>{title}</p>"
        table = heaviest.to_html(index=False, max_cols=SHOWN_COLUMNS, float_format="{:.4g}".format)
        return f"<p>{title}, the heaviest points:</p>{printable_lines(table)}"

    @property
    def num_dims(self) -> int:
        """The number of inputs D."""
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

    def prune(self, threshold: float) -> Coreset:
        """Return a new coreset without the points whose weight is below a threshold.

        The points that are kept do not change, so the posterior changes. `CVGPRegressor.prune` solves for them again.

        Parameters
        ----------
        threshold : float
            Points with beta < threshold are dropped; at least 0, and at most the largest weight.

        Returns
        -------
        Coreset
            With at least one point.

        Examples
        --------
        >>> from cvgp import Coreset
        >>> len(Coreset([[0.0], [1.0]], [1.0, 2.0], [3.0, 1e-9]).prune(1e-6))
        1
        """
        limit = finite_array("threshold", threshold)
        if limit.ndim > 0 or not 0 <= limit <= self.beta.max():
            raise InvalidInputError(
                f"The threshold must be one number from 0 to the largest weight, {self.beta.max():g}, since a coreset "
                f"keeps at least one point; got {threshold}."
            )
        keep = self.beta >= limit
        return Coreset(self.X[keep], self.y[keep], self.beta[keep], self.columns)

    def to_frame(self, feature_names: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the points as a pandas frame: the features, then `y` (or `y0`, `y1`, ... for [M, Q]), then `beta`.

        The coreset of a fitted model knows the columns of its data. For a column of text it shows the category whose
        input is the largest; names for all inputs show these as numbers.

        Parameters
        ----------
        feature_names : sequence of str, optional
            One name per input dimension. By default the columns that the coreset knows, and otherwise `x0`, `x1`, ...

        Returns
        -------
        pandas.DataFrame
            One row per point.

        Examples
        --------
        >>> from cvgp import Coreset
        >>> list(Coreset([[0.0, 1.0]], [2.0], [3.0]).to_frame(["age", "dose"]).columns)
        ['age', 'dose', 'y', 'beta']
        """
        with optional_packages():
            import pandas as pd

        columns = self.columns
        if feature_names is not None or columns is None:
            names = [f"x{d}" for d in range(self.num_dims)] if feature_names is None else list(feature_names)
            columns = tuple(NamedColumn(name) for name in names)
        names = [column.name for column in columns]
        if len(set(names)) < len(names) or sum(column.width for column in columns) != self.num_dims:
            raise InvalidInputError(
                f"Expected {self.num_dims} different feature names, one per input, got {names}; pass feature_names."
            )
        values: dict[str, Any] = {}
        start = 0
        for column in columns:
            inputs = self.X[:, start : start + column.width]  # [M, width]
            levels = np.array(column.categories, dtype=object)
            decoded = pd.Categorical(levels[inputs.argmax(axis=1)], levels) if len(levels) else inputs[:, 0]
            values[column.name] = decoded
            start += column.width
        plain = ["y", "beta"] if self.y.ndim == 1 else [*(f"y{q}" for q in range(self.num_outputs)), "beta"]
        added, number = plain, 1
        while set(added) & set(values):
            number += 1
            added = [f"{name}_{number}" for name in plain]
        return pd.DataFrame(values | dict(zip(added, [*self.y.reshape(len(self), -1).T, self.beta], strict=True)))

    @classmethod
    def from_data(
        cls,
        X: Numbers,
        y: Numbers,
        size: int,
        *,
        kernel: Kernel | None = None,
        sample_weight: Numbers | None = None,
        random_state: int = 0,
    ) -> Coreset:
        """Summarize data by weighted points: where to start the training of a `CVGP`.

        Each point has the mean y of the rows nearest to it, and their number (or weight) as its own weight.

        Parameters
        ----------
        X : array-like or tensor of shape [N, D]
            Inputs.
        y : array-like or tensor of shape [N] or [N, Q]
            Outputs.
        size : int
            The most points M; fewer where fewer rows differ.
        kernel : gpytorch.kernels.Kernel, optional
            With a kernel the points are rows of X, chosen by pivoted Cholesky; by default they are k-means centers.
        sample_weight : array-like or tensor of shape [N], optional
            How many times each row counts; once by default.
        random_state : int
            Seed of k-means.

        Returns
        -------
        Coreset
            Its weights add up to the number (or weight) of the rows.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGP, Coreset
        >>> X = np.linspace(0.0, 1.0, 100)[:, None]
        >>> coreset = Coreset.from_data(X, np.sin(6.0 * X[:, 0]), size=8)
        >>> model = CVGP(coreset, kernel="matern32")
        """
        rows, outputs = finite_array("X", X), finite_array("y", y)
        weight = np.ones(len(rows)) if sample_weight is None else finite_array("sample_weight", sample_weight)
        _check_triplet(rows, outputs, weight)
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise InvalidInputError(f"size must be a whole number of at least 1; got {size!r}.")
        if kernel is not None:
            points = torch.as_tensor(rows)
            order, _ = pivoted_rows(
                kernel(points, diag=True), lambda i: kernel(points[i : i + 1], points).to_dense()[0], size
            )
            return nearest_summary(rows[order], rows, outputs, weight)
        sd = rows.std(0)
        labels = kmeans_labels(rows / np.where(sd > 0, sd, 1.0), weight, size, random_state)
        return cluster_summary(labels, rows, outputs, weight)


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


@sklearn_alone()
@single_threaded_blas()  # which scikit-learn limits too, but without counting the threads that do
def kmeans_labels(x: FloatArray, weight: FloatArray, size: int, seed: int) -> NDArray[np.intp]:
    """The cluster of each row x [N, D]: at most `size` of them, none empty."""
    from sklearn.cluster import KMeans

    # Squared distances cannot tell apart what is closer than 1e-7 of the extent; scikit-learn would warn of that.
    x = x - x.mean(0)
    x = np.round(x / (float(np.abs(x).max()) or 1.0), 7)
    distinct, labels = np.unique(x, axis=0, return_inverse=True)
    if len(distinct) > size:
        # Lloyd's steps beyond the first few move centers by less than training does at once.
        fitted = KMeans(size, n_init=1, max_iter=10, random_state=seed).fit(x, sample_weight=weight)
        labels = np.unique(fitted.labels_, return_inverse=True)[1]
    return np.asarray(labels, dtype=np.intp).reshape(-1)


@torch.no_grad()
def pivoted_rows(
    k_xx: torch.Tensor, row: Callable[[int], torch.Tensor], size: int
) -> tuple[NDArray[np.intp], FloatArray]:
    """Up to `size` rows by greedy pivoted Cholesky (the largest variance left first), and the mean left after each."""
    left = k_xx.to(torch.float64)  # [N]
    factor = torch.zeros(min(size, len(left)), len(left), dtype=torch.float64)
    floor = 1e-10 * left.max().item()
    chosen: list[int] = []
    remaining: list[float] = []
    for m in range(len(factor)):
        pivot = int(left.argmax())
        if left[pivot].item() <= floor and chosen:
            break
        scale = left[pivot].clamp_min(torch.finfo(left.dtype).tiny).sqrt()
        factor[m] = (row(pivot) - factor[:m, pivot] @ factor[:m]) / scale
        left = (left - factor[m].square()).clamp_min(0.0)
        left[pivot] = 0.0
        chosen.append(pivot)
        remaining.append(left.mean().item())
    return np.array(chosen, dtype=np.intp), np.array(remaining)


def cluster_summary(labels: NDArray[np.intp], x: FloatArray, y: FloatArray, weight: FloatArray) -> Coreset:
    """Weighted means of the inputs and outputs of each cluster, and its weight; those without weight are left out."""
    mass = np.bincount(labels, weights=weight)
    kept = mass > 0

    def means(values: FloatArray) -> FloatArray:
        columns = values.reshape(len(values), -1).T
        sums = np.stack([np.bincount(labels, weights=weight * column) for column in columns], axis=1)
        return np.asarray((sums[kept] / mass[kept, None]).reshape(-1, *values.shape[1:]))

    return Coreset(means(x), means(y), mass[kept])


@sklearn_alone()
@single_threaded_blas()
def nearest_summary(centers: FloatArray, x: FloatArray, y: FloatArray, weight: FloatArray) -> Coreset:
    """The centers [M, D] themselves, with the outputs and weights of the rows nearest to each."""
    from sklearn.metrics import pairwise_distances_argmin

    labels = np.asarray(pairwise_distances_argmin(x, centers), dtype=np.intp)
    found = cluster_summary(labels, x, y, weight)
    return Coreset(centers[np.bincount(labels, weights=weight, minlength=len(centers)) > 0], found.y, found.beta)
