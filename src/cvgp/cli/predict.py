"""`cvgp predict`: a table with predictions beside its columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import cvgp
from cvgp.cli.console import note, note_reading, print_json, say
from cvgp.cli.model_files import check_can_write, model_schema
from cvgp.cli.options import (
    AsJson,
    Asked,
    Decimal,
    Encoding,
    ModelFile,
    OnBadRows,
    Ray,
    Sep,
    Thousands,
    Workers,
    csv_options,
)
from cvgp.cli.several_values import is_number
from cvgp.printable import printable

if TYPE_CHECKING:
    from cvgp.cli.predictor import Predictor
    from cvgp.data.reading import CsvOptions


def predict(
    model_file: ModelFile,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table with the columns that the model needs; a glob or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    level: Annotated[
        float, typer.Option(help="The probability that the target is between lower and upper, above 0 and below 1.")
    ] = 0.95,
    quantiles: Annotated[
        str | None,
        typer.Option(metavar="P ...", help="Quantiles to write too, by their probabilities: --quantiles .1 .5 .9"),
    ] = None,
    on_bad_rows: Annotated[
        OnBadRows, typer.Option(help="Stop at a row that cannot be predicted, or leave its prediction empty.")
    ] = OnBadRows.ERROR,
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    ray: Ray = None,
    workers: Workers = 2,
    as_json: AsJson = False,
) -> None:
    """Write a table's columns with the mean, standard deviation and interval of the target beside them.

    The interval, of 95 % unless --level says otherwise, is that of a new observation: it holds the noise. The table is
    read and written part by part. On a Ray cluster the output is a folder, with a Parquet file for each part.
    """
    asked = Asked(level, _probabilities(level, quantiles))
    if ray is None:
        from cvgp.data.tables.location import WRITTEN_ENDINGS

        check_can_write(out, WRITTEN_ENDINGS)
    model = cvgp.load(model_file)
    schema = model_schema(model, model_file)

    from cvgp.cli.predictor import Predictor

    done = Predictor(model, schema, on_bad_rows, asked)
    csv = csv_options(sep, decimal, thousands, encoding)
    if ray is not None:
        from cvgp.cli.cluster import predict_on_ray

        columns = predict_on_ray(ray, workers, done, data, csv, out)
    else:
        columns = _predict_file(done, data, csv, out)
    done.findings.warn()
    if done.empty:
        note(f"{done.empty} of {done.rows} rows have missing or bad values; their predictions are left empty.")
    predicted = done.rows - done.empty
    if as_json:
        print_json({"out": str(out), "rows": done.rows, "predicted": predicted, "columns": columns})
    else:
        say(f"Wrote {predicted} predictions to {out}: {', '.join(map(printable, columns))}")


def _probabilities(level: float, quantiles: str | None) -> tuple[float, ...]:
    """Those of the quantiles, after a look at all of them before any work."""
    if not 0.0 < level < 1.0:
        raise typer.BadParameter(f"{level:g} is not between 0 and 1; 90 % is .9.", param_hint="'--level'")
    if quantiles is None:
        return ()
    if not is_number(quantiles):
        raise typer.BadParameter(
            f"{quantiles!r} are not numbers; give probabilities, such as .1 .5 .9", param_hint="'--quantiles'"
        )
    found = tuple(float(word) for word in quantiles.split(","))
    outside = [p for p in found if not 0.0 < p < 1.0]
    if outside or len(set(found)) < len(found):
        raise typer.BadParameter(
            f"{outside[0]:g} is not between 0 and 1; the median is .5." if outside else f"{quantiles} names one twice.",
            param_hint="'--quantiles'",
        )
    return found


def _predict_file(predictor: Predictor, data: str, csv: CsvOptions, out: Path) -> list[str]:
    from cvgp.data.tables.location import open_dataset
    from cvgp.data.tables.notes import notes_of
    from cvgp.data.tables.reader import list_parts
    from cvgp.data.tables.writer import table_writer

    dataset = open_dataset(data, csv, predictor.schema.reading)
    note_reading(data, notes_of(dataset).reading)
    with table_writer(out) as write:
        for table in predictor.tables(dataset, list_parts(dataset)):
            write(table)
        predictor.check_some(data)
    return predictor.names(dataset.schema.names)
