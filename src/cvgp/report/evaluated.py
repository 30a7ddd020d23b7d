"""The rows that a report is about, what the model says of them, and the rows of its fit where they are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cvgp.data.rows import Array
from cvgp.data.uncertain import Inputs
from cvgp.errors import InvalidInputError
from cvgp.estimators.boosted_trees import BoostedTrees
from cvgp.estimators.columns_seen import ColumnsSeen
from cvgp.estimators.frames import is_frame, schema_of
from cvgp.estimators.inputs import check_observed, check_prediction
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.simple_models import Baselines
from cvgp.estimators.table_options import is_in_files
from cvgp.estimators.user_columns import UserColumn, user_columns
from cvgp.extras import optional_packages
from cvgp.plots.columns import as_date, is_date, most_important
from cvgp.report.markup import number

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor


@dataclass
class Evaluated:
    """Rows, and predictions of them.

    Parameters
    ----------
    model
        Fitted.
    inputs
        As the model takes them: features [n, D], with what is not known of them.
    y
        Observations [n, Q].
    output
        The output that the page is about.
    train
        Features and outputs of the fit [N, D] and [N, Q], where they are known.
    """

    model: CVGPRegressor
    inputs: Array | Inputs
    y: Array
    output: int = 0
    train: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, model: CVGPRegressor, X: Any, y: Any, train: tuple[Any, Any] | None, output: int) -> Evaluated:
        """Rows as a user gives them."""
        num_outputs = len(model.gp_.scaling.y_mean)
        if not isinstance(output, int | np.integer) or not 0 <= output < num_outputs:
            raise InvalidInputError(f"output must be one of the model's {num_outputs}, from 0 on; got {output!r}.")
        inputs, observed = _rows(model, X, y)
        known = None if train is None else _rows(model, *train)
        held = _held_rows(model) if known is None else (_plain(known[0]), known[1])
        return cls(model, inputs, observed, int(output), held)

    @property
    def x(self) -> Array:
        """Features [n, D]; of cells that are not known, the means."""
        return _plain(self.inputs)

    @property
    def observed(self) -> Array:
        """Observations of the output [n]."""
        return self.y[:, self.output]

    @cached_property
    def found(self) -> Predictive:
        """The distribution of observations at the rows."""
        return Predictive.at(self.model.gp_, self.inputs)

    @cached_property
    def mean(self) -> Array:
        """Predicted means of the output [n]."""
        return np.asarray(self.found.moments.mean[:, self.output])

    @cached_property
    def sd(self) -> Array:
        """Predicted standard deviations of observations [n]."""
        return np.sqrt(self.found.moments.variance[:, self.output])

    @cached_property
    def noise_sd(self) -> Array:
        """The part of it that is noise [n]."""
        noise = np.broadcast_to(self.found.moments.noise_variance, self.y.shape)
        return np.sqrt(noise[:, self.output])

    def quantiles(self, levels: Array) -> Array:
        """Quantiles of observations [n, L]."""
        return self.found.quantiles(levels)[:, self.output]

    @property
    def target(self) -> str:
        """The name of the output."""
        schema = schema_of(self.model)
        if schema is not None and len(schema.targets) == self.y.shape[1]:
            return schema.targets[self.output]
        return "y" if self.y.shape[1] == 1 else f"y{self.output}"

    @cached_property
    def columns(self) -> list[UserColumn]:
        """The columns of the user's table, the most important first, and those that were constant last."""
        every = user_columns(self.model)
        ranked = most_important(self.model, len(every))
        return [*ranked, *(column for column in every if column not in ranked)]

    @cached_property
    def seen(self) -> ColumnsSeen | None:
        """The distribution of columns in the fit; of the rows that are known, or else what the model remembers."""
        if self.train is not None:
            return ColumnsSeen.learn(*self.train)
        stored = getattr(self.model, "columns_seen_", None)
        return None if stored is None else ColumnsSeen.from_json(stored, self.x.shape[1], self.y.shape[1])

    @cached_property
    def baselines(self) -> Baselines | None:
        """The constant and the line: what the fit has stored, or else learned from its rows."""
        stored = getattr(self.model, "baselines_", None)
        if stored is not None:
            return Baselines.from_json(stored, self.x.shape[1])
        return None if self.train is None else Baselines.learn(self.train[0], self.train[1][:, self.output])

    @cached_property
    def boosting(self) -> BoostedTrees | None:
        """Gradient boosting: what the fit has stored, or else learned from its rows."""
        stored: BoostedTrees | None = getattr(self.model, "boosting_", None)
        if stored is not None or self.train is None:
            return stored
        return BoostedTrees.learn(self.model.gp_.scaling.scale_x(self.train[0]), self.train[1][:, self.output])


def places(x: Array, column: UserColumn) -> Array:
    """Where rows [n, D] are along a column: the number of the nearest category, or the first feature."""
    own = x[:, column.features]
    return own[:, : len(column.categories)].argmax(axis=1).astype(np.float64) if column.categories else own[:, 0]


def shown_place(column: UserColumn) -> Callable[[float], str]:
    """How a place along a column is written: a category, a date or a number."""
    if column.categories:
        return lambda place: column.categories[int(place)]
    if is_date(column):
        return as_date
    return number


def is_level(model: CVGPRegressor, column: UserColumn) -> bool:
    """Whether a column is text of so many levels that only their effects are known."""
    schema = schema_of(model)
    return schema is not None and any(own.name == column.name and own.kind == "levels" for own in schema.columns)


def _rows(model: CVGPRegressor, X: Any, y: Any) -> tuple[Array | Inputs, Array]:
    names = [y] if isinstance(y, str) else y if isinstance(y, list | tuple) and y and isinstance(y[0], str) else None
    if names is not None or is_in_files(X):
        return _named_rows(model, X, names)
    inputs = check_prediction(model, X)
    shape = (len(inputs),) if np.ndim(y) < 2 else (len(inputs), len(model.gp_.scaling.y_mean))
    return inputs, check_observed(y, shape).reshape(len(inputs), -1)


def _named_rows(model: CVGPRegressor, X: Any, names: Any) -> tuple[Inputs, Array]:
    """Rows of a table that has the outputs under their names."""
    schema = schema_of(model)
    if schema is None:
        raise InvalidInputError(
            "The model was fitted to an array whose columns have no names, so it cannot read a table; give X and y as "
            "arrays."
        )
    if names is not None and list(names) != list(schema.targets):
        raise InvalidInputError(f"The model predicts {list(schema.targets)}; got y={names!r}.")
    with optional_packages():
        from cvgp.data.tables.by_schema import load_rows
        from cvgp.data.tables.in_memory import dataset_of
    return load_rows(dataset_of(X) if is_frame(X) else X, schema)


def _held_rows(model: CVGPRegressor) -> tuple[Array, Array] | None:
    """The rows of the fit that a model with neighbours holds."""
    gp = model.gp_
    if gp.local is None:
        return None
    rows = gp.local.kept.rows
    y = rows.y.cpu().numpy().reshape(len(rows.x), -1)
    return gp.scaling.unscale_x(rows.x.cpu().numpy()), gp.target.invert(gp.scaling.unscale_y(y))


def _plain(inputs: Array | Inputs) -> Array:
    return inputs.x if isinstance(inputs, Inputs) else inputs
