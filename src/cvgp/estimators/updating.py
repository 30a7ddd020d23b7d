"""A fitted estimator with other points or new rows: prune, grow, condition, and quality by size. Nothing is trained."""

from __future__ import annotations

import time
import warnings
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp import metrics
from cvgp.data.rows import Array, Rows
from cvgp.data.source import DataSource, MemorySource, SharedSource
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.estimators.coresets import condition_coreset, condition_neighbors, grow_model, prune_model
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import as_table, schema_of
from cvgp.estimators.inputs import check_seed, check_size, check_training, first_seed, refuse_transform
from cvgp.estimators.predictive import Predictive
from cvgp.estimators.training_summary import summarize_rows
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import adopt_neighbors, in_random_order, reason_against_neighbors
from cvgp.fitting.options import Number
from cvgp.fitting.prepare import merge_copies, scaled_rows, sum_of_log_slopes, transformed
from cvgp.fitting.solve import reports_tight_bound
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.objectives import CHUNK_ROWS, full_bound
from cvgp.parallel.group import ALONE, Group, current_group
from cvgp.runtime import check_n_jobs, clean_torch_state, limited_threads

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from cvgp.estimators.regressor import CVGPRegressor

HELD_OUT = 0.2
"""The share of the rows, the last ones, that `quality_by_size` scores if no others are given."""


class UpdatingMixin(BaseEstimator):  # type: ignore[misc]
    """Changes of an estimator whose fit leaves a `FittedGP` in `_gp` and the statistics of its rows."""

    _gp: FittedGP
    _statistics: Statistics
    _log_slopes: float
    n_rows_: float
    elbo_: float
    solver_: str

    @clean_torch_state()
    def prune(self, tolerance: float = 1e-3) -> int:
        """Drop pseudo-points from this estimator, in place, and return how many were dropped.

        It drops as many points as it can while the bound falls by less than `tolerance` nats per row in all, and solves
        for the others from statistics that the fit kept, so no data are needed. The kernel and the noise stay as they
        are. To keep the larger model as well, prune a copy that ``copy.deepcopy`` makes.

        Parameters
        ----------
        tolerance : float
            Nats per row, at least 0.

        Returns
        -------
        int
            The number of points that were dropped; 0 if the bound needs all of them.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=12, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> dropped = model.prune(tolerance=0.1)
        >>> dropped + len(model.coreset_)
        12
        """
        check_is_fitted(self)
        if not isinstance(tolerance, Number) or not tolerance >= 0:
            raise InvalidInputError(f"tolerance must be a number of nats per row of at least 0; got {tolerance!r}.")
        present = len(self._gp.model.X_c)
        model, statistics, loss = prune_model(self._gp.model, self._statistics, tolerance=tolerance * self.n_rows_)
        bound = self._resize(model, statistics)
        if bound is None:
            self.elbo_ -= loss
        else:
            self._set_bound(bound, self.n_rows_, self._log_slopes)
        return present - len(model.X_c)

    @clean_torch_state()
    def grow(
        self,
        n: int,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | str | None = None,
        noise_variance: ArrayLike | str | None = None,
    ) -> int:
        """Add pseudo-points to this estimator, in place, until it has `n`, and return how many were added.

        Rows of X become points where those before them leave much prior variance (randomly pivoted Cholesky). All
        pseudo-outputs and weights are then solved for in one pass over the rows. The kernel, the noise and the places
        of the present points stay. With the rows of the fit the bound does not fall.

        Parameters
        ----------
        n : int
            How many points the model shall have in all.
        X, y, sample_weight, noise_variance
            All rows that the model shall stand for, usually those of the fit, in the forms that `fit` takes. Rows that
            are left out are forgotten. A model with neighbors uses these rows from now on; if it cannot (too many, or
            not in memory), it warns and goes on without neighbors.

        Returns
        -------
        int
            The number of points that were added. It is smaller than asked for where nothing is left to explain.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=4, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.grow(10, X, np.sin(X[:, 0]))
        6
        """
        check_is_fitted(self)
        size, present = check_size("n", n), len(self._gp.model.X_c)
        if size <= present:
            raise InvalidInputError(
                f"n is the number of points to grow to, and must be more than the present {present}; got {size}. "
                "To have fewer points, use prune."
            )
        group = current_group()
        rng = np.random.default_rng(first_seed(group, check_seed(self.random_state)))
        known, log_slopes = _known_source(self, X, y, sample_weight, noise_variance, group)
        source = self._gp.weighed(known)
        grown = grow_model(self._gp.model, source, size, rng)
        bound = grown.bound
        # The bound that the fit reported: the tighter one after L-BFGS, unless the user has chosen the paper's.
        if reports_tight_bound(self.get_params()["training__bound"], self.solver_):
            bound = full_bound(grown.model, source.chunks(CHUNK_ROWS), source.num_rows, tight=True, group=source.group)
        seed = int(rng.integers(2**31))
        with_rows = self._resize(grown.model, grown.statistics, source, seed)
        self._set_bound(bound if with_rows is None else with_rows, source.total_weight, log_slopes)
        with limited_threads(check_n_jobs(self.n_jobs)):
            summarize_rows(self, source, seed, Run.alone())
        return len(grown.model.X_c) - present

    @clean_torch_state()
    def condition(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> Self:
        """Return an estimator that has also seen new rows, without another fit. This one stays as it is.

        Kernel, noise and units stay those of the fit. With neighbors the new rows join the rows that predictions use,
        and the coreset is solved for again. Without neighbors the new rows become points of the coreset: its posterior
        is conditioned on them exactly, at a cost that is cubic in the number of points. `prune` makes it smaller again.

        Parameters
        ----------
        X, y, sample_weight, noise_variance : array-like
            New rows, as for `fit`. Rows of the fit must not be given again: they would count twice.

        Returns
        -------
        CVGPRegressor
            Fitted. Its `elbo_` and `n_rows_` count the new rows; without neighbors the log density of the new rows is
            added to `elbo_`, which is then an estimate.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X, X_new = np.linspace(0, 6, 40)[:, None], np.linspace(7, 9, 20)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.condition(X_new, np.sin(X_new[:, 0])).predict([[8.0]]).round(1).tolist()
        [1.0]
        """
        check_is_fitted(self)
        gp = self._gp
        rows = _regular(gp, _known_rows(self, X, y, sample_weight, noise_variance))
        # The parts of a fitted estimator are never changed, only replaced, so the copy may share them.
        found = copy(self)
        if not len(rows.x):
            return found  # all are outliers, and tell nothing
        source = gp.weighed(scaled_rows(transformed(gp.target, rows), gp.scaling, gp.model.X_c.device, ALONE))
        (new,) = source.chunks(source.num_rows)
        if gp.kept is None:
            # What `_set_bound` adds is taken off again.
            log_scale = float(np.log(gp.scaling.y_scale).sum())
            updated = condition_coreset(gp.model, new, self.elbo_ + self.n_rows_ * log_scale - self._log_slopes)
        else:
            total, most = len(gp.kept.rows.x) + source.num_rows, Heuristics().most_neighbor_rows
            if total > most:
                raise InvalidInputError(
                    f"Predictions can consult at most {most} rows, and with the new ones there would be {total}. Fit "
                    "with n_neighbors=0 to condition on more."
                )
            updated = condition_neighbors(gp.model, gp.kept, new)
        found._gp = gp.with_model(updated.model, updated.kept)
        found._statistics = updated.statistics
        num_rows = self.n_rows_ + source.total_weight
        found._set_bound(updated.bound, num_rows, self._log_slopes + sum_of_log_slopes(gp.target, rows))
        return found

    def _resize(
        self, model: CVGP, statistics: Statistics, source: DataSource | None = None, seed: int = 0
    ) -> float | None:
        """Take a model with other points; if the present one consults neighbors, so does the new one.

        They are the rows of `source`, in an order drawn by `seed`, or else those of the present model. Rows that cannot
        be consulted leave the coreset alone, with a warning. Returns the bound with neighbors, in the model's units.
        """
        gp = self._gp
        if gp.kept is None:
            self._gp, self._statistics = gp.with_model(model), statistics
            return None
        rows, group = gp.kept.rows, ALONE
        if source is not None:
            reason, group = reason_against_neighbors(source, Heuristics()), source.group
            if reason or not isinstance(source, MemorySource):
                warnings.warn(
                    f"The model has consulted neighbors, and no longer does: {reason}.", CVGPWarning, stacklevel=4
                )
                self._gp, self._statistics = gp.with_model(model), statistics
                return None
            rows = in_random_order(source.data, seed)
        kept, bound = adopt_neighbors(model, rows, gp.kept.num_neighbors, group=group)
        self._gp, self._statistics = gp.with_model(model, kept), kept.statistics
        return bound

    def _set_bound(self, bound: float, num_rows: float, log_slopes: float) -> None:
        """Note a bound on the density of the scaled T(y) as one on y in its own units."""
        self.n_rows_ = num_rows
        self._log_slopes = log_slopes
        self.elbo_ = bound - num_rows * float(np.log(self._gp.scaling.y_scale).sum()) + log_slopes


def _known_source(
    estimator: Any, x: Any, y: Any, sample_weight: Any, noise_variance: Any, group: Group
) -> tuple[DataSource, float]:
    """Rows as `fit` takes them, in the units of a fitted estimator, and the sum over rows of log T'(y).

    Tables are encoded as the fit has encoded its own: nothing is learned from them.
    """
    gp, schema = estimator._gp, schema_of(estimator)
    opened = as_table(x, y, sample_weight, noise_variance, None if schema is None else schema.reading)
    device = gp.model.X_c.device
    if opened is None:
        rows = _known_rows(estimator, x, y, sample_weight, noise_variance)
    elif schema is None:
        raise InvalidInputError(
            "The model was fitted to an array whose columns have no names, so it cannot read a table; give X and y as "
            "arrays."
        )
    else:
        _check_outputs(estimator, len(opened.targets))
        table = opened.apply(schema, group)
        if not table.fits_in_memory:
            refuse_transform(gp.target.name)
            read = table.source(gp.scaling, device)
            return read if group.world == 1 else SharedSource(read, group), 0.0
        rows = table.load()
    rows = _regular(gp, merge_copies(rows))
    return scaled_rows(transformed(gp.target, rows), gp.scaling, device, group), sum_of_log_slopes(gp.target, rows)


def _known_rows(estimator: Any, x: Any, y: Any, sample_weight: Any, noise_variance: Any) -> Rows[Array]:
    """Rows in memory, checked, with the columns and outputs of a fitted estimator."""
    rows, _ = check_training(estimator, x, y, sample_weight, noise_variance, reset=False)
    _check_outputs(estimator, rows.y.shape[1])
    return rows


def _regular(gp: FittedGP, rows: Rows[Array]) -> Rows[Array]:
    """Rows weighted by their probability of not being an outlier."""
    return rows if gp.outliers is None else Predictive.at(gp, rows.x).regular(rows)


def _check_outputs(estimator: Any, count: int) -> None:
    outputs = len(estimator._gp.scaling.y_mean)
    if count != outputs:
        raise InvalidInputError(f"y must have the {outputs} outputs that the model was fitted to; got {count}.")


@clean_torch_state()
def quality_by_size(
    model: CVGPRegressor,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    noise_variance: ArrayLike | None = None,
    *,
    sizes: Sequence[int] | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
) -> dict[str, NDArray[Any]]:
    """Prune and grow a fitted model to several sizes, and score each of them on rows that were held out.

    For each size the points are solved for from the rows in X that are not held out. The kernel, the noise and the
    model stay as they are. Coresets are scored alone, without neighbors.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.
    X, y : array-like
        Rows of the columns that the model was fitted to: usually those of the fit.
    sample_weight, noise_variance : array-like of shape (n_samples,), optional
        As for `fit`. Scores count every held-out row once.
    sizes : sequence of int, optional
        Numbers of pseudo-points. The powers of two up to twice the present size by default.
    held_out : (X, y), optional
        Rows to score, best ones that the model has not seen. By default they are the last fifth of X and y.

    Returns
    -------
    dict of ndarrays
        One entry per size, in rising order: `size`, `bound_per_row` (the paper's bound in nats, for y in its own
        units), `rmse`, `mean_log_likelihood` (nats per held-out row and output) and `seconds`. A ``pandas.DataFrame``
        can be made of it.

    Examples
    --------
    >>> import cvgp, numpy as np
    >>> X = np.random.default_rng(0).uniform(0, 6, (200, 1))
    >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X[:150], np.sin(X[:150, 0]))
    >>> quality = cvgp.quality_by_size(model, X, np.sin(X[:, 0]), sizes=[2, 8, 16])
    >>> bool(quality["rmse"][2] < quality["rmse"][0])
    True
    """
    check_is_fitted(model)
    rows = _known_rows(model, X, y, sample_weight, noise_variance)
    if held_out is None:
        held = round(HELD_OUT * len(rows.x))
        if not 1 <= held < len(rows.x):
            raise InvalidInputError(
                f"The last fifth of the rows is scored, which needs at least 3 rows; got {len(rows.x)}. Give held_out."
            )
        rows, scored = rows.take(slice(-held)), rows.take(slice(-held, None))
    else:
        x_new, y_new = held_out
        scored = _known_rows(model, x_new, y_new, None, None)
    gp, rows = model._gp, _regular(model._gp, merge_copies(rows))
    source = gp.weighed(scaled_rows(transformed(gp.target, rows), gp.scaling, gp.model.X_c.device, ALONE))
    seed = check_seed(model.random_state).randint(2**31)
    # Also at the present size: the fit may have seen the rows that are now held out.
    present = grow_model(gp.model, source, len(gp.model.X_c), np.random.default_rng(seed))
    log_scale = float(np.log(gp.scaling.y_scale).sum())
    log_scale -= sum_of_log_slopes(gp.target, rows) / source.total_weight
    found = []
    for size in _checked_sizes(sizes, len(present.model.X_c), source.num_rows):
        start = time.perf_counter()
        if size <= len(present.model.X_c):
            resized, _, loss = prune_model(present.model, present.statistics, size=size)
            bound = present.bound - loss
        else:
            grown = grow_model(present.model, source, size, np.random.default_rng(seed))
            resized, bound = grown.model, grown.bound
        seconds = time.perf_counter() - start
        predicted = Predictive.at(gp.with_model(resized), scored.x)
        rmse = metrics.rmse(scored.y.ravel(), predicted.moments.mean.ravel())
        density = float(predicted.log_density(scored.y).mean())
        found.append((len(resized.X_c), bound / source.total_weight - log_scale, rmse, density, seconds))
    names = ("size", "bound_per_row", "rmse", "mean_log_likelihood", "seconds")
    return {name: np.array(column) for name, column in zip(names, zip(*found, strict=True), strict=True)}


def _checked_sizes(sizes: Any, present: int, num_rows: int) -> list[int]:
    """Different sizes in rising order; by default powers of two that the rows suffice for."""
    if sizes is None:
        most = min(2 * present, max(present, num_rows))
        return [2**power for power in range(most.bit_length())]
    return sorted({check_size("each of sizes", size) for size in sizes})
