"""`cvgp predict`: a table with predictions beside its columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cvgp.cli.console import note, print_json
from cvgp.cli.files import TABLE_ENDINGS, check_can_write, check_ending, features, free_names, load_model, model_schema
from cvgp.cli.options import AsJson, ModelFile
from cvgp.errors import InvalidInputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from cvgp.data.schema import Schema

__all__ = ["predict"]

LEVEL = 0.95


def predict(
    model_file: ModelFile,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A table with the columns that the model needs.")],
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    as_json: AsJson = False,
) -> None:
    """Write a table's columns with the mean, standard deviation and 95 % interval of the target beside them.

    The interval is that of a new observation: it holds the noise.
    """
    check_ending(out, TABLE_ENDINGS)
    check_can_write(out)
    model = load_model(model_file)
    schema = model_schema(model, model_file)

    import numpy as np

    from cvgp.data.tables import read_table, write_table
    from cvgp.metrics import interval

    frame = read_table(data)
    rows = _usable_rows(schema, frame)
    mean, sd = model.predict(features(schema, schema.encode(frame[rows])), return_std=True)
    names = free_names([f"{schema.target}_{part}" for part in ("mean", "sd", "lower", "upper")], frame.columns)
    for name, values in zip(names, (mean, sd, *interval(mean, sd, LEVEL)), strict=True):
        column = np.full(len(frame), np.nan)
        column[rows] = values
        frame[name] = column
    write_table(frame, out)
    if as_json:
        print_json({"out": str(out), "rows": len(frame), "predicted": int(rows.sum()), "columns": names})
    else:
        print(f"Wrote {int(rows.sum())} predictions to {out}: {', '.join(names)}")


def _usable_rows(schema: Schema, frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Rows to predict: all, unless the model leaves out incomplete ones, as it did when it was fitted."""
    if schema.impute != "drop":
        import numpy as np

        return np.ones(len(frame), dtype=np.bool_)
    rows = schema.complete_rows(frame)
    if not rows.any():
        raise InvalidInputError("Every row has a missing value, and the model's rule is to drop such rows; fill some.")
    if not rows.all():
        note(f"{int((~rows).sum())} of {len(frame)} rows have missing values; their predictions are left empty.")
    return rows
