"""A fitted classifier that learns from more rows: its sites stand for the rows so far (§16). Nothing is trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Array, Rows
from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError, optional_packages
from cvgp.estimators import coresets
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import is_in_files, without_column
from cvgp.estimators.inputs import check_seed
from cvgp.estimators.updating import UNEXPLAINED, check_factor, most_points, new_rows, note_batch
from cvgp.fitting.compare import weight_of
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.latents import FIRST_STEPS, Latents, OldSites, solve_sites
from cvgp.fitting.prepare import merge_copies, scaled_rows
from cvgp.fitting.privacy import check_batch
from cvgp.gp.model import CVGP
from cvgp.parallel.group import ALONE
from cvgp.runtime import clean_torch_state


class ClassUpdatingMixin(BaseEstimator):  # type: ignore[misc]
    """Changes of a fitted classifier."""

    _gps: list[FittedGP]
    classes_: NDArray[Any]
    class_prior_: Array
    n_rows_: float
    elbo_: float
    private: bool

    @clean_torch_state()
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | str | None = None,
        *,
        adapt: bool = False,
    ) -> Self:
        """Learn from new rows too, in place, without another fit; the first call is a fit.

        Kernel and units stay. The coreset stands for all rows so far, which is an approximation, and the sites are
        solved for with the new rows beside it.

        Parameters
        ----------
        X, y, sample_weight
            New rows, as for `fit`, with the same columns and no new categories. Rows that were given before would count
            twice.
        classes : array-like, optional
            All labels that may come. The first call needs them, unless the estimator is fitted.
        adapt : bool
            Let the pseudo-inputs follow the new rows: points are added where these are poorly explained, and the least
            needed are dropped. There are never more than `n_coreset`, or as many as a fit may choose.

        Returns
        -------
        CVGPClassifier
            The estimator itself. `batch_log_densities_` has the mean log-probability of the labels of each batch before
            it was learned, of the last 1000 batches: it falls where the data drift.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPClassifier
        >>> X = np.linspace(0, 6, 60)[:, None]
        >>> y = np.where(X[:, 0] > 3, "high", "low")
        >>> model = CVGPClassifier(n_coreset=8, random_state=0)
        >>> for batch in np.arange(60).reshape(20, 3).T:
        ...     model = model.partial_fit(X[batch], y[batch], classes=["low", "high"])
        >>> model.predict([[1.0], [5.0]]).tolist()
        ['low', 'high']
        """
        if not hasattr(self, "_gps"):
            if classes is None and not is_in_files(X):
                raise InvalidInputError(
                    "The first call of partial_fit needs classes=, with all labels that may come; or fit the model "
                    "first."
                )
            return self._learn(X, y, sample_weight, classes=classes)  # type: ignore[no-any-return]
        own = self.classes_.tolist()
        if classes is not None and (named := np.unique(classes).tolist()) != own:
            raise InvalidInputError(
                f"The model knows the classes {own}, and classes={named} are others; fit it again to change them."
            )
        if isinstance(self.class_weight, str):
            raise InvalidInputError(
                "class_weight='balanced' needs all rows, and partial_fit sees some; give a dict of weights."
            )
        given = _coded_rows(self, X, y, sample_weight)
        if self.private:
            check_batch(self._gps[0].scaling, self._gps[0].model.X_c, merge_copies(given).x, adapt=adapt)
        codes = given.y[:, 0].astype(np.int64)
        p = self._probabilities(given.x)[np.arange(len(codes)), codes]
        density = np.average(np.log(np.maximum(p, np.finfo(np.float64).tiny)), weights=given.sample_weight)
        counts = np.bincount(codes, given.sample_weight, minlength=len(self.classes_))
        seen = self.n_rows_ * self.class_prior_ + counts
        rows = merge_copies(self._weighted(given))
        if len(rows.x):
            self._add(rows, adapt)
        self.class_prior_ = seen / seen.sum()
        note_batch(self, float(density))
        return self

    @clean_torch_state()
    def forget(self, factor: float) -> Self:
        """Let all rows so far count less, in place: the weights of their sites are multiplied by a factor.

        Parameters
        ----------
        factor : float
            Above 0 and at most 1. With 0.9, a row counts for a third after ten calls.

        Returns
        -------
        CVGPClassifier
            The estimator itself.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPClassifier
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPClassifier(n_coreset=8, random_state=0).fit(X, X[:, 0] > 3)
        >>> model.forget(0.5).n_rows_
        20.0
        """
        check_is_fitted(self)
        check_factor(factor)
        latents = _latents(self._gps)
        before = _bound_of_sites(latents)
        latents = _with_models(latents, [_discounted(model, factor) for model in latents.models])
        bound = factor * (self.elbo_ - before) + _bound_of_sites(latents)
        self._replace_models(latents, bound, factor * self.n_rows_)
        return self

    @torch.no_grad()
    def _add(self, rows: Rows[Array], adapt: bool) -> None:
        """Solve for the sites of new rows beside the present ones."""
        latents = _latents(self._gps)
        of_x = self._gps[0].scaling._replace(y_mean=np.zeros(1), y_scale=np.ones(1))
        source = scaled_rows(rows, of_x, latents.first.X_c.device, ALONE)
        assert isinstance(source, MemorySource), "rows in memory"
        old, before, size = OldSites.of(latents), _bound_of_sites(latents), len(latents.first.X_c)
        if adapt:
            most = max(size, most_points(self, Heuristics().largest_latent_coreset))
            points = self._points_for(latents, source, most)
            latents = _with_models(latents, [coresets.with_points(model, points) for model in latents.models])
        found = solve_sites(latents, source, steps=FIRST_STEPS, old=old)
        if adapt and len(latents.first.X_c) > most:
            heaviest = torch.stack([model.site_precision for model in latents.models]).sum(0)
            kept = coresets.most_needed(latents.first.jittered_covariance(), heaviest, most)
            latents = _with_models(latents, [coresets.with_some_points(model, kept) for model in latents.models])
            found = solve_sites(latents, source, steps=FIRST_STEPS, old=old)
        self._replace_models(latents, self.elbo_ + found.value - before, self.n_rows_ + source.total_weight)

    def _points_for(self, latents: Latents, source: MemorySource, most: int) -> Tensor:
        """New points for new rows, by the precision that these have as normal observations."""
        rows = next(iter(source.chunks(source.num_rows)))
        found = [model.posterior(rows.x) for model in latents.models]
        f_mean, f_var = (torch.stack([getattr(one, name) for one in found], 1) for name in ("mean", "variance"))
        expected = latents.likelihood.expected(rows.y, f_mean + latents.constant, f_var.clamp_min(0.0))
        precision = weight_of(rows) * expected.curvature.max(1).values
        rng = np.random.default_rng(check_seed(self.random_state).randint(2**31))
        return coresets.points_for(latents.first, rows.x, precision, source.total_weight, UNEXPLAINED, most, rng)

    def _replace_models(self, latents: Latents, bound: float, num_rows: float) -> None:
        self._gps = [gp.with_model(model) for gp, model in zip(self._gps, latents.models, strict=True)]
        self.elbo_, self.n_rows_ = bound, num_rows


def _latents(gps: list[FittedGP]) -> Latents:
    """The latent values of a fitted classifier, copied."""
    constant = torch.as_tensor(np.array([gp.scaling.y_mean[0] for gp in gps]), device=gps[0].model.X_c.device)
    assert gps[0].likelihood is not None, "classes have one"
    return Latents(tuple(gp.model for gp in gps), constant, gps[0].likelihood).copied()


def _with_models(latents: Latents, models: list[CVGP]) -> Latents:
    return latents._replace(models=tuple(models))


def _discounted(model: CVGP, factor: float) -> CVGP:
    own = model.coreset
    return model.with_coreset(Coreset(own.X, own.y, factor * own.beta))


def _bound_of_sites(latents: Latents) -> float:
    """The part of the bound that the sites have at the present posterior, without their normalizers."""
    first, none = latents.first.X_c, latents.first.y_c[:0]
    return solve_sites(latents.copied(), MemorySource(first[:0], none), steps=0, old=OldSites.of(latents)).value


def _coded_rows(estimator: Any, x: Any, y: Any, sample_weight: Any) -> Rows[Array]:
    """New rows with the positions of their labels among the classes."""
    if is_in_files(x):
        with optional_packages():
            from cvgp.tables.classes import with_codes
            from cvgp.tables.read import open_table
            from cvgp.tables.table import Table
        table = x if isinstance(x, Table) else Table(open_table(x))
        table = table.with_target(y)
        y = table.target
        if not isinstance(y, str):
            raise InvalidInputError(f"Classes are in one column; got the targets {y!r}.")
        x = replace(table, opened=with_codes(table.opened, y, estimator.classes_), _learned={})
    else:
        x, y = without_column(x, y, "y") if isinstance(y, str) else (x, y)
        y = estimator._codes(y).astype(np.float64)
    return new_rows(estimator, x, y, sample_weight)
