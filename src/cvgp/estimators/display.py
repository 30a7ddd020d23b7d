"""A fitted estimator in a notebook, as a page of its own, and as a model of another library."""

import math
import os
from collections.abc import Iterable
from html import escape
from importlib import import_module  # of what imports estimators: files, report and adapters
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from cvgp.errors import optional_packages, printable
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import place_features, user_columns
from cvgp.gp.kernels import name_of_kernel

MOST_COLUMNS, LONGEST_NAME = 5, 40


class PageMixin(BaseEstimator):  # type: ignore[misc]
    """Files, pages and tables of an estimator whose fit leaves a `FittedGP` in `_gp`."""

    _gp: FittedGP

    @property
    def kernel_name_(self) -> str:
        """The name of the kernel that was fitted."""
        return name_of_kernel(self._gp.model.kernel)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, which `cvgp.load` opens.

        It holds arrays and JSON, and with neighbors all training rows. A kernel or mean that is an object must be given
        to `load` again; other objects, such as callbacks, an `init` or a `class_weight`, have their defaults then.

        Parameters
        ----------
        path : str or path
            An existing file is replaced.

        Examples
        --------
        >>> import cvgp, pathlib, tempfile
        >>> model = cvgp.CVGPRegressor(random_state=0).fit([[0.0], [1.0], [2.0]], [0.0, 0.8, 0.9])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(pathlib.Path(folder) / "sine.cvgp")
        """
        import_module("cvgp.estimators.persistence").save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def report(
        self, X: Any, y: Any, *, train: tuple[Any, Any] | None = None, output: int = 0, exposure: Any = None
    ) -> Any:
        """Return a page about the model and its predictions for unseen rows; it needs ``pip install 'cvgp[plot]'``.

        Parameters
        ----------
        X, y : as for `fit`
            Rows to predict and their outputs.
        train : (X, y), optional
            The training rows, to which gradient boosting is fitted for comparison, and for classes logistic
            regression.
        output : int
            Which output the page is about, where there are several.
        exposure : as for `CVGPRegressor.predict`
            For counts. Their page has no other models to compare with.

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
        page = import_module("cvgp.report.page")
        return page.make_report(self, X, y, train=train, output=output, exposure=exposure)

    def export_numpy(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model for machines that have NumPy alone.

        Beside it goes ``cvgp_predictor.py``, and for a model of a table ``cvgp_table.py``. Copy them along.

        Parameters
        ----------
        path : str or path
            A file whose name ends in ``.npz``.
        overwrite : bool
            Whether existing files may be replaced.

        Examples
        --------
        >>> import cvgp, numpy as np, pathlib, tempfile
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.export_numpy(pathlib.Path(folder) / "sine.npz")
        ...     sorted(path.name for path in pathlib.Path(folder).iterdir())
        ['cvgp_predictor.py', 'sine.npz']
        """
        import_module("cvgp.adapters.export").export_numpy(self, path, overwrite=overwrite)

    def export_onnx(
        self, path: str | os.PathLike[str], *, opset: int = 17, level: float | None = 0.9, overwrite: bool = False
    ) -> None:
        """Write the model as an ONNX graph in double precision; it needs the extra ``onnx``.

        Its input is ``x`` of shape (n, n_features). A regressor has the outputs ``mean``, ``sd``, ``lower`` and
        ``upper``, and a classifier ``probabilities``. For counts with exposures, the input ``exposure`` has the shape
        (n, 1).

        Parameters
        ----------
        path : str or path
        opset : int
            The version of the operators, at least 13.
        level : float or None
            The probability that an observation is between ``lower`` and ``upper``; None for neither of them.
        overwrite : bool
            Whether an existing file may be replaced.

        Examples
        --------
        >>> model.export_onnx("model.onnx", level=0.95)  # doctest: +SKIP
        """
        with optional_packages():
            import_module("onnx")
        export = import_module("cvgp.adapters.export")
        export.export_onnx(self, path, opset=opset, level=level, overwrite=overwrite)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return bundle | ({"text/html": self._repr_html_()} if "text/html" in bundle else {})

    def _repr_html_(self) -> str:
        """What was fitted and decided; the diagram of scikit-learn is below it, or alone before a fit."""
        diagram: str = estimator_html_repr(self)
        if not hasattr(self, "_gp"):
            return diagram
        facts = _html_table(["model", type(self).__name__], model_facts(self).items())
        choices = []
        for name, choice in getattr(self, "decisions_", ()):  # a merged model has decided nothing
            scores = ", ".join(f"{own} {score:.3f}" for own, (score, _) in choice.candidates.items())
            choices.append((name, choice.taken, choice.reason or scores))
        head = ["decision", "taken", "reason, or log-likelihood per unseen row"]
        decided = _html_table(head, choices) if choices else ""
        return f"{facts}{decided}<details><summary>Parameters</summary>{diagram}</details>"


class DisplayMixin(PageMixin):
    """The same, and models of other libraries."""

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


def _html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of lines with their names first; these are the library's own, and other cells may hold anything."""
    left = "style='text-align:left'"
    lines = [
        f"<tr><th {left}>{name}</th>"
        + "".join(f"<td {left}>{escape(printable(cell))}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    ]
    names = "".join(f"<th {left}>{name}</th>" for name in head)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def number(value: float, digits: int = 3) -> str:
    """A number as people write it: 0.0123, 12.3, 2013, 12,300; whole numbers keep all of their digits."""
    size = abs(value)
    if isinstance(value, int | np.integer) and size < 1e15:
        return f"{value:,}" if size > 9999 else str(value)
    if size == 0.0 or not 1e-4 <= size < 1e9:
        return f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    if size >= 9999.5:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    text = f"{value:.{max(0, digits - 1 - math.floor(math.log10(size)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shortened(name: str, most: int = LONGEST_NAME) -> str:
    """A name from data, not longer than there is room for."""
    return name if len(name) <= most else name[: most - 1] + "…"


def training_advice(model: Any) -> str:
    """How to train for longer, in words; empty where training ended by its own rule."""
    if model.converged_:
        return ""
    training = getattr(model, "training", None)
    given = {"max_iter": getattr(training, "max_iter", None), "max_time": model.max_time}
    limits = [name for name, value in given.items() if value is not None]
    if limits:
        return f"{' or '.join(limits)} ended the training early, and a larger value may give a better model"
    return "the last evaluations still gained a little; with max_time=SECONDS training goes on"


def _about_neighbors(model: Any) -> str:
    if model.n_neighbors_:
        return f"{model.n_neighbors_} nearest rows per prediction; the model holds all training rows"
    decisions = getattr(model, "decisions_", None)  # a merged model has none
    choice = decisions and decisions.n_neighbors
    return "none" if choice is None or not choice.reason else f"none: {choice.reason}"


def model_facts(model: Any) -> dict[str, str]:
    """What was fitted, in a few words each; a notebook and the command line show it."""
    likelihood = model._gp.likelihood
    if hasattr(model, "classes_"):
        shares = zip(model.classes_.tolist(), model.class_prior_, strict=True)
        own = {
            "coreset": f"{len(model.coresets_[0])} points for {model.n_rows_:.0f} rows",
            "kernel": model.kernel_name_,
            "classes": ", ".join(f"{label} {share:.1%}" for label, share in shares),
            "log loss": f"{model.left_out_log_loss_:.4f} nats per left-out row",
        }
    else:
        coreset = model.coreset_
        own = {
            "coreset": f"{len(coreset)} points for {model.n_rows_:.0f} rows",
            "kernel": model.kernel_name_,
            "transforms": f"target {model.target_transform_}, columns {model.input_warp_}".replace("identity", "none"),
            "neighbors": _about_neighbors(model),
        }
        if likelihood is None:
            constant = ", ".join(map(number, np.sqrt(np.atleast_1d(model.noise_variance_))))
            about = " as a constant; it depends on x" if model.noise_ == "input-dependent" else ""
            own["noise sd"] = f"{constant}{about}"
        else:
            own["likelihood"] = f"{likelihood}"
    if model.private:
        own["private"] = "no point of the coreset equals a training row"
    lengthscales = model._gp.lengthscales
    if (place := place_features(model)) and lengthscales is not None:
        own["place"] = f"lengthscale {number(float(lengthscales[place[0]]))} km"
    least = "" if model.solver_ == "exact" else "at least "
    facts = own | {
        "log-likelihood": f"{least}{number(model.elbo_ / model.n_rows_, 4)} per training row",
        "solver": f"{model.solver_}, {model.n_iter_} iterations; {training_advice(model) or 'converged'}",
    }
    known = model._gp.indices_of_fit or model._gp.indices_of_held_rows
    if known is not None:  # where they are not known, they take a while
        names = [shortened(column.name) for column in user_columns(model)]
        ranked = np.argsort(-known.total)[:MOST_COLUMNS]
        facts["importance"] = ", ".join(f"{names[j]} {known.in_words(j)}" for j in ranked if known.total[j] >= 0.005)
    return facts
