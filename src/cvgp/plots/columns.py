"""The columns of a model's table, and the features that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError
from cvgp.estimators.frames import schema_of
from cvgp.estimators.user_columns import UserColumn, user_columns

if TYPE_CHECKING:
    from matplotlib.axis import Axis

    from cvgp.estimators.regressor import CVGPRegressor


def find_column(model: CVGPRegressor, wanted: str | int) -> UserColumn:
    """A column by name or position."""
    columns = user_columns(model)
    names = [column.name for column in columns]
    if isinstance(wanted, str) and wanted in names:
        return columns[names.index(wanted)]
    if isinstance(wanted, int) and 0 <= wanted < len(columns):
        return columns[wanted]
    raise InvalidInputError(f"There is no column {wanted!r}; choose from {names}, or a position from 0 on.")


def columns_by_importance(model: CVGPRegressor) -> list[str]:
    """Return the names of the columns, the most important first, without those that were constant in the fit.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.

    Returns
    -------
    list of str
        By `feature_importances_`.

    Raises
    ------
    FileFormatError
        If the model's schema names other features than the model has.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, plots
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(3 * X[:, 1]))
    >>> plots.columns_by_importance(model)
    ['x1', 'x0']
    """
    varies = model.gp_.scaling.varies
    ranked = sorted(zip(model.feature_importances_, user_columns(model), strict=True), key=lambda pair: -pair[0])
    return [column.name for _, column in ranked if varies[column.features].any()]


def most_important(model: CVGPRegressor, count: int) -> list[UserColumn]:
    """So many columns at most, the most important first; where none varied in the fit, the first ones."""
    return [find_column(model, name) for name in columns_by_importance(model)[:count]] or user_columns(model)[:count]


def column_places(model: CVGPRegressor, column: UserColumn) -> Array:
    """Where the coreset's points are along a column [M]: the number of the nearest category, or the first feature."""
    inputs = model.coreset_.X[:, column.features]
    return inputs[:, : len(column.categories)].argmax(axis=1).astype(np.float64) if column.categories else inputs[:, 0]


def is_date(column: UserColumn) -> bool:
    """Whether the first feature of a column is the days of a date."""
    return bool(column.parts) and column.parts[0] == "trend"


def as_date(days: float) -> str:
    """The date of a number of days since 1970."""
    return str(np.datetime64("1970-01-01") + np.timedelta64(round(days), "D"))


def write_dates(axis: Axis, column: UserColumn) -> None:
    """Write dates along an axis, where the column holds dates."""
    if is_date(column):
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        axis.set_major_locator(MaxNLocator(3))
        axis.set_major_formatter(FuncFormatter(lambda days, _: as_date(days)))


def target_name(model: CVGPRegressor) -> str:
    """The name of what is predicted."""
    schema = schema_of(model)
    return "y" if schema is None else ", ".join(schema.targets)
