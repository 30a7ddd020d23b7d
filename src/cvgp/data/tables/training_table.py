"""A table in files that a model is to be fitted to: looked through once, then loaded or read again in parts."""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
import pyarrow.dataset as ds
import torch

from cvgp.data.input_warp import InputWarp
from cvgp.data.reading import CsvOptions, Reading
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, bulk_of, learn_scaling, learn_warped_scaling
from cvgp.data.schema import Impute, Schema
from cvgp.data.tables.bad_rows import OnBadRows
from cvgp.data.tables.blocks import read_blocks
from cvgp.data.tables.choice import ColumnChoice, left_out_line
from cvgp.data.tables.first_pass import Dates, Survey, TableColumns, survey_table
from cvgp.data.tables.learned_columns import common_sample, learn_columns
from cvgp.data.tables.left_out import leave_out
from cvgp.data.tables.location import Location, open_dataset
from cvgp.data.tables.notes import notes_of
from cvgp.data.tables.reader import list_parts
from cvgp.data.tables.streaming import ArrowSource
from cvgp.errors import CVGPWarning, InvalidTypeError
from cvgp.parallel.group import ALONE, Group

IN_MEMORY_BYTES = 128_000_000
"""Tables up to this size, as features and targets in float64, are loaded; larger ones are read again in parts."""


class TrainingTable:
    """Rows in files, with everything that one pass over them tells.

    Parameters
    ----------
    location
        A path, a glob, a folder, a list of these, or a pyarrow dataset; see
        :func:`~cvgp.data.tables.location.open_dataset`.
    target
        The column to predict, or several; all others are features.
    sample_weight, noise_variance
        Columns that are no features: they hold weights, or known noise variances.
    csv
        What is known of text files; see :func:`~cvgp.data.tables.location.open_dataset`.
    drop, features, keep
        Columns to leave out, the only ones to use, and those to use even if they seem to tell nothing.
    known
        How a model has read such a table.
    impute, on_bad_rows, dates
        See :func:`~cvgp.data.tables.first_pass.survey_table` and
        :func:`~cvgp.data.tables.learned_columns.learn_columns`.
    group
        The processes that the table is for. A table that all of them can load is looked through by each; of a larger
        one, each looks at its own parts and reads no others.
    """

    def __init__(
        self,
        location: Location,
        target: str | Sequence[str],
        *,
        sample_weight: str | None = None,
        noise_variance: str | None = None,
        csv: CsvOptions | None = None,
        drop: str | Sequence[str] = (),
        features: str | Sequence[str] | None = None,
        keep: str | Sequence[str] = (),
        known: Reading | None = None,
        impute: Impute | None = None,
        on_bad_rows: OnBadRows = "error",
        dates: Dates = "refuse",
        group: Group = ALONE,
    ) -> None:
        targets = (target,) if isinstance(target, str) else tuple(target) if isinstance(target, (list, tuple)) else ()
        for name in (*(targets or (target,)), sample_weight, noise_variance):
            if name is not None and not isinstance(name, str):
                raise InvalidTypeError(
                    "With a table in files, the target, sample_weight and noise_variance are names of its columns; got "
                    f"{type(name).__name__}."
                )
        self.single_output = isinstance(target, str)
        self.impute = impute
        choice = ColumnChoice.of(drop, features, keep)
        dataset = open_dataset(location, csv, known)
        self.reading, self._names = notes_of(dataset).reading, tuple(dataset.schema.names)
        look = partial(
            survey_table,
            dataset,
            TableColumns(targets, sample_weight, noise_variance, choice),
            impute=impute,
            on_bad_rows=on_bad_rows,
            dates=dates,
        )
        self.group = ALONE if group.world == 1 or _looks_small(dataset) else group
        self._look_and_learn(look, choice)
        if self.group is not group and not self.fits_in_memory:
            self.group = group
            self._look_and_learn(look, choice)
        if self.survey.left_out and group.rank == 0:
            warnings.warn(left_out_line(self.survey.left_out), CVGPWarning, stacklevel=3)

    def _look_and_learn(self, look: Callable[..., Survey], choice: ColumnChoice) -> None:
        self.survey = leave_out(look(group=self.group), choice, self.group)
        learned = learn_columns(self.survey, self.impute, fits_in_memory=self.fits_in_memory, group=self.group)
        self.survey = learned

    @property
    def num_rows(self) -> int:
        """The rows that count, of all processes."""
        return self.survey.total_rows

    @property
    def feature_names(self) -> list[str]:
        """The names of the columns of x."""
        return self.survey.encoder.feature_names

    @property
    def num_bytes(self) -> int:
        """What features and targets take in float64."""
        return 8 * self.num_rows * self.survey.encoder.num_columns

    @property
    def fits_in_memory(self) -> bool:
        """Whether the table is loaded rather than read in parts."""
        return self.group is ALONE and self.num_bytes <= IN_MEMORY_BYTES

    @cached_property
    def common_sample(self) -> Rows[Array]:
        """A sample of the rows of all processes, the same everywhere: all of them up to 100,000 rows."""
        return common_sample(self.survey, self.group)

    @property
    def scaling(self) -> Scaling:
        """The weighted means and standard deviations of all columns.

        Those of columns with outliers (:mod:`cvgp.data.scaling`) are of a sample of the rows: of all of them up to
        100,000 rows, and otherwise of so many.
        """
        D, moments = len(self.feature_names), self.survey.moments
        whole, sample = moments.scaling(D), self.common_sample
        bulk = bulk_of(sample.x, sample.sample_weight)
        reach = np.maximum(np.abs(bulk.low), np.abs(bulk.high))
        is_far = (moments.magnitude[:D] > reach) | (bulk.moved_into(sample.x) != sample.x).any(axis=0)
        in_bulk = learn_scaling(sample.x, sample.y, sample.sample_weight, bulk)
        # A column that is constant in the sample has no bulk to go by.
        is_far &= in_bulk.varies
        return whole._replace(
            x_mean=np.where(is_far, in_bulk.x_mean, whole.x_mean),
            x_scale=np.where(is_far, in_bulk.x_scale, whole.x_scale),
        )

    def warped_scaling(self, warp: InputWarp) -> Scaling:
        """The same with columns that are warped first, whose means and standard deviations are those of the sample."""
        plain = self.scaling
        if warp.name == "identity":
            return plain
        warped = learn_warped_scaling(warp, self.common_sample)
        return plain._replace(
            x_mean=np.where(warp.warped, warped.x_mean, plain.x_mean),
            x_scale=np.where(warp.warped, warped.x_scale, plain.x_scale),
            warp=warp,
        )

    @property
    def y_varies(self) -> bool:
        """Whether the rows have different outputs."""
        return bool(self.survey.moments.scales[len(self.feature_names) :].any())

    @property
    def schema(self) -> Schema:
        """What turns another table into features."""
        encoder = self.survey.encoder
        target = encoder.targets[0] if self.single_output else encoder.targets
        known = {*encoder.targets, *(column.name for column in encoder.columns)}
        unused = tuple(name for name in self._names if name not in known)
        dropped = self.survey.bad.dropped
        return Schema(target, encoder.columns, self.impute, n_dropped=dropped, reading=self.reading, unused=unused)

    def load(self) -> Rows[Array]:
        """All rows, in the user's units."""
        if len(self.sample().x) == self.num_rows:
            return self.sample()
        return Rows[Array].join(
            [rows for known in self.survey.parts for rows in read_blocks(known, self.survey.encoder)]
        )

    def source(self, scaling: Scaling, device: torch.device | str = "cpu") -> ArrowSource:
        """The rows of this process in parts, scaled."""
        return ArrowSource(self.survey, scaling, device=device)

    def sample(self) -> Rows[Array]:
        """A uniform sample of the rows, or all of them."""
        return self.survey.reservoir.rows

    def describe(self) -> str:
        """Size and way of reading, in a line."""
        files = "1 file" if self.survey.total_files == 1 else f"{self.survey.total_files} files"
        columns, features = len(self.survey.encoder.columns), len(self.feature_names)
        size, limit = f"{self.num_bytes / 1e6:.0f} MB", f"{IN_MEMORY_BYTES / 1e6:.0f} MB"
        how = f"loaded, {size}" if self.fits_in_memory else f"read in parts: {size} is more than {limit}"
        return f"{files}, {self.num_rows} rows, {columns} columns as {features} features ({how})"


def _looks_small(dataset: ds.Dataset) -> bool:
    """Whether the table can be loaded by what its files say of their size; indicators of text may take more."""
    parts = list_parts(dataset)
    width = 8 * len(dataset.schema.names)
    return sum(part.num_bytes if part.num_rows is None else width * part.num_rows for part in parts) <= IN_MEMORY_BYTES
