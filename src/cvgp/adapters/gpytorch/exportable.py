"""Which regressors can become models of GPyTorch and BoTorch, whose inputs are numbers."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.estimators.frames import schema_of
from cvgp.estimators.regressor import CVGPRegressor


def check_exportable(regressor: Any) -> None:
    """Raise unless it is a fitted regressor whose columns are numbers."""
    if not isinstance(regressor, CVGPRegressor):
        raise InvalidTypeError(f"from_regressor takes a fitted cvgp.CVGPRegressor; got {type(regressor).__name__}.")
    check_is_fitted(regressor)
    schema = schema_of(regressor)
    if schema is not None and not schema.is_numeric:
        raise InvalidInputError(
            f"The regressor was fitted to a table with the columns {[column.name for column in schema.columns]}, which "
            "are not all numbers, and tensors hold numbers only. Turn the columns into numbers before the fit."
        )
