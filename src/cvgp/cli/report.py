"""`cvgp report`: one page of HTML about a model and its predictions of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import cvgp
from cvgp.cli.console import note_reading, print_json, print_table, say
from cvgp.cli.model_files import check_can_write, model_schema
from cvgp.cli.options import AsJson, Decimal, Encoding, ModelFile, Sep, Thousands, csv_options


def report(
    model_file: ModelFile,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table that the model has not seen, with the target.")],
    out: Annotated[Path, typer.Option(help="The page to write: .html.")],
    train: Annotated[
        str | None,
        typer.Option(help="The table of the fit: finds its rows in DATA, and replaces missing models to compare with."),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Write a page with scores, calibration, errors, the coreset, the relevance of columns, training and warnings.

    It is one file that needs no network. The fit has stored the models to compare with. With `--train` the page also
    says how many rows are rows of the fit.
    """
    check_can_write(out, (".html", ".htm"))
    model = cvgp.load(model_file)
    schema = model_schema(model, model_file)

    from cvgp.data.tables.by_schema import load_rows
    from cvgp.estimators.scoring import SCORE_NAMES, score_as_text
    from cvgp.report.score_table import NAMES

    csv = csv_options(sep, decimal, thousands, encoding)
    learned_from = None if train is None else load_rows(train, schema, csv, note_reading)
    page = model.report(*load_rows(data, schema, csv, note_reading), train=learned_from)
    page.save(out)
    if as_json:
        print_json({"out": str(out), "scores": page.scores, "warnings": page.warnings})
        return
    print_table(
        ["", *(NAMES[name] for name in page.scores)],
        [
            [label, *(score_as_text(name, own[name]) for own in page.scores.values())]
            for name, label in SCORE_NAMES.items()
        ],
    )
    for words in page.warnings:
        say(f"Warning: {words}")
    say(f"Wrote {out}")
