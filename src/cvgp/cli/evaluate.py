"""`cvgp evaluate`: how good predictions are, beside those of a constant and a linear model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import cvgp
from cvgp.cli.console import note_reading, print_json, print_table, say
from cvgp.cli.model_files import model_schema
from cvgp.cli.options import AsJson, Decimal, Encoding, ModelFile, Sep, Thousands, csv_options
from cvgp.printable import printable

if TYPE_CHECKING:
    from cvgp.data.rows import Array
    from cvgp.data.uncertain import Inputs
    from cvgp.estimators.regressor import CVGPRegressor

PERIODS = 5


def evaluate(
    model_file: ModelFile,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table that the model has not seen, with the target.")],
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    by_time: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help=f"Also score {PERIODS} periods of equally many rows, by this column of dates."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score predictions: error, log-likelihood, CRPS and the share of observations inside the intervals.

    The constant and the linear model have learned from the rows that the model was fitted to. With `--by-time` a model
    that grows worse with time shows it: the periods are scored in their order.
    """
    model = cvgp.load(model_file)
    schema = model_schema(model, model_file)

    from cvgp.data.tables.by_schema import load_rows, load_rows_in_time
    from cvgp.estimators.scoring import scores_of_normal
    from cvgp.estimators.simple_models import Baselines

    csv = csv_options(sep, decimal, thousands, encoding)
    if by_time is None:
        (inputs, targets), times = load_rows(data, schema, csv, note_reading), None
    else:
        inputs, targets, times = load_rows_in_time(data, schema, by_time, csv, note_reading)
    x, y = inputs.x, targets[:, 0]
    scores = {"cvgp": _scores_of(model, inputs, y)}
    stored = getattr(model, "baselines_", None)
    if stored is not None:
        simple = Baselines.from_json(stored, x.shape[1])
        predictions = {"linear": simple.linear(x), "constant": simple.constant(len(y))}
        scores |= {name: scores_of_normal(y, *pair) for name, pair in predictions.items()}
    periods = {} if times is None else _scores_by_time(model, inputs, y, times)
    if as_json:
        in_time = {} if times is None else {"periods": [{"period": name, **p} for name, p in periods.items()]}
        print_json({"target": schema.target, "rows": len(y), "scores": scores, **in_time})
        return
    say(f"{printable(str(schema.target))} in {len(y)} rows of {printable(data)}")
    print_table(["", *scores], _rows(scores))
    if periods:
        say(f"by {printable(by_time or '')}:")
        print_table(["", *periods], _rows(periods))
    if stored is None:
        say("The file holds no linear and constant model to compare with; fit it again to have them.")


def _scores_by_time(model: CVGPRegressor, inputs: Inputs, y: Array, times: Any) -> dict[str, dict[str, float]]:
    """Those of each period, by its first and last time."""
    import numpy as np

    order = np.argsort(times, kind="stable")
    found = {}
    for part in np.array_split(order, min(PERIODS, len(order))):
        first, last = _as_time(times[part[0]]), _as_time(times[part[-1]])
        rows = np.sort(part)
        found[f"{first} to {last}"] = _scores_of(model, inputs.take(rows), y[rows])
    return found


def _as_time(value: Any) -> str:
    """A date by its day, or a number."""
    import numpy as np

    return str(np.datetime_as_string(value, unit="D")) if isinstance(value, np.datetime64) else f"{value:g}"


def _scores_of(model: CVGPRegressor, inputs: Inputs, y: Array) -> dict[str, float]:
    """Those of the model."""
    from cvgp.estimators.new_observations import Predictive
    from cvgp.estimators.scoring import scores_of_model

    return scores_of_model(Predictive.at(model.gp_, inputs), y[:, None])


def _rows(scores: dict[str, dict[str, float]]) -> list[list[str]]:
    from cvgp.estimators.scoring import SCORE_NAMES, score_as_text

    return [
        [label, *(score_as_text(name, found[name]) for found in scores.values())] for name, label in SCORE_NAMES.items()
    ]
