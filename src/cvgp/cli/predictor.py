"""Predictions for the rows of a table, one part of it at a time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cvgp.cli.model_files import features
from cvgp.cli.options import OnBadRows
from cvgp.data.tables.bad_rows import bad_cells
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.metrics import interval

if TYPE_CHECKING:
    import pandas as pd

    from cvgp.data.schema import Schema
    from cvgp.estimators.regressor import CVGPRegressor

__all__ = ["COLUMNS", "Predictor"]

COLUMNS = ("mean", "sd", "lower", "upper")
LEVEL = 0.95


class Predictor:
    """A model that counts what it is given."""

    def __init__(self, model: CVGPRegressor, schema: Schema, on_bad_rows: OnBadRows) -> None:
        self.model = model
        self.schema = schema
        self.on_bad_rows = on_bad_rows
        self.rows = 0
        self.empty = 0
        """Rows without a prediction: bad ones that are skipped, and incomplete ones that the model's rule drops."""
        self.unknown = Counter[str]()
        """Cells with a category that the model does not know, by column."""

    def predict(self, frame: pd.DataFrame, file: str, before: int = 0) -> list[NDArray[np.float64]]:
        """The columns [n] of predictions for rows of a file, of which `before` came before; NaN where there is none."""
        good = self._usable(frame, file, before)
        self.rows += len(frame)
        self.empty += int((~good).sum())
        columns = [np.full(len(frame), np.nan) for _ in COLUMNS]
        if good.any():
            try:
                x, unknown = self.schema.encode_cells(frame[good], np.ones(int(good.sum()), dtype=np.bool_))
            except (InvalidInputError, InvalidTypeError) as error:
                after = f" after data row {before}" if before else ""
                raise type(error)(f"{file}{after}: {error}") from error
            self.unknown += unknown
            mean, sd = self.model.predict(features(self.schema, x), return_std=True)
            for column, values in zip(columns, (mean, sd, *interval(mean, sd, LEVEL)), strict=True):
                column[good] = values
        return columns

    def _usable(self, frame: pd.DataFrame, file: str, before: int) -> NDArray[np.bool_]:
        complete = self.schema.complete_rows(frame)  # which finds columns that lack as well
        names = [column.name for column in self.schema.columns]
        bad, name = bad_cells(frame, names, missing_is_bad=self.schema.impute is None)
        if bad.any() and self.on_bad_rows is OnBadRows.ERROR:
            row = before + int(bad.argmax()) + 1
            raise InvalidInputError(
                f"{file}, data row {row}: column {name!r} is missing, NaN or infinite. Correct it, leave the "
                "predictions of such rows empty (--on-bad-rows skip), or fit the model again with a rule for missing "
                "values (--impute)."
            )
        return ~bad & complete if self.schema.impute == "drop" else ~bad
