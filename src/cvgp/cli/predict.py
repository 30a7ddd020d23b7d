"""`cvgp predict`: a table with predictions beside its columns, one batch of its rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import typer
from numpy.typing import NDArray

import cvgp
from cvgp.cli.console import note, note_reading, print_json, say
from cvgp.cli.options import (
    AsJson,
    ModelFile,
    Overwrite,
    Ray,
    Workers,
    check_output,
    command,
    csv_options,
    is_number,
    options_of,
    text_format,
)
from cvgp.errors import FileFormatError, InvalidInputError, printable
from cvgp.estimators.predictive import Predictive, ends_of_interval
from cvgp.tables.apply import SchemaReader
from cvgp.tables.encode import Findings, new_inputs
from cvgp.tables.locate import WRITTEN_ENDINGS
from cvgp.tables.read import Opened, Part, open_table
from cvgp.tables.table import read_table
from cvgp.tables.write import table_writer

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor
    from cvgp.tables.columns import Schema

COLUMNS = ("mean", "sd", "lower", "upper")
ADVICE = "Correct it, or leave the predictions of such rows empty (--on-bad-rows skip)."


class Asked(NamedTuple):
    """What to predict beside mean and standard deviation."""

    level: float = 0.95
    """The probability that an observation is between lower and upper."""
    quantiles: tuple[float, ...] = ()
    """Probabilities."""
    on_bad_rows: Literal["error", "skip"] = "error"


def predict(
    model_file: ModelFile,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table with the columns that the model needs; a glob or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    rows: dict[str, Any],
    text: dict[str, Any],
    level: Annotated[
        float, typer.Option(help="The probability that the target is between lower and upper, above 0 and below 1.")
    ] = 0.95,
    quantiles: Annotated[
        str | None,
        typer.Option(metavar="P ...", help="Quantiles to write too, by their probabilities: --quantiles .1 .5 .9"),
    ] = None,
    ray: Ray = None,
    workers: Workers = 2,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a table's columns with the mean, standard deviation and interval of the target beside them.

    The interval, of 95 % unless --level says otherwise, is that of a new observation: it includes the noise. The table
    is read and written part by part. On a Ray cluster the output is a folder, with a Parquet file for each part.
    """
    asked = Asked(level, _probabilities(level, quantiles), **rows)
    if ray is None:
        check_output(out, model_file, data, endings=WRITTEN_ENDINGS, overwrite=overwrite, kind="table")
    model = cvgp.load(model_file)
    done = Predictor(model, model_schema(model, model_file), asked)
    csv = csv_options(text)
    if ray is not None:
        from cvgp.cli.cluster import predict_on_ray

        columns = predict_on_ray(ray, workers, done, data, csv, out)
    else:
        opened = open_table(data, csv, done.schema.reading)
        note_reading(data, opened.reading)
        with table_writer(out) as write:
            for table in done.tables(opened, opened.parts):
                write(table)
            done.check_some(data)
        columns = done.names(opened.names)
    done.findings.warn()
    if done.empty:
        note(f"{done.empty} of {done.rows} rows have missing or bad values; their predictions are left empty.")
    predicted = done.rows - done.empty
    if as_json:
        print_json({"out": str(out), "rows": done.rows, "predicted": predicted, "columns": columns})
    else:
        say(f"Wrote {predicted} predictions to {out}: {', '.join(map(printable, columns))}")


def build(name: str) -> Any:
    """The command, with options from the library."""
    rows = options_of(read_table, "Rows", only=("on_bad_rows",))
    return command(predict, several="--quantiles", rows=rows, text=text_format())


def _probabilities(level: float, quantiles: str | None) -> tuple[float, ...]:
    """The probabilities of quantiles, checked before any work."""
    if not 0.0 < level < 1.0:
        raise typer.BadParameter(f"{level:g} is not between 0 and 1; 90 % is .9.", param_hint="'--level'")
    words = [] if quantiles is None else quantiles.split(",")
    found = tuple(float(word) for word in words if is_number(word))
    if len(found) < len(words) or len(set(found)) < len(found) or not all(0.0 < p < 1.0 for p in found):
        raise typer.BadParameter(
            f"{quantiles} must be different numbers between 0 and 1, such as .1 .5 .9.", param_hint="'--quantiles'"
        )
    return found


def model_schema(model: CVGPRegressor, path: Path) -> Schema:
    """What turns a table into the model's features."""
    from cvgp.estimators.frames import schema_of

    schema = schema_of(model)
    if schema is None:
        raise InvalidInputError(
            f"The model in {path} was fitted to an array whose columns have no names, so it cannot read a table; "
            "predict with cvgp.load in Python, or fit it to a DataFrame or with `cvgp fit`."
        )
    if not isinstance(schema.target, str):
        raise InvalidInputError(
            f"The model in {path} predicts several columns, {list(schema.targets)}; commands predict one. Use "
            "cvgp.load in Python."
        )
    return schema


def free_names(wanted: Sequence[str], taken: Iterable[str]) -> list[str]:
    """The names, all with the same number appended if any of them is taken already."""
    used = set(taken)
    names, number = list(wanted), 1
    while used.intersection(names):
        number += 1
        names = [f"{name}_{number}" for name in wanted]
    return names


class Predictor:
    """A model that counts the rows that it is given."""

    def __init__(self, model: CVGPRegressor, schema: Schema, asked: Asked) -> None:
        self.model, self.schema, self.asked = model, schema, asked
        self.rows = 0
        self.empty = 0
        """Rows without a prediction: bad ones that are skipped, and incomplete ones that the model's rule drops."""
        self.findings = Findings()
        """Unknown cells, and dates outside the training table, by column."""

    def names(self, taken: list[str]) -> list[str]:
        """The names of the columns of predictions, beside columns of these names."""
        parts = [*COLUMNS, *(f"q{p:g}" for p in self.asked.quantiles)]
        return free_names([f"{self.schema.target}_{part}" for part in parts], taken)

    def tables(self, opened: Opened, parts: list[Part]) -> Iterator[pa.Table]:
        """Pieces of some parts of a table, with predictions beside their columns; all in the types of the first."""
        reader = SchemaReader(opened, self.schema, on_bad_rows=self.asked.on_bad_rows, advice=ADVICE)
        schema: pa.Schema | None = None
        for piece in reader.pieces(parts, opened.names):
            predictions = self._predict(piece.rows.x, piece.kept, piece.numbers, piece.part.file)
            table = pa.Table.from_batches([piece.batch.select(opened.names)])
            schema = schema or pa.schema([own.with_type(_plain(own.type)) for own in table.schema])
            try:
                table = table.cast(schema)  # files may hold the same numbers in another type
            except (pa.ArrowException, ValueError) as error:
                raise FileFormatError(
                    f"The columns of {piece.part.file} do not fit those of the first file ({error}); write it again as "
                    "that one."
                ) from error
            for name, values in zip(self.names(opened.names), predictions, strict=True):
                table = table.append_column(name, pa.array(values, from_pandas=True))
            yield table

    def check_some(self, data: str) -> None:
        """Raise if no row of the table could be predicted."""
        if self.empty == self.rows:
            raise InvalidInputError(
                f"{data}: not a single row can be predicted, since each has a missing or bad value; fill some."
            )

    def _predict(
        self, cells: NDArray[np.float64], good: NDArray[np.bool_], numbers: NDArray[np.int64], file: str
    ) -> NDArray[np.float64]:
        """The columns of predictions, with NaN for rows that are not good."""
        self.rows += len(good)
        self.empty += int((~good).sum())
        levels = np.append(ends_of_interval(self.asked.level), self.asked.quantiles)
        columns = np.full((2 + len(levels), len(good)), np.nan)
        if good.any():
            inputs, findings = new_inputs(self.schema.columns, cells[good], numbers, file)
            self.findings.add(findings)
            found = Predictive.at(self.model._gp, inputs)
            mean, sd = found.moments.mean[:, 0], np.sqrt(found.moments.variance[:, 0])
            columns[:, good] = np.vstack([mean, sd, found.quantiles(levels)[:, 0].T])
        return columns


def _plain(arrow_type: pa.DataType) -> pa.DataType:
    """Text that was read as a dictionary is written as text."""
    is_text = pa.types.is_dictionary(arrow_type) and pa.types.is_string(arrow_type.value_type)
    return pa.string() if is_text and not arrow_type.ordered else arrow_type
