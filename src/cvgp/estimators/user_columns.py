"""The columns that a user knows, and the features of the model that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cvgp.coreset_table import NamedColumn
from cvgp.data.columns import feature_slices
from cvgp.estimators.frames import feature_names, schema_of

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


class UserColumn(NamedTuple):
    """A column, which is one feature or several; the first one is what it is drawn by, unless it has categories."""

    name: str
    features: slice
    categories: tuple[str, ...] = ()
    """Where each of them has a feature."""
    parts: tuple[str, ...] = ()
    """Of dates: what becomes a feature."""


def user_columns(estimator: BaseEstimator) -> list[UserColumn]:
    """The columns of the table that the model was fitted to, or its features where it knows no table."""
    schema = schema_of(estimator)
    if schema is None:
        return [UserColumn(name, slice(d, d + 1)) for d, name in enumerate(feature_names(estimator))]
    own = feature_slices(schema.columns)
    return [
        UserColumn(c.name, at, c.categories if c.kind == "categorical" else (), c.parts)
        for c, at in zip(schema.columns, own, strict=True)
    ]


def named_inputs(estimator: BaseEstimator) -> list[NamedColumn]:
    """What the inputs of a coreset stand for: a column whose categories have one feature each, or a feature."""
    names, found = feature_names(estimator), list[NamedColumn]()
    for column in user_columns(estimator):
        own = names[column.features]
        is_decoded = column.categories and len(own) == len(column.categories)
        found += [NamedColumn(column.name, column.categories)] if is_decoded else [NamedColumn(name) for name in own]
    return found
