"""A fitted estimator elsewhere: in a notebook, as a page of its own, and as a model of another library.

Report and adapters import estimators, so they are imported here by name, when they are asked for.
"""

from html import escape
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp.errors import optional_packages, printable
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import user_columns

MOST_COLUMNS = 5


class DisplayMixin(BaseEstimator):  # type: ignore[misc]
    """Pages, tables and models of other libraries, for an estimator whose fit leaves a `FittedGP` in `_gp`."""

    _gp: FittedGP

    def report(self, X: Any, y: Any, *, train: tuple[Any, Any] | None = None, output: int = 0) -> Any:
        """Return a page about the fitted model and its predictions for some rows, which it should not have seen.

        The page has cautions, scores beside those of simple models, calibration, errors, the coreset, what each column
        does, and the decisions of the fit. It is one file of HTML that needs no network, and a notebook shows it. It
        needs ``pip install 'cvgp[plot]'``.

        Parameters
        ----------
        X : array-like, DataFrame or a table in files
            Rows to predict, with the columns of the fit.
        y : array-like, or the name of a column
            Their outputs; with a table the name of the column, or the list of names, as for `fit`.
        train : (X, y), optional
            The training rows. Gradient boosting is trained on them for comparison.
        output : int
            Which output the page is about, where there are several.

        Returns
        -------
        cvgp.report.Report
            With `save(path)`, `html`, `scores` and `cautions`.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.random.default_rng(0).uniform(0, 6, (60, 1))
        >>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X[:40], np.sin(X[:40, 0]))
        >>> report = model.report(X[40:], np.sin(X[40:, 0]))
        >>> report.scores["cvgp"]["rmse"] < report.scores["constant"]["rmse"]
        True
        """
        check_is_fitted(self)
        return import_module("cvgp.report.page").make_report(self, X, y, train=train, output=output)

    def to_botorch(self) -> Any:
        """Return the fitted coreset as a BoTorch model, which takes and gives values in the units of the data.

        It needs the extra ``botorch``.

        Returns
        -------
        cvgp.adapters.botorch.CVGPModel
            A ``botorch.models.model.Model`` in float64 and in eval mode.

        Examples
        --------
        >>> import numpy as np, torch
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> regressor = CVGPRegressor(8, noise="constant", n_neighbors=0).fit(X, np.sin(X[:, 0]))
        >>> posterior = regressor.to_botorch().posterior(torch.tensor([[1.0]], dtype=torch.float64))
        >>> bool(np.allclose(posterior.mean[:, 0].detach(), regressor.predict([[1.0]]), atol=1e-8))
        True
        """
        check_is_fitted(self)
        return _adapter("botorch").from_regressor(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] += self._facts_as_html()
        return bundle

    def _facts_as_html(self) -> str:
        """A short table of what was fitted; nothing before the fit."""
        if not hasattr(self, "_gp"):
            return ""
        rows = "".join(
            f"<tr><th scope='row'>{k}</th><td>{escape(printable(v))}</td></tr>" for k, v in model_facts(self).items()
        )
        return f"<table>{rows}</table>"


def _adapter(name: str) -> Any:
    """The module of `cvgp.adapters` for a library; one line with the pip command where that is not installed."""
    with optional_packages():
        return import_module(f"cvgp.adapters.{name}")


def model_facts(model: Any) -> dict[str, str]:
    """What was fitted, in a few words each; a notebook and the command line show it."""
    coreset = model.coreset_
    noise = ", ".join(f"{sd:.4g}" for sd in np.sqrt(np.atleast_1d(model.noise_variance_)))
    facts = {
        "coreset": f"{len(coreset)} points for {model.n_rows_:.0f} rows (effective size {coreset.effective_size:.0f})",
        "kernel": model.kernel_name_,
        "neighbors": f"{model.n_neighbors_} nearest rows per prediction; the model holds all training rows"
        if model.n_neighbors_
        else "none",
        "noise sd": noise + (" as a constant; it depends on x" if model.noise_ == "input-dependent" else ""),
        "bound": f"{model.elbo_ / model.n_rows_:.4f} nats per row",
        "solver": f"{model.solver_}, {model.n_iter_} iterations, {'' if model.converged_ else 'not '}converged",
    }
    known = model._gp.indices_of_fit or model._gp.indices_of_held_rows
    if known is not None:  # where they are not known, they take a while
        names = [column.name for column in user_columns(model)]
        ranked = np.argsort(-known.total)[:MOST_COLUMNS]
        facts["relevance"] = ", ".join(f"{names[j]} {known.total[j]:.2f}" for j in ranked)
    return facts
