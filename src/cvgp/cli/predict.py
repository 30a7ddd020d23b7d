"""`cvgp predict`: a table with predictions beside its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvgp.cli.console import note, print_json
from cvgp.cli.model_files import TABLE_ENDINGS, check_can_write, check_ending, free_names, load_model, model_schema
from cvgp.cli.options import AsJson, ModelFile, OnBadRows, Ray, Workers
from cvgp.errors import FileFormatError, InvalidInputError

if TYPE_CHECKING:
    from cvgp.cli.predictor import Predictor

__all__ = ["check_some", "predict", "predicted_tables", "prediction_names"]


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

    The interval is that of a new observation: it holds the noise. What is not one small file is read and written part
    by part. On a Ray cluster the output is a folder, with a Parquet file for each part.
    """
    if ray is None:
        check_ending(out, TABLE_ENDINGS)
        check_can_write(out)
    model = load_model(model_file)
    schema = model_schema(model, model_file)

    from cvgp.cli.predictor import Predictor
    from cvgp.data.schema import warn_unknown
    from cvgp.data.tables.training_table import is_small_file

    done = Predictor(model, schema, on_bad_rows)
    if ray is not None:
        from cvgp.cli.cluster import predict_on_ray

        columns = predict_on_ray(ray, workers, done, model_file, data, out)
    else:
        columns = _predict_file(done, data, out) if is_small_file(data) else _predict_parts(done, data, out)
    warn_unknown(done.unknown)
    if done.empty:
        note(f"{done.empty} of {done.rows} rows have missing or bad values; their predictions are left empty.")
    predicted = done.rows - done.empty
    if as_json:
        print_json({"out": str(out), "rows": done.rows, "predicted": predicted, "columns": columns})
    else:
        print(f"Wrote {predicted} predictions to {out}: {', '.join(columns)}")


def _predict_file(predictor: Predictor, data: str, out: Path) -> list[str]:
    from cvgp.data.tables.whole import read_table, write_table

    frame = read_table(Path(data))
    names = prediction_names(predictor, list(frame.columns))
    predictions = predictor.predict(frame, data)
    check_some(predictor, data)
    for name, values in zip(names, predictions, strict=True):
        frame[name] = values
    write_table(frame, out)
    return names


def _predict_parts(predictor: Predictor, data: str, out: Path) -> list[str]:
    from cvgp.data.tables.dataset import open_dataset
    from cvgp.data.tables.parts import list_parts
    from cvgp.data.tables.writer import table_writer

    dataset = open_dataset(data)
    with table_writer(out) as write:
        for table in predicted_tables(predictor, dataset, list_parts(dataset)):
            write(table)
        check_some(predictor, data)
    return prediction_names(predictor, dataset.schema.names)


def predicted_tables(predictor: Predictor, dataset: Any, parts: Sequence[Any]) -> Iterator[Any]:
    """Pieces of some parts of a table, with predictions beside their columns; all in the types of the first."""
    import pyarrow as pa

    from cvgp.data.tables.prefetch import prefetch

    names = prediction_names(predictor, dataset.schema.names)
    schema: Any = None
    for file, before, batch in prefetch(lambda: _batches(predictor, dataset, parts)):
        predictions = predictor.predict(batch.to_pandas(), file, before)
        table = pa.Table.from_batches([batch])
        if schema is None:
            schema = table.schema
        try:
            table = table.cast(schema)  # files may hold the same numbers in another type
        except (pa.ArrowException, ValueError) as error:
            raise FileFormatError(
                f"The columns of {file} do not fit those of the first file ({error}); write it again as that one."
            ) from error
        for name, values in zip(names, predictions, strict=True):
            table = table.append_column(name, pa.array(values, from_pandas=True))
        yield table


def _batches(predictor: Predictor, dataset: Any, parts: Sequence[Any]) -> Iterator[tuple[str, int, Any]]:
    """Pieces of the files, with the names of these and the number of rows that came before."""
    from cvgp.data.tables.parts import column_kinds, read_batches

    names = dataset.schema.names
    kinds = dict.fromkeys(names, "")  # columns that the model does not know stay as they are
    kinds |= column_kinds(dataset, [c.name for c in predictor.schema.columns if c.name in names])
    for part in parts:
        before = part.first_row
        for batch in read_batches(part, names, kinds):
            yield part.file, before, batch
            before += len(batch)


def prediction_names(predictor: Predictor, taken: list[str]) -> list[str]:
    """What the columns of the predictions are called, beside columns of these names."""
    from cvgp.cli.predictor import COLUMNS

    return free_names([f"{predictor.schema.target}_{part}" for part in COLUMNS], taken)


def check_some(predictor: Predictor, data: str) -> None:
    """Refuse a table of which no row could be predicted."""
    if predictor.empty == predictor.rows:
        raise InvalidInputError(
            f"{data}: not a single row can be predicted, since each has a missing or bad value; fill some."
        )
