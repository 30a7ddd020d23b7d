"""The numbers behind a report: what a model predicts for some rows, how good that is, and what to be careful about."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cvgp import metrics
from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, optional_packages
from cvgp.estimators.display import shortened, training_advice
from cvgp.estimators.frames import is_in_files, schema_of, user_columns, without_column
from cvgp.estimators.inputs import check_exposure, check_prediction, observed_rows
from cvgp.estimators.predictive import Predictive, scores_of_model, scores_of_normal
from cvgp.estimators.training_summary import Baselines, FeatureQuantiles
from cvgp.plots.drawing import UNUSED, expected_name, ranked_columns, some_rows
from cvgp.runtime import sklearn_alone
from cvgp.tables.columns import named
from cvgp.tables.encode import Inputs

if TYPE_CHECKING:
    from cvgp.estimators.classifier import CVGPClassifier

Scores = dict[str, dict[str, float]]  # by the name of the model
SIMPLE_MODELS = {"constant": "A constant has", "frequencies": "The class frequencies have"}
SIMPLE_MODELS |= {"linear": "A linear model has", "boosting": "Gradient boosting has"}
FEWEST_TO_BOOST, MOST_TO_BOOST = 20, 20_000  # training rows that gradient boosting needs, and uses


class Facts:
    """Rows and what a model predicts for one of its outputs there; arguments as in `CVGPRegressor.report`."""

    def __init__(
        self, model: Any, X: Any, y: Any, train: tuple[Any, Any] | None, output: int, exposure: Any = None
    ) -> None:
        self.model, self.gp = model, model._gp
        num_outputs = len(self.gp.scaling.y_mean)
        if not isinstance(output, int | np.integer) or not 0 <= output < num_outputs:
            raise InvalidInputError(f"output must be one of the model's {num_outputs}, from 0 on; got {output!r}.")
        inputs, self.y, self.exposure = _rows(model, X, y, exposure)  # y is [n, Q]
        self.is_discrete = bool(getattr(self.gp.likelihood, "is_discrete", False))
        self.x, self.output = _plain(inputs), int(output)
        self.is_train_given = train is not None
        held = None if self.gp.kept is None else self.gp.in_user_units(self.gp.kept.rows)
        self.train = held and (held.x, held.y)
        if train is not None:
            train_inputs, train_y, _ = _rows(model, *train)
            self.train = _plain(train_inputs), train_y
        schema = schema_of(model)
        names = [] if schema is None else schema.targets
        self.target = names[output] if len(names) == num_outputs else "y" if num_outputs == 1 else f"y{output}"
        self.expected_target = self.target if self.gp.exposure is None else expected_name(model)

        self.varying = ranked_columns(model)
        self.columns = [*self.varying, *(column for column in user_columns(model) if column not in self.varying)]
        known = getattr(model, "_feature_quantiles", None)
        self.seen: FeatureQuantiles | None = known if self.train is None else FeatureQuantiles.learn(*self.train)
        self.observed, self.is_of_classes = self.y[:, output], hasattr(model, "classes_")
        self.scores = self._of_classes(inputs) if self.is_of_classes else self._of_numbers(inputs)

    def _of_classes(self, inputs: Array | Inputs) -> Scores:
        """Probabilities [n, K] and how often they came true, for y that are positions in `classes_`."""
        self.codes, self.p = self.observed.astype(np.int64), self.model._probabilities(inputs)
        self.reliability = metrics.reliability(self.codes, self.p)
        found = scores_of_classes(self.model, self.p, self.codes)
        if self.train is not None and len(self.train[0]) >= FEWEST_TO_BOOST:
            others = simple_classifiers(self.train[0], self.train[1][:, 0].astype(np.int64), self.x, self.p.shape[1])
            found |= {name: metrics.class_scores(self.codes, p) for name, p in others.items()}
        return found

    def _of_numbers(self, inputs: Array | Inputs) -> Scores:
        """Means and standard deviations, and the scores of the model and of simple ones that could be trained."""
        self.predictive = Predictive.at(self.gp, inputs, self.exposure)
        moments = self.predictive.moments
        self.mean = np.asarray(moments.mean[:, self.output])
        self.sd = np.sqrt(moments.variance[:, self.output])
        self.noise_sd = np.sqrt(np.broadcast_to(moments.noise_variance, self.y.shape)[:, self.output])
        found = {"cvgp": scores_of_model(self.predictive, self.y, self.output)}
        if self.exposure is not None:
            return found  # the simple models know nothing of exposures
        if self.train is not None and self.is_train_given and len(self.train[0]) >= FEWEST_TO_BOOST:
            trees = boosted(self.train[0], self.train[1][:, self.output], self.x)
            found["boosting"] = scores_of_normal(self.observed, *trees)
        simple = getattr(self.model, "_baselines", None)
        if simple is None and self.train is not None:
            simple = Baselines.learn(self.train[0], self.train[1][:, self.output])
        return found | scores_of_baselines(simple, self.x, self.observed)

    def quantiles(self, levels: Array) -> Array:
        """Quantiles of observations [n, L]."""
        return self.predictive.quantiles(levels)[:, self.output]


def scores_of_baselines(simple: Baselines | None, x: Array, y: Array) -> Scores:
    """Scores of the line and of the constant for rows x [n, D] and y [n]."""
    if simple is None:
        return {}
    return {
        "linear": scores_of_normal(y, *simple.linear(x)),
        "constant": scores_of_normal(y, *simple.constant(len(y))),
    }


def scores_of_classes(model: CVGPClassifier, p: Array, codes: ArrayLike) -> Scores:
    """Scores of probabilities [n, K], and of the shares of the classes in the training rows."""
    shares = np.tile(model.class_prior_, (len(p), 1))
    return {"cvgp": metrics.class_scores(codes, p), "frequencies": metrics.class_scores(codes, shares)}


def boosted(x: Array, y: Array, new: Array) -> tuple[Array, Array]:
    """Predictions of scikit-learn's histogram gradient boosting for new rows; a fifth of the rows gives their sd."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a while to import

    order = np.random.default_rng(0).permutation(len(x))[:MOST_TO_BOOST]
    held, others = np.split(order, [len(order) // 5])
    # scikit-learn sums gradients in float32.
    center, scale = y.mean(), float(y.std()) or 1.0
    z = (y - center) / scale
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    with sklearn_alone():
        sd = float(np.sqrt(np.mean((z[held] - trees.fit(x[others], z[others]).predict(x[held])) ** 2)))
        mean = trees.fit(x[order], z[order]).predict(new)
    return center + scale * mean, np.full(len(new), scale * max(sd, 1e-6))


def simple_classifiers(x: Array, codes: NDArray[np.int64], new: Array, num_classes: int) -> dict[str, Array]:
    """Probabilities [n, K] by gradient boosting and by logistic regression for new rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # takes a while to import
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    order, found = np.random.default_rng(0).permutation(len(x))[:MOST_TO_BOOST], {}
    trees = HistGradientBoostingClassifier(random_state=0, early_stopping=False)
    others = {"boosting": trees, "linear": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))}
    for name, other in others.items():
        with sklearn_alone():
            other.fit(x[order], codes[order])
            found[name] = np.zeros((len(new), num_classes))
            found[name][:, other.classes_] = other.predict_proba(new)
    return found


def _rows(model: Any, X: Any, y: Any, exposure: Any = None) -> tuple[Array | Inputs, Array, Any]:
    """Inputs, observations [n, Q] and exposures from arrays, or from a table that has them under their names."""
    if hasattr(model, "classes_"):
        X, y = without_column(X, y, "y") if isinstance(y, str) else (X, y)
        return check_prediction(model, X), model._codes(y)[:, None].astype(np.float64), None
    names = [y] if isinstance(y, str) else y if isinstance(y, list | tuple) and y and isinstance(y[0], str) else None
    if names is None and not is_in_files(X):
        inputs, exposure = model._inputs(X, exposure)
        shape = (len(inputs),) if np.ndim(y) < 2 else (len(inputs), len(model._gp.scaling.y_mean))
        return observed_rows(inputs, y, shape, exposure)
    schema = schema_of(model)
    if schema is None:
        raise InvalidInputError(
            "The model was fitted to an array whose columns have no names, so it cannot read a table; give X and y as "
            "arrays."
        )
    if names is not None and list(names) != list(schema.targets):
        raise InvalidInputError(f"The model predicts {list(schema.targets)}; got y={names!r}.")
    with optional_packages():
        from cvgp.tables.apply import load_rows
    column = exposure or model._gp.exposure
    if not isinstance(column, str) or not column:
        return *load_rows(X, schema), exposure
    inputs, found = load_rows(X, replace(schema, target=(*schema.targets, column)))
    return inputs, found[:, :-1], check_exposure(found[:, -1], len(found))


def _plain(inputs: Array | Inputs) -> Array:
    return inputs.x if isinstance(inputs, Inputs) else inputs


def cautions(facts: Facts) -> list[str]:
    """Everything to be careful about, in plain words."""
    return [*_about_the_model(facts), *_about_the_rows(facts), *_about_the_scores(facts)]


def _about_the_model(facts: Facts) -> list[str]:
    model, own, found = facts.model, facts.gp.model, list[str]()
    if advice := training_advice(model):
        found.append(f"{advice[0].upper()}{advice[1:]}.")
    if facts.is_of_classes or facts.gp.likelihood is not None:
        return found
    if own.noise.item() <= 2.0 * float(own.likelihood.noise_covar.raw_noise_constraint.lower_bound):
        found.append(
            "The noise is at its floor: the model takes the observations as exact. Duplicated rows, or a target that "
            "is a function of the columns, can cause this; check that no column gives the target away."
        )
    beta = model.coreset_.beta
    unused = int((beta < UNUSED * beta.mean()).sum())
    if unused:
        found.append(f"{unused} of {len(beta)} pseudo-points have next to no weight; prune() drops them.")
    if model.outlier_share_ > 0:
        found.append(f"{model.outlier_share_:.1%} of the training rows were gross outliers and hardly count.")
    return found


def _about_the_rows(facts: Facts) -> list[str]:
    found = list[str]()
    if (same := _share_of_known(facts)) > 0.2:
        found.append(f"{same:.0%} of these rows are training rows, so the scores are better than on new rows.")
    seen = facts.seen
    if seen is None:
        return [*found, "The model does not know the range of its training rows, so drift was not looked for."]
    drift = seen.drift(facts.x, facts.observed, facts.columns, facts.gp.scaling, facts.output)
    if drift.outside:
        rows = {name: "1 row" if count == 1 else f"{count} rows" for name, count in drift.outside.items()}
        found.append(
            f"Some inputs are outside the range of the training rows: {_listed(rows)}. Predictions there tend to the "
            "mean of the target, with wide intervals."
        )
    if drift.shares:
        shares = {name: f"{share:.0%}" for name, share in drift.shares.items()}
        found.append(
            f"These rows differ from the training rows in the distribution of {_listed(shares)}: some share of rows "
            "differs by this much, and not by chance. Scores on such rows say little about others."
        )
    if drift.target is not None:
        found.append(
            f"The target is distributed differently than in the training rows: some share of the rows differs by "
            f"{drift.target:.0%}, and not by chance."
        )
    return found


def _about_the_scores(facts: Facts) -> list[str]:
    own, found = facts.scores["cvgp"], list[str]()
    score, label = ("log_loss", "log loss") if facts.is_of_classes else ("rmse", "RMSE")
    for name, words in SIMPLE_MODELS.items():
        if name in facts.scores and own[score] > 1.02 * facts.scores[name][score]:
            found.append(f"{words} a lower {label} on these rows than the model.")
    if facts.is_of_classes:
        probability, _, num_rows = facts.reliability
        sd = np.sqrt(probability * (1.0 - probability) / num_rows)
        chance = float(np.average(np.sqrt(2.0 / np.pi) * sd, weights=num_rows))  # of calibrated probabilities
        if (error := own["calibration_error"]) > 2.0 * chance + 0.02:
            found.append(f"Probabilities are {error:.1%} off on average; by chance they would be {chance:.1%}.")
        return found
    chance = 3.0 * np.sqrt(0.95 * 0.05 / len(facts.y))
    if abs(own["coverage_95"] - 0.95) > chance + 0.5 / len(facts.y):
        width = "narrow" if own["coverage_95"] < 0.95 else "wide"
        if width == "wide" and facts.is_discrete:
            return found  # intervals end at whole numbers
        found.append(
            f"The 95 % intervals hold {own['coverage_95']:.1%} of the observations: they are too {width} here."
        )
    return found


def _listed(found: dict[str, str]) -> str:
    return named([f"“{shortened(name)}” ({words})" for name, words in found.items()])


def _share_of_known(facts: Facts) -> float:
    if facts.train is None:
        return 0.0
    scaling, shown = facts.gp.scaling, some_rows(len(facts.x))

    def keys(x: Array, y: Array) -> set[bytes]:  # without the last digits
        return {row.tobytes() for row in np.round(np.hstack([scaling.scale_x(x), y / scaling.y_scale]), 6) + 0.0}

    wanted = keys(facts.x[shown], facts.y[shown])
    x, y = facts.train
    known = set[bytes]()
    for start in range(0, len(x), 10_000):
        part = slice(start, start + 10_000)
        known |= wanted & keys(x[part], y[part])
    return len(known) / len(wanted)
