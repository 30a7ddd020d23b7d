"""Rows that cannot be learned from: named by file and row, or left out and counted."""

import reprlib  # a cell may be very long
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.data.tables.blocks import Encoder
from cvgp.data.tables.reader import Part, cell_text
from cvgp.errors import InvalidInputError
from cvgp.parallel.group import Group, gather_text

MORE_ROWS = 3
"""Bad rows that are named after the first."""

Mask = NDArray[np.bool_]
OnBadRows = Literal["error", "skip"]

TRAINING_ADVICE = (
    "Correct it, or leave such rows out and have them counted (fit(..., on_bad_rows='skip'), --on-bad-rows skip)."
)


class BadRows:
    """Finds bad rows in a pass.

    An infinite value is bad, and text where numbers are expected counts as one. So is a missing target, a missing cell
    (NaN is one) of a column whose `gaps` are false, and a negative weight or noise variance. The cells of text
    columns are positions of their categories. Where bad rows are an error, its message ends with the advice.
    """

    def __init__(
        self,
        encoder: Encoder,
        impute: str | None,
        on_bad_rows: OnBadRows,
        advice: str = TRAINING_ADVICE,
        gaps: Sequence[bool] | None = None,
    ) -> None:
        if on_bad_rows not in ("error", "skip"):
            raise InvalidInputError(f"on_bad_rows must be 'error' or 'skip'; got {on_bad_rows!r}.")
        self.encoder = encoder
        self.impute = impute
        self.on_bad_rows = on_bad_rows
        self.advice = advice
        self._gaps = np.array([True] * len(encoder.columns) if gaps is None else gaps, dtype=np.bool_)
        self.skipped = 0
        """Bad rows that were left out."""
        self.dropped = 0
        """Rows that the rule for missing values left out."""
        self.first = ""
        """What is wrong with the first bad row."""

    def find(self, rows: Rows[Array], part: Part, start: int) -> Mask:
        """Mark the rows [n] that count; `start` rows of the part came before them."""
        extra = [column[:, None] for column in (rows.sample_weight, rows.noise_variance) if column is not None]
        columns = [rows.x, rows.y, *extra]
        kept = np.ones(len(rows.x), dtype=np.bool_)
        if not (all(np.isfinite(c).all() for c in columns) and all((c >= 0.0).all() for c in extra)):
            kept = self._look_closer(np.hstack(columns), rows, part, start)
        # A row of no weight is not bad; it does not count.
        return kept if rows.sample_weight is None else kept & (rows.sample_weight > 0.0)

    def count_all(self, group: Group, good: int) -> int:
        """Add up what was left out of the parts of all processes; returns how many good rows all have."""
        (counts,) = group.sum([torch.tensor([good, self.skipped, self.dropped], dtype=torch.float64)])
        total, self.skipped, self.dropped = (int(count) for count in counts)
        self.first = next((text for text in gather_text(group, self.first) if text), "")
        return total

    def summary(self) -> str:
        """What was left out, in words; empty if nothing was."""
        parts = []
        if self.skipped:
            parts.append(f"{self.skipped} bad rows were left out, the first of them: {self.first}")
        if self.dropped:
            parts.append(f"{self.dropped} rows with missing values were left out")
        return "; ".join(parts)

    def _look_closer(self, values: NDArray[np.float64], rows: Rows[Array], part: Part, start: int) -> Mask:
        num_features = rows.x.shape[1]
        num_values = num_features + rows.y.shape[1]
        missing = np.isnan(values)
        wrong = np.isinf(values)
        wrong[:, num_values:] |= missing[:, num_values:] | (values[:, num_values:] < 0.0)
        incomplete = missing[:, :num_values]
        if self.impute != "drop":
            incomplete[:, :num_features] &= ~self._gaps
        if self.impute != "drop":
            wrong[:, :num_values] |= incomplete
        bad: Mask = np.logical_or.reduce(wrong, axis=1)
        dropped: Mask = np.logical_or.reduce(incomplete, axis=1) & ~bad
        if bad.any() and not self.first:
            self._note_first(values, wrong, part, start)
        self.skipped += int(bad.sum())
        self.dropped += int(dropped.sum())
        return ~(bad | dropped)

    def _note_first(self, values: NDArray[np.float64], wrong: Mask, part: Part, start: int) -> None:
        row, position = (int(index[0]) for index in np.nonzero(wrong))
        names = [*(column.name for column in self.encoder.columns), *self.encoder.special]
        value = values[row, position]
        found = "is missing" if np.isnan(value) else "is infinite or not a number" if np.isinf(value) else "is negative"
        text = cell_text(part, names[position], start + row) if not value < 0.0 or np.isinf(value) else None
        if text is not None:
            found = f"{found}: it holds {reprlib.repr(text)}"
        first = part.first_row + start + 1
        others = [str(first + other) for other in np.flatnonzero(wrong[:, position])[1 : 1 + MORE_ROWS]]
        also = f" (also in data row {', '.join(others)})" if others else ""
        self.first = f"{part.file}, data row {first + row}: column {names[position]!r} {found}{also}"
        if self.on_bad_rows == "error":
            raise InvalidInputError(f"{self.first}. {self.advice}")
