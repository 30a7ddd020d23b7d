"""How a fitted estimator shows itself: in a notebook, and as a page of its own.

The page knows estimators, so no estimator can import it: it is found by its name when it is asked for.
"""

from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp.estimators.units import ScaledGP
from cvgp.estimators.user_columns import user_columns
from cvgp.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_COLUMNS = 5


class ShowingMixin(BaseEstimator):  # type: ignore[misc]
    """What shows an estimator whose fit leaves a `ScaledGP` in `gp_`."""

    gp_: ScaledGP

    def report(self, X: Any, y: Any, *, train: tuple[Any, Any] | None = None, output: int = 0) -> Any:
        """Return a page about the fitted model and its predictions of some rows, best of rows that it has not seen.

        The page has scores beside those of simple models, calibration, errors and noise by column, the coreset, the
        relevance of columns and what each does, what single predictions rest on, the course of training, and warnings.
        A notebook shows it. It is one file of HTML that needs no network.

        Parameters
        ----------
        X : array-like, DataFrame or a table in files
            Rows to predict, with the columns of the fit.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), or the name of a column
            Their outputs; with a table the name of the column, or the list of names, as for `fit`.
        train : (X, y), optional
            The rows of the fit, in the same forms. They show how many rows the model has seen before. Models to compare
            with are learned from them only if the fit has stored none. A model that consults neighbours holds its rows.
        output : int
            Which output the page is about, where there are several.

        Returns
        -------
        cvgp.report.Report
            With `save(path)`, `html`, `scores` and `warnings`.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If the rows cannot be used, have other columns or outputs than those of the fit, or there is no such output.
        InvalidTypeError
            If X or y holds no numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 6, (60, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X[:40], y[:40])
        >>> report = model.report(X[40:], y[40:])
        >>> report.scores["cvgp"]["rmse"] < report.scores["constant"]["rmse"]
        True
        """
        check_is_fitted(self)
        return import_module("cvgp.report").make_report(self, X, y, train=train, output=output)

    @property
    def _repr_html_(self) -> "Callable[[], str]":
        diagram = super()._repr_html_  # none, where scikit-learn is set to show text
        return lambda: diagram() + self._facts_as_html()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._facts_as_html()
        return bundle

    def _facts_as_html(self) -> str:
        """A short table of what was fitted; nothing before the fit."""
        if not hasattr(self, "gp_"):
            return ""
        rows = "".join(
            f"<tr><th scope='row'>{k}</th><td>{escape(printable(v))}</td></tr>" for k, v in _facts(self).items()
        )
        return f"<table>{rows}</table>"


def _facts(model: Any) -> dict[str, str]:
    coreset = model.coreset_
    noise = ", ".join(f"{sd:.4g}" for sd in np.sqrt(np.atleast_1d(model.noise_variance_)))
    facts = {
        "coreset": f"{len(coreset)} points for {model.n_rows_:.0f} rows (effective size {coreset.effective_size:.0f})",
        "kernel": model.kernel_name_,
        "neighbours": f"{model.n_neighbors_} nearest rows per prediction" if model.n_neighbors_ else "none",
        "noise sd": noise + (" as a constant; it depends on x" if model.noise_ == "input-dependent" else ""),
        "bound": f"{model.elbo_ / model.n_rows_:.4f} nats per row",
        "solver": f"{model.solver_}, {model.n_iter_} iterations, {'' if model.converged_ else 'not '}converged",
    }
    known = model.gp_.indices_of_fit or model.gp_.indices_of_held_rows
    if known is not None:  # where they are not known, they take a while
        names = [column.name for column in user_columns(model)]
        ranked = np.argsort(-known.total)[:MOST_COLUMNS]
        facts["relevance"] = ", ".join(f"{names[j]} {known.total[j]:.2f}" for j in ranked)
    return facts
