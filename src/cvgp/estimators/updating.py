"""A fitted estimator with other points or new rows: prune, grow, learn from a stream. Nothing is trained."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from cvgp import metrics
from cvgp.data.rows import Array, Rows
from cvgp.data.source import DataSource, MemorySource, SharedSource
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.estimators import coresets
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import as_table, schema_of
from cvgp.estimators.inputs import check_seed, check_size, check_training, first_seed, refuse_transform
from cvgp.estimators.predictive import Predictive
from cvgp.estimators.training_summary import summarize_rows
from cvgp.fitting.compare import weight_of
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.neighbors import in_random_order, reason_against_neighbors
from cvgp.fitting.options import Number
from cvgp.fitting.outliers import regular_rows
from cvgp.fitting.prepare import merge_copies, scaled_rows, sum_of_log_slopes, transformed
from cvgp.fitting.privacy import FEWEST, check_batch, refuse_points
from cvgp.fitting.solve import Solution, reports_tight_bound
from cvgp.gp.bounds import Statistics
from cvgp.gp.calibration import Calibration
from cvgp.objectives import CHUNK_ROWS, full_bound
from cvgp.parallel.group import ALONE, Group, current_group
from cvgp.runtime import check_n_jobs, clean_torch_state, limited_threads
from cvgp.tables.encode import Findings, new_inputs

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

HELD_OUT = 0.2  # of the rows, the last ones
MOST_BATCHES = 1000  # whose densities are kept
UNEXPLAINED = 0.02  # prior variance per row over that of the noise that points may leave: 0.01 nats of the bound


def _learns_batches(model: Any) -> bool:
    """Whether a model has `partial_fit`: scikit-learn calls it wherever it exists."""
    if model.likelihood != "gaussian":
        raise AttributeError(
            f"partial_fit is for likelihood='gaussian', and this model has likelihood={model.likelihood!r}. Fit it "
            "again with all rows."
        )
    return True


class UpdatingMixin(BaseEstimator):  # type: ignore[misc]
    """Changes of an estimator whose fit leaves a `FittedGP` in `_gp` and the statistics of its rows."""

    _gp: FittedGP
    _statistics: Statistics
    _log_slopes: float
    n_rows_: float
    elbo_: float
    solver_: str
    private: bool

    @clean_torch_state()
    def prune(self, tolerance: float = 1e-3) -> int:
        """Drop pseudo-points, in place, while the bound falls by less than `tolerance` nats per row in all.

        No data are needed; kernel and noise stay. To keep the larger model too, prune a ``copy.deepcopy`` of it.

        Parameters
        ----------
        tolerance : float
            Nats per row by which the bound may fall in all.

        Returns
        -------
        int
            The number of points that were dropped.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=12, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.prune(tolerance=0.1) + len(model.coreset_)
        12
        """
        check_is_fitted(self)
        self._gp.need_gaussian("prune")
        if not isinstance(tolerance, Number) or not tolerance >= 0:
            raise InvalidInputError(f"tolerance must be a number of nats per row of at least 0; got {tolerance!r}.")
        model, kept = self._gp.model, self._gp.kept
        pruned, loss = coresets.prune_model(model, self._statistics, tolerance=tolerance * self.n_rows_)
        if kept is None:
            self._adopt(pruned)
            self.elbo_ -= loss
        else:
            pruned = coresets.with_neighbors(pruned.model, kept.rows, kept.num_neighbors)
            self._adopt(pruned, self.n_rows_, self._log_slopes)
        return len(model.X_c) - len(pruned.model.X_c)

    @clean_torch_state()
    def grow(
        self,
        n: int,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | str | None = None,
        noise_variance: ArrayLike | str | None = None,
    ) -> int:
        """Add pseudo-points, in place, until there are `n`, and solve for all of them in one pass over the rows.

        Rows are chosen by randomly pivoted Cholesky. Kernel, noise and the present pseudo-inputs stay. With the rows of
        the fit the bound does not fall.

        Parameters
        ----------
        n : int
            How many points the model shall have in all.
        X, y, sample_weight, noise_variance
            All rows that the model shall stand for, usually those of the fit, as `fit` takes them.

        Returns
        -------
        int
            The number of points that were added; fewer than asked for if nothing is left to explain.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=4, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.grow(10, X, np.sin(X[:, 0]))
        6
        """
        check_is_fitted(self)
        self._gp.need_gaussian("grow")
        if self.private:
            refuse_points("grow")
        gp, size, present = self._gp, check_size("n", n), len(self._gp.model.X_c)
        if size <= present:
            raise InvalidInputError(
                f"n is the number of points to grow to, and must be more than the present {present}; got {size}. "
                "To have fewer points, use prune."
            )
        group = current_group()
        rng = np.random.default_rng(first_seed(group, check_seed(self.random_state)))
        source, log_slopes = _known_source(self, X, y, sample_weight, noise_variance, group)
        grown = coresets.grow_model(gp.model, source, size, rng)
        seed = int(rng.integers(2**31))
        if gp.kept is not None:
            reason = reason_against_neighbors(source, Heuristics())
            if reason or not isinstance(source, MemorySource):
                message = f"The model has used neighbors, and no longer does: {reason}."
                warnings.warn(message, CVGPWarning, stacklevel=3)
            else:
                rows = in_random_order(source.data, seed)
                grown = coresets.with_neighbors(grown.model, rows, gp.kept.num_neighbors, source.group)
        # The bound that the fit reported: the tighter one after L-BFGS, unless the user has chosen the paper's.
        if grown.kept is None and reports_tight_bound(self.get_params()["training__bound"], self.solver_):
            bound = full_bound(grown.model, source.chunks(CHUNK_ROWS), source.num_rows, tight=True, group=source.group)
            grown = grown._replace(bound=bound)
        self._adopt(grown, source.total_weight, log_slopes)
        if isinstance(source, MemorySource):
            y = gp.target.invert(gp.scaling.unscale_y(source.data.y.cpu().numpy()))
            self._gp = replace(self._gp, target=gp.target.with_limits(y.reshape(len(y), -1)))
        with limited_threads(check_n_jobs(self.n_jobs)):
            summarize_rows(self, source, seed)
        return len(grown.model.X_c) - present

    @available_if(_learns_batches)  # type: ignore[untyped-decorator]
    @clean_torch_state()
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | str | None = None,
        noise_variance: ArrayLike | str | None = None,
        *,
        adapt: bool = False,
    ) -> Self:
        """Learn from new rows too, in place, without another fit; the first call is a fit.

        Kernel, noise and units stay. The sums over all rows so far are part of the model, so the coreset becomes what
        a solution for all rows at these pseudo-inputs would be, to rounding, whatever the order of the batches. This
        does not hold after `condition`, `merge` or a batch with `adapt`, which replace old rows by points, nor for
        models with neighbors, whose new rows join those that predictions use.

        Parameters
        ----------
        X, y, sample_weight, noise_variance
            New rows, as for `fit`, with the same columns and no new categories. Rows that were given before would count
            twice.
        adapt : bool
            Let the pseudo-inputs follow the new rows: points are added where these are poorly explained, and the least
            needed are dropped. There are never more than `n_coreset`, or as many as a fit may choose. Old rows are then
            known through the old points alone, which is an approximation.

        Returns
        -------
        CVGPRegressor
            The estimator itself. `batch_log_densities_` has the mean log density of each batch before it was learned,
            in nats per row and output, of the last 1000 batches: it falls where the data drift.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 90)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0)
        >>> for batch in np.arange(90).reshape(30, 3).T:
        ...     model = model.partial_fit(X[batch], np.sin(X[batch, 0]))
        >>> model.n_rows_, len(model.batch_log_densities_)
        (90.0, 2)
        """
        if not hasattr(self, "_gp"):
            return self.fit(X, y, sample_weight, noise_variance)  # type: ignore[no-any-return]
        self._gp.need_gaussian("partial_fit")
        gp, given = self._gp, new_rows(self, X, y, sample_weight, noise_variance)
        rows = merge_copies(given)
        if self.private:
            check_batch(gp.scaling, gp.model.X_c, rows.x, adapt=adapt)
        rows = _regular(gp, rows)
        if len(rows.x):  # otherwise all are outliers, and tell nothing
            updated, weight, log_slopes = self._with_rows(rows, adapt)
            self._adopt(updated, self.n_rows_ + weight, self._log_slopes + log_slopes)
            self._gp = replace(self._gp, target=gp.target.with_limits(rows.y))
        densities = _predicted(gp, given).log_density(given.y).mean(axis=1)
        note_batch(self, float(np.average(densities, weights=given.sample_weight)))
        return self

    def _with_rows(self, rows: Rows[Array], adapt: bool) -> tuple[coresets.Updated, float, float]:
        """The model with more rows, their weight, and the sum of log T'(y)."""
        gp, size, bound = self._gp, len(self._gp.model.X_c), self._bound
        source, log_slopes = in_units_of_model(gp, rows)
        (new,) = source.chunks(source.num_rows)
        if adapt:
            most = max(size, most_points(self, Heuristics().largest_coreset))
            old = self._statistics
            gap = max(float(old.kk - old.Phi.trace()) / self.n_rows_, UNEXPLAINED)
            room = most if gp.kept is None else most - size
            precision = weight_of(new) / gp.model.total_noise(new.noise_variance)
            rng = np.random.default_rng(check_seed(self.random_state).randint(2**31))
            points = coresets.points_for(gp.model, new.x, precision, source.total_weight, gap, room, rng)
        if gp.kept is None:
            tight = reports_tight_bound(self.get_params()["training__bound"], self.solver_)
            known = gp.model, self._statistics, bound, source
            found = (
                coresets.adapt_model(*known, points, most, tight=tight)
                if adapt
                else coresets.add_rows(*known, tight=tight)
            )
            return found, source.total_weight, log_slopes
        self._check_room(source.num_rows)
        if adapt and len(points):
            every = coresets.append_rows(gp.kept.rows, new)
            found = coresets.with_neighbors(coresets.with_points(gp.model, points), every, gp.kept.num_neighbors)
        else:
            found = coresets.condition_neighbors(gp.model, gp.kept, new)
        return found, source.total_weight, log_slopes

    @clean_torch_state()
    def forget(self, factor: float) -> Self:
        """Let all rows so far count less, in place: their weights are multiplied by a factor.

        Called before each `partial_fit`, it lets a model follow a relation that changes.

        Parameters
        ----------
        factor : float
            Above 0 and at most 1. With 0.9, a row counts for a third after ten calls.

        Returns
        -------
        CVGPRegressor
            The estimator itself.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.forget(0.5).n_rows_
        20.0
        """
        check_is_fitted(self)
        self._gp.need_gaussian("forget")
        check_factor(factor)
        gp = self._gp
        if gp.kept is None:
            updated = coresets.discount(gp.model, self._statistics, self._bound, factor)
            count = factor * self.n_rows_
        else:
            updated = coresets.discount_neighbors(gp.model, gp.kept, factor)
            assert updated.kept is not None, "it has neighbors"
            count = weight_of(updated.kept.rows).sum().item()
        self._adopt(updated, count, factor * self._log_slopes)
        return self

    @clean_torch_state()
    def condition(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
    ) -> Self:
        """Return an estimator that has also seen new rows, without another fit. This one stays as it is.

        Kernel, noise and units stay. The new rows join those that predictions use, or without neighbors become points
        of the coreset.

        Parameters
        ----------
        X, y, sample_weight, noise_variance : array-like
            New rows, as for `fit`. Rows of the fit must not be given again: they would count twice.

        Returns
        -------
        CVGPRegressor
            Fitted. Its `elbo_` and `n_rows_` count the new rows; without neighbors `elbo_` is an estimate.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X, X_new = np.linspace(0, 6, 40)[:, None], np.linspace(7, 9, 20)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.condition(X_new, np.sin(X_new[:, 0])).predict([[8.0]]).round(1).tolist()
        [1.0]
        """
        check_is_fitted(self)
        self._gp.need_gaussian("condition", alike=self._gp.kept is None)
        if self.private:
            refuse_points("condition")
        gp = self._gp
        rows = _regular(gp, _known_rows(self, X, y, sample_weight, noise_variance))
        # The parts of a fitted estimator are never changed, only replaced, so the copy may share them.
        found = copy(self)
        if not len(rows.x):
            return found  # all are outliers, and tell nothing
        source, log_slopes = in_units_of_model(gp, rows)
        (new,) = source.chunks(source.num_rows)
        if gp.kept is None:
            updated = coresets.condition_coreset(gp.model, new, self._bound)
        else:
            self._check_room(source.num_rows)
            updated = coresets.condition_neighbors(gp.model, gp.kept, new)
        found._adopt(updated, self.n_rows_ + source.total_weight, self._log_slopes + log_slopes)
        found._gp = replace(found._gp, target=gp.target.with_limits(rows.y))
        return found

    @clean_torch_state()
    def calibrate(self, X: Any, y: Any = None, groups: ArrayLike | None = None) -> Self:
        """Calibrate intervals and quantiles by rows of your own, in place.

        A new row is inside a conformal interval with the probability that was asked for, on average over calibration
        sets and new rows, if it is drawn as these rows are and the fit has not seen them.

        Parameters
        ----------
        X, y
            Rows that the fit has not learned from, as `fit` takes them.
        groups : array-like of shape (n_samples,), optional
            The group of each row, such as a patient. Groups count equally, and intervals then hold for rows of new
            groups. With g groups, levels up to g / (g + 1) in each tail can be calibrated.

        Returns
        -------
        CVGPRegressor
            The estimator itself.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (300, 1))
        >>> y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=300)
        >>> model = cvgp.CVGPRegressor(random_state=0).fit(X[:100], y[:100]).calibrate(X[100:], y[100:])
        >>> model.predict_interval(X[:2], level=0.9).shape
        (2, 2)
        """
        check_is_fitted(self)
        self._gp.need_gaussian("calibrate", complete=False)
        table = _known_table(self, X, y, None, None, current_group())
        rows = _known_rows(self, X, y, None, None) if table is None else table.load()
        residuals = _predicted(self._gp, rows).residuals(rows.y)
        if not np.isfinite(residuals).all():
            raise InvalidInputError("Some y are impossible under the model's transform of y; leave these rows out.")
        weight = _row_weights(groups, len(rows.x)) if groups is not None else rows.sample_weight
        calibration: Calibration | None = Calibration.of(residuals, weight)
        if self.private and calibration and (calibration := calibration.pooled(FEWEST)) is None:
            raise InvalidInputError(f"A private model is calibrated by at least {2 * FEWEST} rows; got {len(rows.x)}.")
        self._gp = replace(self._gp, calibration=calibration)
        return self

    def _add_rows(self, rows: Rows[Array], solution: Solution, group: Group, *, is_exact: bool) -> None:
        """Take rows that were set aside into the model that a fit has just left, in place."""
        gp = self._gp
        regular = _regular(gp, merge_copies(rows))
        if not len(regular.x):
            return
        by_sums = gp.kept is None and not (is_exact and group.world == 1 and gp.outputs is None)
        source, log_slopes = in_units_of_model(gp, regular, group if by_sums else ALONE)
        if by_sums:
            known = solution.model, solution.statistics, solution.bound
            updated = coresets.add_rows(*known, source, tight=solution.tight)
        else:
            (new,) = source.chunks(source.num_rows)
            # A row that is not a point of an exact GP would count as a combination of its points plus the noise, which
            # may be far smaller than the part that they do not explain.
            updated = (
                coresets.condition_coreset(gp.model, new, solution.bound)
                if gp.kept is None
                else coresets.condition_neighbors(gp.model, gp.kept, new)
            )
        self._adopt(updated, self.n_rows_ + source.total_weight, self._log_slopes + log_slopes)

    def _adopt(self, updated: coresets.Updated, num_rows: float | None = None, log_slopes: float = 0.0) -> None:
        """Take a model with other points or rows; with `num_rows` also its bound, as one on y in its own units."""
        self._gp = self._gp.with_model(updated.model, updated.kept, updated.statistics)
        self._statistics = updated.statistics
        if num_rows is not None:
            self._set_bound(updated.bound, num_rows, log_slopes)

    def _check_room(self, count: int) -> None:
        """Raise if there would be too many rows for neighbors."""
        assert self._gp.kept is not None, "asked only of a model with neighbors"
        total, most = len(self._gp.kept.rows.x) + count, Heuristics().most_neighbor_rows
        if total > most:
            raise InvalidInputError(
                f"Predictions can use at most {most} rows, and with the new ones there would be {total}. Fit "
                "with n_neighbors=0 to learn from more."
            )

    @property
    def _bound(self) -> float:
        """The bound in the model's units."""
        return self.elbo_ + self.n_rows_ * float(np.log(self._gp.scaling.y_scale).sum()) - self._log_slopes

    def _set_bound(self, bound: float, num_rows: float, log_slopes: float) -> None:
        self.n_rows_ = num_rows
        self._log_slopes = log_slopes
        self.elbo_ = bound - num_rows * float(np.log(self._gp.scaling.y_scale).sum()) + log_slopes


def _known_source(
    estimator: Any, x: Any, y: Any, sample_weight: Any, noise_variance: Any, group: Group
) -> tuple[DataSource, float]:
    """Rows as `fit` takes them, in the units and by the schema of a fitted estimator, and the sum of log T'(y)."""
    gp, table = estimator._gp, _known_table(estimator, x, y, sample_weight, noise_variance, group)
    if table is None:
        rows = _known_rows(estimator, x, y, sample_weight, noise_variance)
    elif not table.fits_in_memory:
        refuse_transform(gp.target.name)
        read = table.source(gp.scaling, gp.model.X_c.device)
        return gp.weighed(read if group.world == 1 else SharedSource(read, group)), 0.0
    else:
        rows = table.load()
    return in_units_of_model(gp, _regular(gp, merge_copies(rows)), group)


def new_rows(estimator: Any, x: Any, y: Any, sample_weight: Any, noise_variance: Any = None) -> Rows[Array]:
    """New rows in memory for a fitted estimator, in the user's units; text may only hold categories that it knows."""
    table = _known_table(estimator, x, y, sample_weight, noise_variance, ALONE)
    if table is None:
        return _known_rows(estimator, x, y, sample_weight, noise_variance)
    if not table.fits_in_memory:
        raise InvalidInputError("partial_fit needs its rows in memory; give the table in parts, one after the other.")
    findings = Findings()
    for rows, numbers in table.rows.cell_blocks():
        findings.add(new_inputs(table.rows.columns, rows.x, numbers)[1])
    unknown = [f"{name!r} ({place})" for (kind, name), place in findings.first.items() if kind == "unknown"]
    if unknown:
        raise InvalidInputError(
            f"Cells with a category that the model does not know: {', '.join(unknown)}. Correct or leave out these "
            "rows, or fit the model again with them."
        )
    return table.load()  # type: ignore[no-any-return]


def note_batch(estimator: Any, density: float) -> None:
    """Keep the log density of a batch before it was learned."""
    before = getattr(estimator, "batch_log_densities_", np.empty(0))
    estimator.batch_log_densities_ = np.append(before, density)[-MOST_BATCHES:]


def most_points(estimator: Any, largest: int) -> int:
    """How many points an estimator may have; `largest` if a fit chooses."""
    return largest if estimator.n_coreset == "auto" else int(estimator.n_coreset)


def check_factor(factor: Any) -> None:
    """Raise unless a factor can discount rows."""
    if not isinstance(factor, Number) or isinstance(factor, bool) or not 0.0 < factor <= 1.0:
        raise InvalidInputError(
            f"factor is what the weight of each row is multiplied by, above 0 and at most 1; got {factor!r}."
        )


def _predicted(gp: FittedGP, rows: Rows[Array]) -> Predictive:
    """Predictions of rows, with their own noise."""
    found = Predictive.at(gp, rows.x)
    return found if rows.noise_variance is None else replace(found, noise=found.noise + rows.noise_variance[:, None])


def _known_table(estimator: Any, x: Any, y: Any, sample_weight: Any, noise_variance: Any, group: Group) -> Any:
    """A table by the schema of a fitted estimator, or None where x holds numbers."""
    schema = schema_of(estimator)
    opened = as_table(x, y, sample_weight, noise_variance, None if schema is None else schema.reading)
    if opened is None:
        return None
    if schema is None:
        raise InvalidInputError(
            "The model was fitted to an array whose columns have no names, so it cannot read a table; give X and y as "
            "arrays."
        )
    _check_outputs(estimator, len(opened.targets))
    return opened.apply(schema, group)


def _known_rows(estimator: Any, x: Any, y: Any, sample_weight: Any, noise_variance: Any) -> Rows[Array]:
    rows, _ = check_training(estimator, x, y, sample_weight, noise_variance, reset=False)
    _check_outputs(estimator, rows.y.shape[1])
    return rows


def _regular(gp: FittedGP, rows: Rows[Array]) -> Rows[Array]:
    """Rows weighted by their probability of not being an outlier."""
    if gp.outliers is None:
        return rows
    found = Predictive.at(gp, rows.x)
    error = gp.target.apply(rows.y) - found.mean
    return regular_rows(rows, gp.outliers.probability(error, found.f_var + found.noise))


def in_units_of_model(gp: FittedGP, rows: Rows[Array], group: Group = ALONE) -> tuple[DataSource, float]:
    """Rows in the units of a model, weighted by their noise as its own rows are, and the sum of log T'(y)."""
    source = scaled_rows(transformed(gp.target, rows), gp.scaling, gp.model.X_c.device, group)
    return gp.weighed(source), sum_of_log_slopes(gp.target, rows)


def _row_weights(groups: ArrayLike, num_rows: int) -> Array:
    """Weights [n] that add up to one in each group."""
    given = np.asarray(groups)
    if given.shape != (num_rows,):
        raise InvalidInputError(f"groups must have one entry for each of the {num_rows} rows; got {given.shape}.")
    _, where, counts = np.unique(given, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[where])


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

    Each coreset is solved for from the rows that are not held out, and scored without neighbors.

    Parameters
    ----------
    model : CVGPRegressor
    X, y, sample_weight, noise_variance : array-like
        Rows as for `fit`, usually those of the fit.
    sizes : sequence of int, optional
        Numbers of pseudo-points. The powers of two up to twice the present size by default.
    held_out : (X, y), optional
        Rows to score, best ones that the model has not seen. By default they are the last fifth of X and y.

    Returns
    -------
    dict of ndarrays
        One entry per size, in rising order: `size`, `bound_per_row` (nats), `rmse`, `mean_log_likelihood` (nats per
        held-out row and output) and `seconds`.

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
    model._gp.need_gaussian("quality_by_size")
    rows = _known_rows(model, X, y, sample_weight, noise_variance)
    if held_out is None:
        held = round(HELD_OUT * len(rows.x))
        if not 1 <= held < len(rows.x):
            raise InvalidInputError(
                f"The last fifth of the rows is scored, which needs at least 3 rows; got {len(rows.x)}. Give held_out."
            )
        rows, scored = rows.take(slice(-held)), rows.take(slice(-held, None))
    else:
        scored = _known_rows(model, *held_out, None, None)
    gp = model._gp
    source, log_slopes = in_units_of_model(gp, _regular(gp, merge_copies(rows)))
    seed, size_now = check_seed(model.random_state).randint(2**31), len(gp.model.X_c)
    # Also at the present size: the fit may have seen the rows that are now held out.
    present = coresets.grow_model(gp.model, source, size_now, np.random.default_rng(seed))
    log_scale = float(np.log(gp.scaling.y_scale).sum()) - log_slopes / source.total_weight
    if sizes is None:  # powers of two that the rows suffice for
        most = min(2 * size_now, max(size_now, source.num_rows))
        sizes = [2**power for power in range(most.bit_length())]
    found = []
    for size in sorted({check_size("each of sizes", size) for size in sizes}):
        start = time.perf_counter()
        if size <= size_now:
            resized, loss = coresets.prune_model(present.model, present.statistics, size=size)
            bound = present.bound - loss
        else:
            resized = coresets.grow_model(present.model, source, size, np.random.default_rng(seed))
            bound = resized.bound
        seconds = time.perf_counter() - start
        predicted = Predictive.at(gp.with_model(resized.model, None, resized.statistics), scored.x)
        rmse = metrics.rmse(scored.y.ravel(), predicted.moments.mean.ravel())
        density = float(predicted.log_density(scored.y).mean())
        found.append((len(resized.model.X_c), bound / source.total_weight - log_scale, rmse, density, seconds))
    names = ("size", "bound_per_row", "rmse", "mean_log_likelihood", "seconds")
    return {name: np.array(column) for name, column in zip(names, zip(*found, strict=True), strict=True)}
