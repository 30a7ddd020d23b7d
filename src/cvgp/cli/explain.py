"""`cvgp explain`: why a model predicts what it predicts for one row."""

import csv
import os
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from matplotlib.figure import Figure

from cvgp import plots
from cvgp.cli import options
from cvgp.cli.console import print_result
from cvgp.cli.predict import model_schema
from cvgp.errors import InvalidInputError
from cvgp.estimators.persistence import load
from cvgp.files import atomic_write
from cvgp.tables.apply import names_to_choose, schema_reader
from cvgp.tables.read import open_frame, open_table


def explain(
    model_file: options.ModelFile,
    row: Annotated[str, typer.Argument(metavar="ROW", help="FILE:17, its 17th data row, or name=value,name=value.")],
    out: Annotated[Path | None, typer.Option(help="A picture to write: .png, .pdf or .svg.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Explain the prediction for one row: the effect of each column, and the values that it is made of."""
    file, _, place = row.rpartition(":")
    is_in_file = place.isdecimal() and ("=" not in row or os.path.exists(file))
    if out is not None:
        options.check_output(out, model_file, file, endings=(".png", ".pdf", ".svg"), overwrite=overwrite)
    model = load(model_file)
    schema, extra = model_schema(model, model_file), [model._gp.exposure] if model._gp.exposure else []
    cells = None if is_in_file else _cells(row, [*(column.name for column in schema.columns), *extra])
    opened = open_table(file, known=schema.reading) if cells is None else open_frame(cells, known=schema.reading)
    kinds, wanted, before = schema_reader(opened, schema, extra).kinds, int(place) if cells is None else 1, 0
    for batch in (batch for part in opened.parts for batch in opened.batches(part, list(kinds), kinds)):
        if before < wanted <= before + len(batch):
            break
        before += len(batch)
    else:
        raise InvalidInputError(f"{file} has {before} data rows, numbered from 1; there is no row {wanted}.")
    found = model.explain(pa.Table.from_batches([batch.slice(wanted - before - 1, 1)]))
    if out is not None:
        figure = Figure(figsize=(7.0, 4.5), layout="constrained")
        plots.plot_explanation(found, ax=figure.add_subplot())
        with atomic_write(out) as temporary:
            figure.savefig(temporary, format=out.suffix[1:].lower(), dpi=110)
    print_result(as_json, found.to_json(), str(found))


def _cells(row: str, known: list[str]) -> pa.Table:
    words = {"true": True, "false": False, "": None}
    pairs = [cell.partition("=") for cell in next(csv.reader([row], skipinitialspace=True), [])]
    if not pairs or not all(sign for _, sign, _ in pairs):
        raise typer.BadParameter(f"{row} is neither FILE:17 nor name=value,name=value.", param_hint="'ROW'")
    if unknown := [name for name, _, _ in pairs if name not in known]:
        raise InvalidInputError(f"The model has no column {unknown[0]!r}; {names_to_choose(unknown[0], known)}")
    names, _, values = zip(*pairs, strict=True)
    return pa.table([pa.array([words.get(value.lower(), value)]) for value in values], names=names)
