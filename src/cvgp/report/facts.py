"""The numbers behind a report: the rows it is about, what the model predicts for them, and how good that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, optional_packages
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import schema_of, user_columns
from cvgp.estimators.inputs import check_observed, check_prediction
from cvgp.estimators.predictive import Predictive, scores_of_model, scores_of_normal
from cvgp.estimators.tables import is_in_files
from cvgp.estimators.training_summary import Baselines, FeatureQuantiles
from cvgp.plots.drawing import feature_quantiles, fitted_gp, most_important
from cvgp.runtime import sklearn_alone
from cvgp.tables.encode import Inputs

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

Scores = dict[str, dict[str, float]]
"""Scores by the name of the model."""
FEWEST_TO_BOOST, MOST_TO_BOOST = 20, 20_000
"""Training rows that gradient boosting needs, and uses."""


class Facts:
    """Rows and what a model predicts for one of its outputs there; arguments as in `CVGPRegressor.report`."""

    def __init__(self, model: CVGPRegressor, X: Any, y: Any, train: tuple[Any, Any] | None, output: int) -> None:
        self.model, self.gp = model, fitted_gp(model)
        num_outputs = len(self.gp.scaling.y_mean)
        if not isinstance(output, int | np.integer) or not 0 <= output < num_outputs:
            raise InvalidInputError(f"output must be one of the model's {num_outputs}, from 0 on; got {output!r}.")
        inputs, self.y = _rows(model, X, y)  # y is [n, Q]
        self.x, self.output = _plain(inputs), int(output)
        self.is_train_given = train is not None
        self.train = _held_rows(self.gp)
        if train is not None:
            train_inputs, train_y = _rows(model, *train)
            self.train = _plain(train_inputs), train_y
        schema = schema_of(model)
        names = [] if schema is None else schema.targets
        self.target = names[output] if len(names) == num_outputs else "y" if num_outputs == 1 else f"y{output}"

        self.predictive = Predictive.at(self.gp, inputs)
        moments = self.predictive.moments
        self.observed, self.mean = self.y[:, output], np.asarray(moments.mean[:, output])
        self.sd = np.sqrt(moments.variance[:, output])
        self.noise_sd = np.sqrt(np.broadcast_to(moments.noise_variance, self.y.shape)[:, output])

        # The most important columns come first, and those that were constant in the fit last.
        ranked, every = most_important(model, len(user_columns(model))), user_columns(model)
        self.columns = [*ranked, *(column for column in every if column not in ranked)]
        self.varying = [column for column in ranked if self.gp.scaling.varies[column.features].any()]
        self.seen = feature_quantiles(model) if self.train is None else FeatureQuantiles.learn(*self.train)
        self.scores = self._scores()
        own = self.gp.model
        self.noise_over_floor = own.noise.item() / float(own.likelihood.noise_covar.raw_noise_constraint.lower_bound)

    def quantiles(self, levels: Array) -> Array:
        """Quantiles of observations [n, L]."""
        return self.predictive.quantiles(levels)[:, self.output]

    def _scores(self) -> Scores:
        """Scores of the model, and of the simple models that could be trained on the training rows."""
        found = {"cvgp": scores_of_model(self.predictive, self.y, self.output)}
        if self.train is not None and self.is_train_given and len(self.train[0]) >= FEWEST_TO_BOOST:
            trees = boosted(self.train[0], self.train[1][:, self.output], self.x)
            found["boosting"] = scores_of_normal(self.observed, *trees)
        simple = getattr(self.model, "_baselines", None)
        if simple is None and self.train is not None:
            simple = Baselines.learn(self.train[0], self.train[1][:, self.output])
        if simple is not None:
            found["linear"] = scores_of_normal(self.observed, *simple.linear(self.x))
            found["constant"] = scores_of_normal(self.observed, *simple.constant(len(self.x)))
        return found


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


def _rows(model: CVGPRegressor, X: Any, y: Any) -> tuple[Array | Inputs, Array]:
    """Inputs and observations [n, Q] from arrays, or from a table that has the outputs under their names."""
    names = [y] if isinstance(y, str) else y if isinstance(y, list | tuple) and y and isinstance(y[0], str) else None
    if names is None and not is_in_files(X):
        inputs = check_prediction(model, X)
        shape = (len(inputs),) if np.ndim(y) < 2 else (len(inputs), len(fitted_gp(model).scaling.y_mean))
        return inputs, check_observed(y, shape).reshape(len(inputs), -1)
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
    return load_rows(X, schema)


def _held_rows(gp: FittedGP) -> tuple[Array, Array] | None:
    """The training rows that a model with neighbors holds."""
    if gp.kept is None:
        return None
    rows = gp.kept.rows
    y = rows.y.cpu().numpy().reshape(len(rows.x), -1)
    return gp.scaling.unscale_x(rows.x.cpu().numpy()), gp.target.invert(gp.scaling.unscale_y(y))


def _plain(inputs: Array | Inputs) -> Array:
    return inputs.x if isinstance(inputs, Inputs) else inputs
