"""`cvgp predict`: a table with predictions beside its columns, one batch of its rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import typer
from numpy.typing import NDArray

from cvgp.cli import options
from cvgp.cli.console import note, note_reading, print_result
from cvgp.errors import FileFormatError, InvalidInputError, printable
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.frames import free_names, schema_of
from cvgp.estimators.inputs import check_exposure
from cvgp.estimators.persistence import load
from cvgp.estimators.predictive import Predictive, ends_of_interval, scores_of_model
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.progress import listening, tell
from cvgp.report.facts import scores_of_baselines, scores_of_classes
from cvgp.tables.apply import OnBadRows, Piece, load_rows, schema_reader
from cvgp.tables.cells import label
from cvgp.tables.classes import with_codes
from cvgp.tables.columns import Schema
from cvgp.tables.encode import Findings, Inputs, new_inputs
from cvgp.tables.files import WRITTEN_ENDINGS, table_writer
from cvgp.tables.read import Opened, open_table

ADVICE = "Correct it, or leave the predictions of such rows empty (--on-bad-rows skip)."


def predict(
    context: typer.Context,
    model_file: options.ModelFile,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table with the columns that the model needs; a glob or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    rows: options.RowOptions,
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

    The interval, of 95 % unless --level says otherwise, is that of a new observation: it includes the noise. A
    classifier writes the predicted class and the probability of each class. The table is read and written part by part.
    """
    probabilities = _probabilities(level, quantiles)
    options.check_output(out, model_file, data, endings=WRITTEN_ENDINGS, overwrite=overwrite)
    model = load(model_file)
    schema = model_schema(model, model_file)
    opened = open_table(data, options.csv_options(text), schema.reading)
    note_reading(data, opened.reading)
    if isinstance(model, CVGPClassifier):
        if given := [name for name in ("level", "quantiles") if options.is_given(context, name)]:
            raise typer.BadParameter("is for numbers, and the model predicts classes.", param_hint=f"'--{given[0]}'")
        parts = ["predicted", *(f"p_{label(own)}" for own in model.classes_.tolist())]
    else:
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


class Scored(NamedTuple):
    """Rows with their targets or labels [n], and their exposures [n] if the model has learned from some."""

    inputs: Inputs
    y: NDArray[Any]
    exposure: NDArray[np.float64] | None = None


def load_scored(model: Any, path: Path, data: str, text: dict[str, Any], on_bad_rows: OnBadRows = "error") -> Scored:
    """The rows of a table that has the target."""
    opened = open_table(data, options.csv_options(text), model_schema(model, path).reading)
    note_reading(data, opened.reading)
    return scored_rows(model, path, opened, on_bad_rows)


def scored_rows(model: Any, path: Path, opened: Opened, on_bad_rows: OnBadRows = "error") -> Scored:
    """The rows of an open table that has the target."""
    schema, load_all = model_schema(model, path), partial(load_rows, on_bad_rows=on_bad_rows)
    if isinstance(model, CVGPClassifier):
        inputs, y = load_all(with_codes(opened, str(schema.target), model.classes_), schema)
        return Scored(inputs, model.classes_[y[:, 0].astype(np.int64)])
    if not (exposure := model._gp.exposure):
        inputs, y = load_all(opened, schema)
        return Scored(inputs, y[:, 0])
    inputs, y = load_all(opened, replace(schema, target=(str(schema.target), exposure)))
    return Scored(inputs, y[:, 0], check_exposure(y[:, 1], len(y)))


def scores_of(model: Any, rows: Scored) -> dict[str, dict[str, float]]:
    """Scores of a model and of simple ones."""
    if isinstance(model, CVGPClassifier):
        return scores_of_classes(model, model.predict_proba(rows.inputs), model._codes(rows.y))
    own = scores_of_model(Predictive.at(model._gp, rows.inputs, rows.exposure), rows.y[:, None])
    return {"cvgp": own, **scores_of_baselines(getattr(model, "_baselines", None), rows.inputs.x, rows.y)}


def model_schema(model: CVGPRegressor | CVGPClassifier, path: Path) -> Schema:
    """What turns a table into the model's features."""
    schema = schema_of(model)
    if schema is None or not hasattr(model, "feature_names_in_"):
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


@dataclass
class Predictor:
    """A model that predicts a table in pieces, and counts its rows."""

    model: CVGPRegressor | CVGPClassifier
    schema: Schema
    levels: NDArray[np.float64]  # of the ends of the interval, and of further quantiles
    columns: list[str]
    on_bad_rows: OnBadRows = "error"
    rows: int = 0
    empty: int = 0  # rows without a prediction: bad ones that are skipped, and incomplete ones
    findings: Findings = field(default_factory=Findings)

    def tables(self, opened: Opened) -> Iterator[pa.Table]:
        """Pieces of a table, with predictions beside their columns; all in the types of the first."""
        extra = (None, None, None, self.model._gp.exposure or None, None)
        reader = schema_reader(opened, self.schema, extra=extra, on_bad_rows=self.on_bad_rows, advice=ADVICE)
        schema: pa.Schema | None = None
        total = sum(part.count() for part in opened.parts)
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
            with listening(None):  # of the rows of this piece
                found = self._predict(piece)
            tell("predict", self.rows, total)
            for name, values in zip(self.columns, found, strict=True):
                table = table.append_column(name, values)
            yield table

    def _predict(self, piece: Piece) -> list[pa.Array]:
        """The columns of predictions, empty for rows that do not count."""
        labels = self.model.classes_ if isinstance(self.model, CVGPClassifier) else np.empty(0)
        found: list[NDArray[Any]] = [labels[:0], *[np.empty(0)] * (len(self.columns) - 1)]
        self.rows += len(piece.kept)
        self.empty += int((~piece.kept).sum())
        if piece.kept.any():
            cells = piece.rows.x[piece.kept]
            inputs, findings = new_inputs(self.schema.columns, cells, piece.numbers, piece.part.file)
            self.findings.add(findings)
            if isinstance(self.model, CVGPClassifier):
                p = self.model.predict_proba(inputs)
                found = [labels[p.argmax(axis=1)], *p.T]
            else:
                exposure = piece.rows.exposure
                of_y = Predictive.at(self.model._gp, inputs, None if exposure is None else exposure[piece.kept])
                mean, sd = of_y.moments.mean[:, 0], np.sqrt(of_y.moments.variance[:, 0])
                found = [mean, sd, *of_y.quantiles(self.levels)[:, 0].T]
        places = pa.array(np.cumsum(piece.kept) - 1, mask=~piece.kept)
        return [pa.array(own).take(places) for own in found]


def _plain(arrow_type: pa.DataType) -> pa.DataType:
    """Text that was read as a dictionary is written as text."""
    is_text = pa.types.is_dictionary(arrow_type) and pa.types.is_string(arrow_type.value_type)
    return pa.string() if is_text and not arrow_type.ordered else arrow_type
