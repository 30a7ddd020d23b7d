"""Scores of the model beside those of simple ones, which have learned from the rows of the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cvgp.estimators.boosted_trees import FEWEST_ROWS, MOST_BINS, BoostedTrees, number_of_bins
from cvgp.estimators.scoring import SCORE_NAMES, score_as_text, scores_of_model, scores_of_normal
from cvgp.report.markup import paragraph, section, table

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated

Scores = dict[str, dict[str, float]]
NAMES = {"cvgp": "this model", "boosting": "gradient boosting", "linear": "linear", "constant": "constant"}


def compare(rows: Evaluated) -> Scores:
    """The scores of each model that there is."""
    scores = {"cvgp": scores_of_model(rows.found, rows.y, rows.output)}
    if rows.boosting is not None:
        inputs = rows.model.gp_.scaling.scale_x(rows.x)
        scores["boosting"] = scores_of_normal(rows.observed, *rows.boosting.predict(inputs))
    if rows.baselines is not None:
        scores["linear"] = scores_of_normal(rows.observed, *rows.baselines.linear(rows.x))
        scores["constant"] = scores_of_normal(rows.observed, *rows.baselines.constant(len(rows.x)))
    return scores


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
        told.append("The constant and the linear model have learned from the rows of the fit.")
    else:
        told.append(
            "A constant and a linear model are missing: the model has stored none. Give the rows of the fit "
            "(<code>train=(X, y)</code>, <code>--train TABLE</code>) to have them."
        )
    told.append(_about_missing_trees(rows) if rows.boosting is None else _about_trees(rows.boosting, rows.x.shape[1]))
    caption = f"Scores on {len(rows.y)} rows"
    return section("scores", "How good are the predictions?", table(caption, head, numbers), paragraph(" ".join(told)))


def _about_trees(trees: BoostedTrees, num_features: int) -> str:
    bins = number_of_bins(num_features)
    settings = "default settings" if bins == MOST_BINS else f"default settings, but {bins} bins per column to save time"
    return (
        f"Gradient boosting (scikit-learn's histogram trees with {settings}) has learned from {trees.num_rows} rows of "
        "the fit. Its interval is as wide as its error on rows of the fit that were held out."
    )


def _about_missing_trees(rows: Evaluated) -> str:
    model = rows.model
    if rows.y.shape[1] > 1:
        reason = "a model of several outputs stores no trees"
    elif hasattr(model, "merged_"):
        reason = "a merged model has seen no rows to learn trees from"
    elif model.n_rows_ < FEWEST_ROWS:
        reason = f"the fit had fewer than {FEWEST_ROWS} rows"
    elif model.max_time is not None:
        reason = "<code>max_time</code> left the fit no time to learn trees, or they were taken out"
    else:
        reason = "the model has stored no trees: it is of an earlier version of cvgp, or had too few different rows"
    return (
        f"Gradient boosting is missing: {reason}. Give the rows of the fit (<code>train=(X, y)</code>, "
        "<code>--train TABLE</code>) to have it."
    )
