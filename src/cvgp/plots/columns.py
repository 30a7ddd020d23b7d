"""The columns of a model's table, and the features that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cvgp.data.columns import feature_slices
from cvgp.data.schema import Schema
from cvgp.errors import InvalidInputError
from cvgp.estimators.frames import feature_names, schema_of

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor


class TableColumn(NamedTuple):
    """A column: its first feature is what it is drawn by, unless it has one feature per category."""

    name: str
    features: slice
    categories: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """Of dates: what becomes a feature."""


def stored_schema(model: CVGPRegressor) -> Schema | None:
    """The schema of the table that a model was fitted to; None for a model whose columns have no names."""
    return schema_of(model)


def _table_columns(model: CVGPRegressor) -> list[TableColumn]:
    """The columns of the table that the model was fitted to, or its features where it knows no table."""
    schema = stored_schema(model)
    if schema is None:
        return [TableColumn(name, slice(d, d + 1)) for d, name in enumerate(feature_names(model))]
    own = feature_slices(schema.columns)
    return [
        TableColumn(c.name, at, c.categories if c.kind == "categorical" else (), c.parts)
        for c, at in zip(schema.columns, own, strict=True)
    ]


def find_column(model: CVGPRegressor, wanted: str | int) -> TableColumn:
    """A column by name or position."""
    columns = _table_columns(model)
    names = [column.name for column in columns]
    if isinstance(wanted, str) and wanted in names:
        return columns[names.index(wanted)]
    if isinstance(wanted, int) and 0 <= wanted < len(columns):
        return columns[wanted]
    raise InvalidInputError(f"There is no column {wanted!r}; choose from {names}, or a position from 0 on.")


def columns_by_importance(model: CVGPRegressor) -> list[str]:
    """Return the names of the columns, the most important first, without those that were constant in the fit.

    The importance of a text column is that of its most important category.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.

    Returns
    -------
    list of str
        In the table's order if the kernel has no single set of lengthscales.

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
    columns = [column for column in _table_columns(model) if varies[column.features].any()]
    importance = model.feature_importances_
    if importance is None:
        return [column.name for column in columns]
    largest = [importance[column.features].max() for column in columns]
    return [columns[i].name for i in np.argsort(largest)[::-1]]


def target_name(model: CVGPRegressor) -> str:
    """The name of what is predicted."""
    schema = stored_schema(model)
    return "y" if schema is None else ", ".join(schema.targets)
