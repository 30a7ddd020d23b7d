"""`cvgp evaluate`: how good predictions are, beside those of a constant and a linear model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvgp.cli.console import print_json, print_table
from cvgp.cli.files import features, load_model, model_schema
from cvgp.cli.options import AsJson, ModelFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["evaluate"]

LEVELS = (50, 90, 95)


def evaluate(
    model_file: ModelFile,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A table that the model has not seen, with the target.")],
    as_json: AsJson = False,
) -> None:
    """Score predictions: error, log-likelihood, CRPS and the share of observations inside the intervals.

    The constant and the linear model predict each row from the other rows of the same table.
    """
    model = load_model(model_file)
    schema = model_schema(model, model_file)

    from cvgp.cli.baselines import FEWEST_ROWS, constant_predictions, linear_predictions
    from cvgp.data.tables import read_table

    x, y = schema.encode_both(read_table(data))
    predictions: dict[str, tuple[Array, Array] | None] = {"cvgp": model.predict(features(schema, x), return_std=True)}
    enough = len(y) >= FEWEST_ROWS
    predictions["linear"] = linear_predictions(x, y) if enough else None
    predictions["constant"] = constant_predictions(y) if enough else None
    scores = {name: None if pair is None else _scores(y, *pair) for name, pair in predictions.items()}
    if as_json:
        print_json({"target": schema.target, "rows": len(y), "scores": scores})
        return
    print(f"{schema.target} in {len(y)} rows of {data}")
    print_table(["", *scores], _rows(scores))
    if enough:
        # Without this a table unlike the training data would seem to show that a straight line predicts better.
        print("linear and constant learn from these rows, each predicted by the others; cvgp has not seen them.")
    else:
        print(f"A constant and a linear model need at least {FEWEST_ROWS} rows.")


def _scores(y: Array, mean: Array, sd: Array) -> dict[str, float]:
    from cvgp import metrics

    return {
        "rmse": metrics.rmse(y, mean),
        "mean_log_likelihood": metrics.mean_log_density(y, mean, sd),
        "crps": metrics.crps(y, mean, sd),
        **{f"coverage_{level}": metrics.coverage(y, mean, sd, level / 100) for level in LEVELS},
    }


def _rows(scores: dict[str, dict[str, float] | None]) -> list[list[str]]:
    labels = {"rmse": "RMSE", "mean_log_likelihood": "mean log-likelihood", "crps": "CRPS"}

    def cell(found: dict[str, float] | None, score: str, form: Any) -> str:
        return "-" if found is None else form(found[score])

    rows = [[label, *(cell(s, name, "{:.4g}".format) for s in scores.values())] for name, label in labels.items()]
    for level in LEVELS:
        shares = [cell(s, f"coverage_{level}", "{:.1%}".format) for s in scores.values()]
        rows.append([f"inside {level} % intervals", *shares])
    return rows
