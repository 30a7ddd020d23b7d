"""CVGPClassifier: Gaussian process classification on a learned coreset, as a scikit-learn estimator."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from cvgp.coreset import Coreset, refuse_masked
from cvgp.data.rows import Rows
from cvgp.errors import InvalidInputError, InvalidTypeError, optional_packages
from cvgp.estimators import inputs
from cvgp.estimators.class_updates import ClassUpdatingMixin
from cvgp.estimators.display import PageMixin
from cvgp.estimators.explaining import ExplainMixin
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import is_in_files, target_names, without_column
from cvgp.estimators.latent import Change, check_training, fit_latent_values
from cvgp.estimators.training_summary import summarize_features
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.options import InputWarpName, TrainingOptions, WithTraining, check_choice
from cvgp.fitting.privacy import FEWEST
from cvgp.gp.likelihoods import Bernoulli, Likelihood, Probit, Softmax
from cvgp.parallel.group import Group
from cvgp.runtime import clean_torch_state, reused_memory
from cvgp.tables.columns import check_known_classes, check_number_of_classes
from cvgp.tables.encode import Inputs

Array = NDArray[np.float64]


class CVGPClassifier(WithTraining, PageMixin, ExplainMixin, ClassUpdatingMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process classification with a learned coreset, for two classes or more.

    Parameters
    ----------
    n_coreset : int or "auto"
        Number of pseudo-points M. ``auto`` is 200, or for up to 200 rows the fewest that predict unseen rows about as
        well as many.
    kernel : str, gpytorch kernel or None
        As for `CVGPRegressor`. None is ``matern32``; where rows are few for the columns, one lengthscale for all
        columns beside a linear kernel, and a linear kernel alone, are tried too, and ``matern32+matern12`` where they
        are many.
    class_weight : dict, "balanced" or None
        How often a row of each class counts.
    link : {"logit", "probit"}
        What turns the latent value of two classes into a probability: the logistic function, or the normal one.
    ard, input_warp, private, max_time, n_jobs, device, random_state, verbose : as for `CVGPRegressor`
    training : TrainingOptions or None
        Its `checkpoint_dir`, `callbacks` and `heuristics`; the other options are for `CVGPRegressor`.

    Attributes
    ----------
    classes_ : ndarray
        The labels, in the order of the columns of `predict_proba`.
    class_prior_ : ndarray
        The share of each class in the training rows, by their sample weights.
    elbo_ : float
        Lower bound on log p(y) in nats.
    left_out_log_loss_ : float
        Mean negative log-probability of the classes of up to 20,000 training rows, each predicted without itself, or
        without its group.
    decisions_, schema_, n_bad_rows_, history_, n_iter_, converged_, n_rows_ : as for `CVGPRegressor`
        `n_iter_` counts evaluations of the bound, and `history_` has an entry for each round of them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cvgp import CVGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CVGPClassifier(n_coreset=20, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).round(1)
    array([[1., 0., 0.]])
    """

    def __init__(
        self,
        n_coreset: int | Literal["auto"] = "auto",
        *,
        kernel: str | Kernel | None = None,
        ard: bool = True,
        input_warp: InputWarpName = "auto",
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        link: Literal["logit", "probit"] = "logit",
        private: bool = False,
        max_time: float | None = None,
        n_jobs: int | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: int = 0,
        training: TrainingOptions | None = None,
    ) -> None:
        self.n_coreset = n_coreset
        self.kernel = kernel
        self.ard = ard
        self.input_warp = input_warp
        self.class_weight = class_weight
        self.link = link
        self.private = private
        self.max_time = max_time
        self.n_jobs = n_jobs
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.training = training

    schema_: dict[str, Any]
    _gps: list[FittedGP]  # one for each latent value

    @clean_torch_state()
    @reused_memory()
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | str | None = None,
        *,
        groups: ArrayLike | str | None = None,
        decisions: Decisions | Mapping[str, Choice] | None = None,
        geo: Sequence[str] | None = None,
        time: ArrayLike | str | None = None,
    ) -> "CVGPClassifier":
        """Learn coreset and kernel from rows and their classes.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features), or a table in files
            A frame may hold text, dates and missing values. Tables in files are as for `CVGPRegressor.fit`.
        y : array-like of shape (n_samples,), or the name of a column
            Labels of any kind, of at least two classes; None if `read_table` has named their column.
        sample_weight : array-like of shape (n_samples,), or the name of a column of files, optional
            A weight of 100 is 100 copies of a row.
        groups, decisions, geo, time : as for `CVGPRegressor.fit`
            Groups of rows that are judged without each other, decisions of an earlier fit that are taken as they are,
            columns of latitude and longitude, and the time of rows that are judged by earlier ones.

        Returns
        -------
        CVGPClassifier
            The estimator itself, fitted.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPClassifier
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPClassifier(n_coreset=8, random_state=0).fit(X, np.where(X[:, 0] > 3, "high", "low"))
        >>> model.classes_.tolist()
        ['high', 'low']
        """
        return self._learn(X, y, sample_weight, groups=groups, decisions=decisions, geo=geo, time=time)

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        classes: ArrayLike | None = None,
        groups: Any = None,
        decisions: Decisions | Mapping[str, Choice] | None = None,
        **named: Any,
    ) -> "CVGPClassifier":
        """Fit the model, to some of the given classes if they are given."""
        check_choice("link", self.link, ("logit", "probit"))
        options = replace(inputs.model_options(self, "auto"), noise="constant")
        target, training = None, self._training_options()
        check_training(training, "a classifier")
        if is_in_files(X):
            with optional_packages():
                from cvgp.tables.classes import with_classes
            X = with_classes(X, y, sample_weight=sample_weight, groups=groups, **named)
            self.classes_, name, weight = np.array(X.classes), X.label, None
        else:
            name = y if isinstance(y, str) else None
            X, y = (X, y) if name is None else without_column(X, name, "y")
            X, groups = (X, groups) if not isinstance(groups, str) else without_column(X, groups, "groups")
            found, codes = self._coded(y)
            self.classes_ = found if classes is None else self._coded(classes)[0]
            codes = codes if classes is None else self._codes(found)[codes]
            # One target for each class, so that each level of a text column has an effect on each class.
            target = codes.astype(np.float64) if len(self.classes_) <= 2 else np.eye(len(self.classes_))[codes]
            target[codes < 0] = np.nan
            with inputs.errors_of_cvgp():
                weight = None if sample_weight is None else inputs.check_weight(sample_weight, len(codes))
        own = self._observed, self._looked_at, options, training
        given, named = {"x": X, "y": target, "sample_weight": weight}, named | {"groups": groups}
        likelihood = self._begin_likelihood()
        self._gps, density, rows = fit_latent_values(self, likelihood, given, *own, **named, decisions=decisions)
        self.left_out_log_loss_ = -density
        if hasattr(self, "schema_"):
            columns = [column["name"] for column in self.schema_["columns"]]
            name = target_names(y, columns)[0] if name is None else name
            self.schema_ = self.schema_ | {"target": name}
        summarize_features(self, rows.x, rows.y, rows.sample_weight)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of each class.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPClassifier
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPClassifier(n_coreset=8, random_state=0).fit(X, np.where(X[:, 0] > 3, "high", "low"))
        >>> model.predict_proba([[5.0]]).round(1).tolist()
        [[1.0, 0.0]]
        """
        check_is_fitted(self)
        return self._probabilities(inputs.check_prediction(self, X))

    def _probabilities(self, x: Array | Inputs) -> Array:
        found = [gp.mean_and_variance(x) for gp in self._gps]
        f_mean, f_var = (torch.as_tensor(np.hstack(values)) for values in zip(*found, strict=True))
        p = self._likelihood.probabilities(f_mean, f_var.clamp_min(0.0))
        found_p: Array = (p / p.sum(1, keepdim=True)).numpy()
        return found_p

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples,)

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPClassifier
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPClassifier(n_coreset=8, random_state=0).fit(X, np.where(X[:, 0] > 3, "high", "low"))
        >>> model.predict([[1.0], [5.0]]).tolist()
        ['low', 'high']
        """
        check_is_fitted(self)
        chosen: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return chosen

    def decision_function(self, X: Any) -> Array:
        """Return log-odds of the second class, or log-probabilities of several classes.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPClassifier
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPClassifier(n_coreset=8, random_state=0).fit(X, np.where(X[:, 0] > 3, "high", "low"))
        >>> (model.decision_function([[1.0], [5.0]]) > 0).tolist()  # of 'low'
        [True, False]
        """
        log_p = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        return log_p[:, 1] - log_p[:, 0] if len(self.classes_) == 2 else log_p

    @property
    def _gp(self) -> FittedGP:  # type: ignore[override]
        """The first latent value, whose inputs are those of all."""
        return self._gps[0]

    @property
    def solver_(self) -> str:
        """How the latent values were fitted."""
        return "none" if self.decisions_.solver is None else self.decisions_.solver.taken

    @property
    def _likelihood(self) -> Any:
        return self._gp.likelihood

    @property
    def coresets_(self) -> list[Coreset]:
        """For each latent value: pseudo-inputs in the units of the data, values of f, and weights in rows.

        Two classes have one, the log-odds of the second class; several classes have one each.
        """
        return [gp.coreset for gp in self._gps]

    def _coded(self, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The classes, and which of them each row has; -1 where its label is missing."""
        labels, is_known = _labels(y)
        with inputs.errors_of_cvgp(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # many classes are refused below
            check_classification_targets(labels)
        codes = np.full(len(is_known), -1)
        classes, codes[is_known] = np.unique(labels, return_inverse=True)
        check_number_of_classes(len(classes))
        return classes, codes

    def _codes(self, y: Any) -> NDArray[np.int64]:
        """Which class each label is, of those that the model was fitted with."""
        with inputs.errors_of_cvgp():
            labels = column_or_1d(y, warn=True)
        known = {label: code for code, label in enumerate(self.classes_.tolist())}
        check_known_classes("y", labels.tolist(), known)
        return np.array([known[label] for label in labels.tolist()], dtype=np.int64)

    def _begin_likelihood(self) -> Likelihood:
        count = len(self.classes_)
        if count > 2 and self.link != "logit":
            raise InvalidInputError(f"link={self.link!r} is for two classes, and there are {count}; use link='logit'.")
        return Softmax(count) if count > 2 else Probit() if self.link == "probit" else Bernoulli()

    def _observed(self, rows: Rows[Array]) -> Rows[Array]:
        """Rows with the codes of their classes."""
        codes = rows.y[:, 0] if rows.y.shape[1] == 1 else rows.y.argmax(1).astype(np.float64)
        return rows._replace(y=codes[:, None])

    def _looked_at(self, rows: Rows[Array], group: Group) -> Change:
        """Learn the shares of the classes; the change lets rows count by the weights of their classes too."""
        codes = rows.y[:, 0].astype(np.int64)
        found = [np.bincount(codes, weight, minlength=len(self.classes_)) for weight in (None, rows.sample_weight)]
        counts, weights = (
            sums.numpy() for sums in group.sum([torch.as_tensor(part, dtype=torch.float64) for part in found])
        )
        if self.private and (rare := counts[counts > 0.0].min()) < FEWEST:
            raise InvalidInputError(
                f"private=True needs {FEWEST} rows of each class, and one has {rare:.0f}; join some."
            )
        self.class_prior_ = weights / weights.sum()
        of_class = self._weights_of_classes(counts)
        if np.count_nonzero(weights * of_class) < 2:
            raise InvalidInputError(
                f"All {counts.sum():.0f} rows have one class, and a classifier needs at least two. Rows with a weight "
                "of zero and rows that were left out do not count."
            )
        return lambda rows: self._weighted(rows, of_class)

    def _weights_of_classes(self, counts: Array) -> Array:
        """The weights of the classes, given how many rows each has."""
        if self.class_weight is None:
            return np.ones(len(counts))
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            return np.asarray(counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1.0)))
        with inputs.errors_of_cvgp():
            found: Array = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
            inputs.check_weight(found, len(found))
        return found

    def _weighted(self, rows: Rows[Array], of_class: Array | None = None) -> Rows[Array]:
        """Rows that count by the weights of their classes too."""
        if self.class_weight is None:
            return rows
        of_class = self._weights_of_classes(np.ones(len(self.classes_))) if of_class is None else of_class
        weight = of_class[rows.y[:, 0].astype(np.int64)]
        weight = weight if rows.sample_weight is None else weight * rows.sample_weight
        return rows._replace(sample_weight=weight).take(weight > 0.0)


def _labels(y: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels that are known, as an array of their own type, and which rows [n] have one."""
    refuse_masked("y", y)
    is_list = isinstance(y, list | tuple)
    values = y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
    if is_list or not isinstance(getattr(values, "dtype", None), np.dtype | None):
        # Otherwise a missing label may become text, or change the type of the others.
        values = np.array(values, dtype=object)
    with inputs.errors_of_cvgp():
        values = column_or_1d(values, warn=True)
        if values.dtype.kind in "mM":
            raise InvalidTypeError("y holds dates or times, and classes are text, numbers, or true and false.")
        is_known = np.array([_is_known(value) for value in values.tolist()], dtype=np.bool_)
        labels = values[is_known]
        is_text = [isinstance(value, str) for value in labels.tolist()]
        if labels.dtype != object or (all(is_text) and not is_list):
            return labels, is_known
        if any(is_text) and not all(is_text):
            kinds = ", ".join(sorted({type(value).__name__ for value in labels}))
            raise InvalidTypeError(f"y has labels of several types ({kinds}); give all of them as text, or as numbers.")
        return np.array(labels.tolist()), is_known  # scikit-learn does not look into objects


def _is_known(label: Any) -> bool:
    """Whether a label is neither None nor NaN, which is not equal to itself, nor pandas' NA, of which that is open."""
    equal = label == label
    return label is not None and isinstance(equal, bool | np.bool_) and bool(equal)
