"""`cvgp predict`: a table with predictions beside its columns, one batch of its rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import typer
from numpy.typing import NDArray

from cvgp.cli import options
from cvgp.cli.console import note, note_reading, print_result
from cvgp.errors import FileFormatError, InvalidInputError, printable
from cvgp.estimators.frames import schema_of
from cvgp.estimators.predictive import Predictive, ends_of_interval
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.tables.apply import Piece, schema_reader
from cvgp.tables.columns import Schema
from cvgp.tables.encode import Findings, new_inputs
from cvgp.tables.files import WRITTEN_ENDINGS, table_writer
from cvgp.tables.read import Opened, open_table
from cvgp.tables.table import read_table

ADVICE = "Correct it, or leave the predictions of such rows empty (--on-bad-rows skip)."


def predict(
    model_file: options.ModelFile,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table with the columns that the model needs; a glob or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    rows: Annotated[dict[str, Any], options.OptionsOf(read_table, "Rows", only=("on_bad_rows",))],
    text: options.TextFormat,
    level: Annotated[
        float, typer.Option(help="The probability that the target is between lower and upper, above 0 and below 1.")
    ] = 0.95,
    quantiles: Annotated[
        str | None,
        typer.Option(metavar="P ...", help="Quantiles to write too, by their probabilities: --quantiles .1 .5 .9"),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a table's columns with the mean, standard deviation and interval of the target beside them.

    The interval, of 95 % unless --level says otherwise, is that of a new observation: it includes the noise. The table
    is read and written part by part.
    """
    probabilities = _probabilities(level, quantiles)
    options.check_output(out, model_file, data, endings=WRITTEN_ENDINGS, overwrite=overwrite)
    model = options.load_regressor(model_file)
    schema = model_schema(model, model_file)
    opened = open_table(data, options.csv_options(text), schema.reading)
    note_reading(data, opened.reading)
    parts = ["mean", "sd", "lower", "upper", *(f"q{p:g}" for p in probabilities)]
    columns = free_names([f"{schema.target}_{part}" for part in parts], opened.names)
    done = Predictor(model, schema, np.append(ends_of_interval(level), probabilities), columns, **rows)
    with table_writer(out) as write:
        for table in done.tables(opened):
            write(table)
        if done.empty == done.rows:
            raise InvalidInputError(
                f"{data}: not a single row can be predicted, since each has a missing or bad value; fill some."
            )
    done.findings.warn()
    if done.empty:
        note(f"{done.empty} of {done.rows} rows have missing or bad values; their predictions are left empty.")
    predicted = done.rows - done.empty
    said = f"Wrote {predicted} predictions to {out}: {', '.join(map(printable, columns))}"
    print_result(as_json, {"out": str(out), "rows": done.rows, "predicted": predicted, "columns": columns}, said)


def _probabilities(level: float, quantiles: str | None) -> tuple[float, ...]:
    if not 0.0 < level < 1.0:
        raise typer.BadParameter(f"{level:g} is not between 0 and 1; 90 % is .9.", param_hint="'--level'")
    words = [] if quantiles is None else quantiles.split(",")
    found = tuple(float(word) for word in words if options.is_number(word))
    if len(found) < len(words) or len(set(found)) < len(found) or not all(0.0 < p < 1.0 for p in found):
        raise typer.BadParameter(
            f"{quantiles} must be different numbers between 0 and 1, such as .1 .5 .9.", param_hint="'--quantiles'"
        )
    return found


def model_schema(model: CVGPRegressor, path: Path) -> Schema:
    """What turns a table into the model's features."""
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


@dataclass
class Predictor:
    """A model that predicts a table in pieces, and counts its rows."""

    model: CVGPRegressor
    schema: Schema
    levels: NDArray[np.float64]  # of the ends of the interval, and of further quantiles
    columns: list[str]
    on_bad_rows: Literal["error", "skip"] = "error"
    rows: int = 0
    empty: int = 0  # rows without a prediction: bad ones that are skipped, and incomplete ones
    findings: Findings = field(default_factory=Findings)

    def tables(self, opened: Opened) -> Iterator[pa.Table]:
        """Pieces of a table, with predictions beside their columns; all in the types of the first."""
        extra = (None, None, None, self.model._gp.exposure or None)
        reader = schema_reader(opened, self.schema, extra=extra, on_bad_rows=self.on_bad_rows, advice=ADVICE)
        schema: pa.Schema | None = None
        for piece in reader.pieces(opened.parts, opened.names):
            table = pa.Table.from_batches([piece.batch.select(opened.names)])
            schema = schema or pa.schema([own.with_type(_plain(own.type)) for own in table.schema])
            try:
                table = table.cast(schema)  # files may hold the same numbers in another type
            except (pa.ArrowException, ValueError) as error:
                raise FileFormatError(
                    f"The columns of {piece.part.file} do not fit those of the first file ({error}); write it again as "
                    "that one."
                ) from error
            for name, values in zip(self.columns, self._predict(piece), strict=True):
                table = table.append_column(name, pa.array(values, from_pandas=True))
            yield table

    def _predict(self, piece: Piece) -> NDArray[np.float64]:
        """The columns of predictions, with NaN for rows that do not count."""
        columns = np.full((len(self.columns), len(piece.kept)), np.nan)
        self.rows += len(piece.kept)
        self.empty += int((~piece.kept).sum())
        if piece.kept.any():
            cells = piece.rows.x[piece.kept]
            inputs, findings = new_inputs(self.schema.columns, cells, piece.numbers, piece.part.file)
            self.findings.add(findings)
            exposure = piece.rows.exposure
            found = Predictive.at(self.model._gp, inputs, None if exposure is None else exposure[piece.kept])
            mean, sd = found.moments.mean[:, 0], np.sqrt(found.moments.variance[:, 0])
            columns[:, piece.kept] = np.vstack([mean, sd, found.quantiles(self.levels)[:, 0].T])
        return columns


def _plain(arrow_type: pa.DataType) -> pa.DataType:
    """Text that was read as a dictionary is written as text."""
    is_text = pa.types.is_dictionary(arrow_type) and pa.types.is_string(arrow_type.value_type)
    return pa.string() if is_text and not arrow_type.ordered else arrow_type
