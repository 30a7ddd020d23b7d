"""The columns that a user knows, and the features of the model that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cvgp.data.schema import Schema, feature_slices
from cvgp.errors import FileFormatError

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


class UserColumn(NamedTuple):
    """A column of numbers, which is one feature, or of text, which is one feature per category."""

    name: str
    features: slice
    categories: tuple[str, ...] = ()


def user_columns(estimator: BaseEstimator) -> list[UserColumn]:
    """The columns of the table that the model was fitted to, or its features where it knows no table."""
    schema = stored_schema(estimator)
    if schema is None:
        return [UserColumn(name, slice(d, d + 1)) for d, name in enumerate(feature_names(estimator))]
    own = feature_slices(schema.columns)
    return [UserColumn(c.name, features, c.categories) for c, features in zip(schema.columns, own, strict=True)]


def stored_schema(estimator: BaseEstimator) -> Schema | None:
    """The schema that a fit to a table keeps with a model; None for a model that knows no table."""
    stored = getattr(estimator, "schema_", None)
    if stored is None:
        return None
    schema = Schema.from_json(stored)
    if list(schema.feature_names) != feature_names(estimator):
        raise FileFormatError("The model's schema names other features than the model has; the file is damaged.")
    return schema


def feature_names(estimator: BaseEstimator) -> list[str]:
    """The names of the features, x0, x1, ... where they have none."""
    known = getattr(estimator, "feature_names_in_", None)
    return [f"x{d}" for d in range(estimator.n_features_in_)] if known is None else [str(name) for name in known]
