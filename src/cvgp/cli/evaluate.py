"""`cvgp evaluate`: how good predictions are, beside those of a constant and a linear model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import cvgp
from cvgp.cli.console import note_reading, print_json, print_table
from cvgp.cli.model_files import features, model_schema
from cvgp.cli.options import AsJson, Decimal, Encoding, ModelFile, Sep, Thousands, csv_options

if TYPE_CHECKING:
    from cvgp.data.rows import Array
    from cvgp.estimators.regressor import CVGPRegressor

LEVELS = (50, 90, 95)


def evaluate(
    model_file: ModelFile,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table that the model has not seen, with the target.")],
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Score predictions: error, log-likelihood, CRPS and the share of observations inside the intervals.

    The constant and the linear model have learned from the rows that the model was fitted to.
    """
    model = cvgp.load(model_file)
    schema = model_schema(model, model_file)

    from cvgp.cli.baselines import Baselines
    from cvgp.data.tables.by_schema import load_rows

    x, y = load_rows(data, schema, csv_options(sep, decimal, thousands, encoding), note_reading)
    scores = {"cvgp": _scores_of(model, features(schema, x), y)}
    stored = getattr(model, "baselines_", None)
    if stored is not None:
        simple = Baselines.from_json(stored, x.shape[1])
        predictions = {"linear": simple.linear(x), "constant": simple.constant(len(y))}
        scores |= {name: _scores(y, *pair) for name, pair in predictions.items()}
    if as_json:
        print_json({"target": schema.target, "rows": len(y), "scores": scores})
        return
    print(f"{schema.target} in {len(y)} rows of {data}")
    print_table(["", *scores], _rows(scores))
    if stored is None:
        print("The file holds no linear and constant model to compare with; `cvgp fit` stores them.")


def _scores_of(model: CVGPRegressor, x: Any, y: Array) -> dict[str, float]:
    """Those of the model, whose predictions need not be Gaussian."""
    import numpy as np

    from cvgp import metrics
    from cvgp.estimators.inputs import check_prediction
    from cvgp.estimators.new_observations import Predictive

    found = Predictive.at(model.gp_, check_prediction(model, x))
    mean, sd = found.moments.mean[:, 0], np.sqrt(found.moments.variance[:, 0])
    is_gaussian = model.target_ == "identity" and model.outlier_share_ == 0.0
    halves = np.array(LEVELS) / 200
    ends = found.quantiles(np.append(0.5 - halves, 0.5 + halves))[:, 0]  # [n, 2 L]
    inside = (ends[:, : len(LEVELS)] <= y[:, None]) & (y[:, None] <= ends[:, len(LEVELS) :])
    return {
        "rmse": metrics.rmse(y, mean),
        "mean_log_likelihood": float(found.log_density(y[:, None]).mean()),
        "crps": metrics.crps(y, mean, sd) if is_gaussian else float(found.crps(y[:, None]).mean()),
        **{f"coverage_{level}": float(share) for level, share in zip(LEVELS, inside.mean(axis=0), strict=True)},
    }


def _scores(y: Array, mean: Array, sd: Array) -> dict[str, float]:
    from cvgp import metrics

    return {
        "rmse": metrics.rmse(y, mean),
        "mean_log_likelihood": metrics.mean_log_density(y, mean, sd),
        "crps": metrics.crps(y, mean, sd),
        **{f"coverage_{level}": metrics.coverage(y, mean, sd, level / 100) for level in LEVELS},
    }


def _rows(scores: dict[str, dict[str, float]]) -> list[list[str]]:
    labels = {"rmse": "RMSE", "mean_log_likelihood": "mean log-likelihood", "crps": "CRPS"}
    rows = [[label, *(f"{found[name]:.4g}" for found in scores.values())] for name, label in labels.items()]
    for level in LEVELS:
        shares = [f"{found[f'coverage_{level}']:.1%}" for found in scores.values()]
        rows.append([f"inside {level} % intervals", *shares])
    return rows
