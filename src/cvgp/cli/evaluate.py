"""`cvgp evaluate`: how good predictions are, beside those of a constant and a linear model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cvgp.cli.console import print_json, print_table
from cvgp.cli.model_files import features, load_model, model_schema
from cvgp.cli.options import AsJson, ModelFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cvgp.estimators.regressor import CVGPRegressor

    Array = NDArray[np.float64]

__all__ = ["evaluate"]

LEVELS = (50, 90, 95)


def evaluate(
    model_file: ModelFile,
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table that the model has not seen, with the target.")],
    as_json: AsJson = False,
) -> None:
    """Score predictions: error, log-likelihood, CRPS and the share of observations inside the intervals.

    The constant and the linear model have learned from the rows that the model was fitted to.
    """
    model = load_model(model_file)
    schema = model_schema(model, model_file)

    from cvgp.cli.baselines import Baselines
    from cvgp.data.tables.by_schema import load_rows

    x, y = load_rows(data, schema)
    own = features(schema, x)
    predictions = {"cvgp": model.predict(own, return_std=True)}
    stored = getattr(model, "baselines_", None)
    if stored is not None:
        simple = Baselines.from_json(stored, x.shape[1])
        predictions |= {"linear": simple.linear(x), "constant": simple.constant(len(y))}
    scores = {name: _scores(y, *pair) for name, pair in predictions.items()}
    scores["cvgp"] |= _own_scores(model, own, y)
    if as_json:
        print_json({"target": schema.target, "rows": len(y), "scores": scores})
        return
    print(f"{schema.target} in {len(y)} rows of {data}")
    print_table(["", *scores], _rows(scores))
    if stored is None:
        print("The file holds no linear and constant model to compare with; `cvgp fit` stores them.")


def _scores(y: Array, mean: Array, sd: Array) -> dict[str, float]:
    from cvgp import metrics

    return {
        "rmse": metrics.rmse(y, mean),
        "mean_log_likelihood": metrics.mean_log_density(y, mean, sd),
        "crps": metrics.crps(y, mean, sd),
        **{f"coverage_{level}": metrics.coverage(y, mean, sd, level / 100) for level in LEVELS},
    }


def _own_scores(model: CVGPRegressor, x: Array, y: Array) -> dict[str, float]:
    """What depends on the shape of the predictive distribution, which need not be normal."""
    import numpy as np

    found = {"mean_log_likelihood": float(np.mean(model.log_predictive_density(x, y)))}
    for level in LEVELS:
        low, high = model.predict_quantiles(x, [0.5 - level / 200, 0.5 + level / 200]).T
        found[f"coverage_{level}"] = float(np.mean((low <= y) & (y <= high)))
    return found


def _rows(scores: dict[str, dict[str, float]]) -> list[list[str]]:
    labels = {"rmse": "RMSE", "mean_log_likelihood": "mean log-likelihood", "crps": "CRPS"}
    rows = [[label, *(f"{found[name]:.4g}" for found in scores.values())] for name, label in labels.items()]
    for level in LEVELS:
        shares = [f"{found[f'coverage_{level}']:.1%}" for found in scores.values()]
        rows.append([f"inside {level} % intervals", *shares])
    return rows
