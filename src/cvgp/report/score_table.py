"""Scores of the model beside those of simple ones, which have learned from rows of the fit and not from these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.rows import Array
from cvgp.estimators.scoring import SCORE_NAMES, score_as_text, scores_of_model, scores_of_normal
from cvgp.report.markup import paragraph, section, table

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated

Scores = dict[str, dict[str, float]]
BOOSTING_ROWS = 20_000
"""Rows that gradient boosting is learned from, at most."""
FEWEST_ROWS = 20
NAMES = {"cvgp": "this model", "boosting": "gradient boosting", "linear": "linear", "constant": "constant"}


def compare(rows: Evaluated) -> Scores:
    """The scores of each model that there is."""
    scores = {"cvgp": scores_of_model(rows.found, rows.y, rows.output)}
    if rows.train is not None and len(rows.train[0]) >= FEWEST_ROWS:
        x, y = rows.train
        scores["boosting"] = scores_of_normal(rows.observed, *boosting(x, y[:, rows.output], rows.x))
    if rows.baselines is not None:
        scores["linear"] = scores_of_normal(rows.observed, *rows.baselines.linear(rows.x))
        scores["constant"] = scores_of_normal(rows.observed, *rows.baselines.constant(len(rows.x)))
    return scores


def boosting(x: Array, y: Array, x_new: Array) -> tuple[Array, Array]:
    """Means and standard deviations [n] by scikit-learn's histogram gradient boosting.

    The standard deviation is the error on a fifth of the rows, by trees that have learned from the others.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor  # takes a while to import

    order = np.random.default_rng(0).permutation(len(x))[:BOOSTING_ROWS]
    held, others = np.array_split(order, [len(order) // 5])
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False)
    error = y[held] - trees.fit(x[others], y[others]).predict(x[held])
    floor = 1e-6 * max(float(np.abs(y).max()), float(np.finfo(np.float64).tiny))
    sd = max(float(np.sqrt(np.mean(error**2))), floor)
    return trees.fit(x[order], y[order]).predict(x_new), np.full(len(x_new), sd)


def comparison_section(rows: Evaluated, scores: Scores) -> str:
    """A table of scores, and where the other models come from."""
    numbers = [
        [label, *(score_as_text(name, found[name]) for found in scores.values())] for name, label in SCORE_NAMES.items()
    ]
    head = ["score", *(NAMES[name] for name in scores)]
    told = [
        "RMSE and CRPS are errors in the unit of the target: lower is better. The log-likelihood is in nats per row: "
        "higher is better. Intervals should hold as many observations as they claim."
    ]
    if "linear" in scores:
        told.append("The constant and the linear model have learned from rows of the fit, not from these rows.")
    else:
        told.append(
            "A constant and a linear model are missing: the model has stored none. Give the rows of the fit "
            "(<code>train=(X, y)</code>, <code>--train TABLE</code>) to have them."
        )
    if "boosting" in scores and rows.train is not None:
        count = min(len(rows.train[0]), BOOSTING_ROWS)
        told.append(
            f"Gradient boosting (scikit-learn's histogram trees with default settings) has learned from {count} rows "
            "of the fit. Its interval is as wide as its error on a fifth of them."
        )
    else:
        told.append(
            "Gradient boosting is missing: a model file holds no trees, and this one holds no rows of the fit to learn "
            "them from. Give these rows (<code>train=(X, y)</code>, <code>--train TABLE</code>) to have it."
        )
    caption = f"Scores on {len(rows.y)} rows"
    return section("scores", "How good are the predictions?", table(caption, head, numbers), paragraph(" ".join(told)))
