"""`cvgp update`: a model that has learned new rows too."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cvgp.cli import options
from cvgp.cli.console import note_reading, print_result
from cvgp.cli.info import summarize
from cvgp.cli.predict import model_schema
from cvgp.estimators.display import model_facts
from cvgp.estimators.persistence import load
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.updating import check_factor
from cvgp.tables.read import open_table
from cvgp.tables.table import Table


def update(
    model_file: options.ModelFile,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A table of new rows, with the columns and the target of the model.")
    ],
    text: options.TextFormat,
    out: Annotated[
        Path | None, typer.Option(metavar="NEW", help="Where to save the model; by default MODEL, with --overwrite.")
    ] = None,
    adapt: Annotated[
        bool, typer.Option("--adapt", help="Let the pseudo-points follow the new rows, where the data drift.")
    ] = False,
    forget: Annotated[
        float | None,
        typer.Option(metavar="F", help="Multiply the weights of the old rows by F before, above 0 and at most 1."),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Learn new rows without another fit: kernel, noise and units stay.

    The mean log density of the new rows before they were learned is printed; it falls where the data drift.
    """
    target = model_file if out is None else out
    options.check_output(target, data, overwrite=overwrite)
    if forget is not None:
        check_factor(forget)
    model = load(model_file)
    if isinstance(model, CVGPRegressor):
        model._gp.need_gaussian("update")
    schema = model_schema(model, model_file)
    opened = open_table(data, options.csv_options(text), schema.reading)
    note_reading(data, opened.reading)
    if forget is not None:
        model.forget(forget)
    model.partial_fit(Table(opened), schema.target, adapt=adapt)
    model.save(target)
    density = float(model.batch_log_densities_[-1])
    facts = {"model": str(target), "log_density_of_new_rows": density, **summarize(model)}
    shown = {"new rows": f"{density:.3f} nats per row before they were learned", **model_facts(model)}
    print_result(as_json, facts, {**shown, "saved": str(target)})
