"""A fitted estimator in a notebook, as a page of its own, and as a model of another library."""

from html import escape
from importlib import import_module  # of report and adapters, which import estimators
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
        """Return a page about the model and its predictions for unseen rows; it needs ``pip install 'cvgp[plot]'``.

        Parameters
        ----------
        X, y : as for `fit`
            Rows to predict and their outputs.
        train : (X, y), optional
            The training rows, to which gradient boosting is fitted for comparison.
        output : int
            Which output the page is about, where there are several.

        Returns
        -------
        cvgp.report.Report
            With `save(path)`, `html`, `scores` and `cautions`; a notebook shows it.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(0, 6, (60, 1))
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X[:40], np.sin(X[:40, 0]))
        >>> report = model.report(X[40:], np.sin(X[40:, 0]))
        >>> report.scores["cvgp"]["rmse"] < report.scores["constant"]["rmse"]
        True
        """
        check_is_fitted(self)
        self._gp.need_gaussian("report")
        return import_module("cvgp.report.page").make_report(self, X, y, train=train, output=output)

    def to_botorch(self) -> Any:
        """Return the fitted coreset as a BoTorch model in the units of the data; it needs the extra ``botorch``.

        Returns
        -------
        cvgp.adapters.botorch.CVGPModel

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(8, noise="constant", n_neighbors=0).fit(X, np.sin(X[:, 0]))
        >>> model.to_botorch().num_outputs
        1
        """
        check_is_fitted(self)
        with optional_packages():
            botorch = import_module("cvgp.adapters.botorch")
        return botorch.from_regressor(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle and hasattr(self, "_gp"):
            facts = {name: escape(printable(fact)) for name, fact in model_facts(self).items()}
            rows = "".join(f"<tr><th scope='row'>{name}</th><td>{fact}</td></tr>" for name, fact in facts.items())
            bundle["text/html"] += f"<table>{rows}</table>"
        return bundle


def model_facts(model: Any) -> dict[str, str]:
    """What was fitted, in a few words each; a notebook and the command line show it."""
    coreset, likelihood = model.coreset_, model._gp.likelihood
    noise = {"likelihood": f"{likelihood}"}
    if likelihood is None:
        constant = ", ".join(f"{sd:.4g}" for sd in np.sqrt(np.atleast_1d(model.noise_variance_)))
        about = " as a constant; it depends on x" if model.noise_ == "input-dependent" else ""
        noise = {"noise sd": f"{constant}{about}"}
    facts = {
        "coreset": f"{len(coreset)} points for {model.n_rows_:.0f} rows (effective size {coreset.effective_size:.0f})",
        "kernel": model.kernel_name_,
        "neighbors": f"{model.n_neighbors_} nearest rows per prediction; the model holds all training rows"
        if model.n_neighbors_
        else "none",
        **noise,
        "bound": f"{model.elbo_ / model.n_rows_:.4f} nats per row",
        "solver": f"{model.solver_}, {model.n_iter_} iterations, {'' if model.converged_ else 'not '}converged",
    }
    known = model._gp.indices_of_fit or model._gp.indices_of_held_rows
    if known is not None:  # where they are not known, they take a while
        names = [column.name for column in user_columns(model)]
        ranked = np.argsort(-known.total)[:MOST_COLUMNS]
        facts["relevance"] = ", ".join(f"{names[j]} {known.total[j]:.2f}" for j in ranked)
    return facts
