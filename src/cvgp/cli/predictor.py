"""Predictions beside the columns of a table, one batch of its rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cvgp.cli.model_files import free_names
from cvgp.cli.options import Asked, OnBadRows
from cvgp.data.tables.by_schema import encoder_of, finder_of
from cvgp.data.tables.prefetch import prefetch
from cvgp.data.tables.reader import Part, read_parts
from cvgp.data.uncertain import Findings, new_inputs
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.estimators.new_observations import Predictive, ends_of_interval

if TYPE_CHECKING:
    from cvgp.data.schema import Schema
    from cvgp.estimators.regressor import CVGPRegressor

COLUMNS = ("mean", "sd", "lower", "upper")
ADVICE = "Correct it, or leave the predictions of such rows empty (--on-bad-rows skip)."


class Predictor:
    """A model that counts the rows that it is given."""

    def __init__(self, model: CVGPRegressor, schema: Schema, on_bad_rows: OnBadRows, asked: Asked) -> None:
        self.asked = asked
        self.model = model
        self.schema = schema
        self.on_bad_rows = on_bad_rows
        self.rows = 0
        self.empty = 0
        """Rows without a prediction: bad ones that are skipped, and incomplete ones that the model's rule drops."""
        self.findings = Findings()
        """Cells of which the model knows nothing, and dates that it has not seen, by column."""

    def names(self, taken: list[str]) -> list[str]:
        """The names of the columns of predictions, beside columns of these names."""
        return free_names([f"{self.schema.target}_{part}" for part in self._columns], taken)

    @property
    def _columns(self) -> list[str]:
        return [*COLUMNS, *(f"q{p:g}" for p in self.asked.quantiles)]

    def tables(self, dataset: Any, parts: Sequence[Part]) -> Iterator[pa.Table]:
        """Pieces of some parts of a table, with predictions beside their columns; all in the types of the first."""
        every = dataset.schema.names
        encoder = encoder_of(self.schema, dataset, with_target=False)
        bad = finder_of(encoder, self.schema, self.on_bad_rows.value, ADVICE)
        kinds = dict.fromkeys(every, "") | encoder.kinds  # columns that the model does not know stay as they are
        schema: pa.Schema | None = None
        for part, before, batch in prefetch(lambda: read_parts(parts, every, kinds)):
            try:
                rows = encoder.numbers(batch)
            except InvalidTypeError as error:
                raise InvalidTypeError(f"{part.file}: {error}") from error
            kept = bad.find(rows, part, before)
            numbers = part.first_row + before + np.flatnonzero(kept)
            predictions = self._predict(rows.x, kept, numbers, part.file)
            table = pa.Table.from_batches([batch])
            schema = schema or table.schema
            try:
                table = table.cast(schema)  # files may hold the same numbers in another type
            except (pa.ArrowException, ValueError) as error:
                raise FileFormatError(
                    f"The columns of {part.file} do not fit those of the first file ({error}); write it again as that "
                    "one."
                ) from error
            for name, values in zip(self.names(every), predictions, strict=True):
                table = table.append_column(name, pa.array(values, from_pandas=True))
            yield table

    def check_some(self, data: str) -> None:
        """Refuse a table of which no row could be predicted."""
        if self.empty == self.rows:
            raise InvalidInputError(
                f"{data}: not a single row can be predicted, since each has a missing or bad value; fill some."
            )

    def _predict(
        self, cells: NDArray[np.float64], good: NDArray[np.bool_], numbers: NDArray[np.int64], file: str
    ) -> list[NDArray[np.float64]]:
        self.rows += len(good)
        self.empty += int((~good).sum())
        columns = [np.full(len(good), np.nan) for _ in self._columns]
        if good.any():
            inputs, findings = new_inputs(self.schema.columns, cells[good], numbers, file)
            self.findings.add(findings)
            found = Predictive.at(self.model.gp_, inputs)
            levels = np.append(ends_of_interval(self.asked.level), self.asked.quantiles)
            quantiles = found.quantiles(levels)[:, 0]  # [n, 2 + number of quantiles]
            mean, sd = found.moments.mean[:, 0], np.sqrt(found.moments.variance[:, 0])
            for column, values in zip(columns, (mean, sd, *quantiles.T), strict=True):
                column[good] = values
        return columns
