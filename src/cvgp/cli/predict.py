"""`cvgp predict`: a table with predictions beside its columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import cvgp
from cvgp.cli.console import note, print_json
from cvgp.cli.model_files import check_can_write, model_schema
from cvgp.cli.options import AsJson, ModelFile, OnBadRows, Ray, Workers

if TYPE_CHECKING:
    from cvgp.cli.predictor import Predictor


def predict(
    model_file: ModelFile,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table with the columns that the model needs; a glob or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    on_bad_rows: Annotated[
        OnBadRows, typer.Option(help="Stop at a row that cannot be predicted, or leave its prediction empty.")
    ] = OnBadRows.ERROR,
    ray: Ray = None,
    workers: Workers = 2,
    as_json: AsJson = False,
) -> None:
    """Write a table's columns with the mean, standard deviation and 95 % interval of the target beside them.

    The interval is that of a new observation: it holds the noise. The table is read and written part by part. On a Ray
    cluster the output is a folder, with a Parquet file for each part.
    """
    if ray is None:
        from cvgp.data.tables.location import ENDINGS

        check_can_write(out, ENDINGS)
    model = cvgp.load(model_file)
    schema = model_schema(model, model_file)

    from cvgp.cli.predictor import Predictor

    done = Predictor(model, schema, on_bad_rows)
    if ray is not None:
        from cvgp.cli.cluster import predict_on_ray

        columns = predict_on_ray(ray, workers, done, data, out)
    else:
        columns = _predict_file(done, data, out)
    done.findings.warn()
    if done.empty:
        note(f"{done.empty} of {done.rows} rows have missing or bad values; their predictions are left empty.")
    predicted = done.rows - done.empty
    if as_json:
        print_json({"out": str(out), "rows": done.rows, "predicted": predicted, "columns": columns})
    else:
        print(f"Wrote {predicted} predictions to {out}: {', '.join(columns)}")


def _predict_file(predictor: Predictor, data: str, out: Path) -> list[str]:
    from cvgp.data.tables.location import open_dataset
    from cvgp.data.tables.reader import list_parts
    from cvgp.data.tables.writer import table_writer

    dataset = open_dataset(data)
    with table_writer(out) as write:
        for table in predictor.tables(dataset, list_parts(dataset)):
            write(table)
        predictor.check_some(data)
    return predictor.names(dataset.schema.names)
