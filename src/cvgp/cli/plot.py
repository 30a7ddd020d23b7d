"""`cvgp plot`: one page of pictures of a model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import cvgp
from cvgp.cli.console import note_reading, print_json, print_table, say
from cvgp.cli.model_files import check_can_write, model_schema
from cvgp.cli.options import AsJson, Decimal, Encoding, ModelFile, Sep, Thousands, csv_options
from cvgp.printable import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from cvgp.data.reading import CsvOptions
    from cvgp.estimators.regressor import CVGPRegressor

ENDINGS = (".png", ".pdf", ".svg")
MOST_COLUMNS = 4


def plot(
    model_file: ModelFile,
    out: Annotated[Path, typer.Option(help="The picture to write: .png, .pdf or .svg.")],
    data: Annotated[str | None, typer.Option(help="A table with the target, for pictures of the predictions.")] = None,
    train: Annotated[
        str | None,
        typer.Option(
            help="The table that the model was fitted to, for quality by size; its last fifth or --data is scored."
        ),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Draw the relevance of columns, what they do, noise, coreset, training, and with tables the predictions.

    With `--train` the model is pruned and grown to the powers of two up to twice its size.
    """
    check_can_write(out, ENDINGS)
    model = cvgp.load(model_file)
    csv = csv_options(sep, decimal, thousands, encoding)
    table = None if data is None else _load(data, model, model_file, csv)
    quality = None
    if train is not None:
        quality = cvgp.quality_by_size(model, *_load(train, model, model_file, csv), held_out=table)
    figure, names = _draw(model, table, quality)

    from cvgp.files.atomic import atomic_write

    with atomic_write(out) as temporary:
        figure.savefig(temporary, format=out.suffix[1:].lower(), dpi=110)
    if as_json:
        numbers = {} if quality is None else {"quality_by_size": {name: c.tolist() for name, c in quality.items()}}
        print_json({"out": str(out), "pictures": names, **numbers})
        return
    say(f"Wrote {out}: {', '.join(map(printable, names))}")
    if quality is not None:
        columns = ["points", "bound per row", "RMSE", "mean log-likelihood", "seconds"]
        print_table(columns, [[f"{value:.4g}" for value in row] for row in zip(*quality.values(), strict=True)])


def _load(location: str, model: CVGPRegressor, model_file: Path, csv: CsvOptions) -> tuple[Any, Any]:
    """Features and target of a table."""
    from cvgp.data.tables.by_schema import load_rows

    inputs, targets = load_rows(location, model_schema(model, model_file), csv, note_reading)
    return inputs, targets[:, 0]


def _draw(
    model: CVGPRegressor, table: tuple[Any, Any] | None, quality: dict[str, Any] | None
) -> tuple[Figure, list[str]]:
    from functools import partial

    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from cvgp import plots

    drawings: dict[str, Any] = {"relevance": partial(plots.plot_relevance, model)}
    for name in plots.columns_by_importance(model)[:MOST_COLUMNS]:
        drawings[f"dependence on {name}"] = partial(plots.plot_partial_dependence, model, name)
    if model.noise_ == "input-dependent":
        drawings["noise"] = partial(plots.plot_noise, model)
    drawings["coreset"] = partial(plots.plot_coreset, model)
    drawings["weights"] = partial(plots.plot_weights, model)
    drawings["training"] = partial(plots.plot_training, model)
    if table is not None:
        drawings["predictions"] = partial(plots.plot_predicted, model, *table)
        drawings["calibration"] = partial(plots.plot_calibration, model, *table)
    if quality is not None:
        drawings["quality by size"] = partial(plots.plot_quality_by_size, quality)
    across = min(len(drawings), 4 if len(drawings) > 6 else 3)
    down = math.ceil(len(drawings) / across)
    figure = Figure(figsize=(4.4 * across, 3.7 * down), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    for position, draw in enumerate(drawings.values(), start=1):
        draw(ax=figure.add_subplot(down, across, position))
    return figure, list(drawings)
