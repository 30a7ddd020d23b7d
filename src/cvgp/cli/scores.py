"""`cvgp evaluate`, `cvgp report` and `cvgp plot`: how good a model is, in numbers, on a page and in pictures."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from cvgp import plots
from cvgp.cli.console import print_json, print_result, print_table, say
from cvgp.cli.options import AsJson, ModelFile, Overwrite, TextFormat, check_output
from cvgp.cli.predict import load_scored, model_schema
from cvgp.errors import printable
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.persistence import load
from cvgp.estimators.predictive import Predictive, score_rows, scores_of_model
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.files import atomic_write
from cvgp.report.facts import scores_of_baselines, scores_of_classes
from cvgp.report.page import MODEL_NAMES

MOST_COLUMNS = 4
Data = Annotated[str, typer.Argument(metavar="DATA", help="A table that the model has not seen, with the target.")]


def evaluate(model_file: ModelFile, data: Data, text: TextFormat, as_json: AsJson = False) -> None:
    """Score predictions: error, log-likelihood, CRPS and the share of observations inside the intervals.

    The constant and the linear model have learned from the rows that the model was fitted to. A classifier has log
    loss, Brier score, AUC, accuracy and calibration error, next to those of the shares of the classes in these rows.
    """
    model = load(model_file)
    target, simple = model_schema(model, model_file).target, getattr(model, "_baselines", None)
    inputs, y, exposure = load_scored(model, model_file, data, text)
    if isinstance(model, CVGPClassifier):
        scores = scores_of_classes(model, model.predict_proba(inputs), model._codes(y))
    else:
        own = scores_of_model(Predictive.at(model._gp, inputs, exposure), y[:, None])
        scores = {"cvgp": own, **scores_of_baselines(simple, inputs.x, y)}
    if as_json:
        print_json({"target": target, "rows": len(y), "scores": scores})
        return
    say(f"{printable(str(target))} in {len(y)} rows of {printable(data)}")
    _print_scores(scores)
    if getattr(model._gp.likelihood, "is_discrete", False):
        say("Intervals of counts end at whole numbers, and hold more than they claim.")
    if simple is None and isinstance(model, CVGPRegressor):
        say("The file has no linear and constant model to compare with.")


def report(
    model_file: ModelFile,
    data: Data,
    out: Annotated[Path, typer.Option(help="The page to write: .html.")],
    text: TextFormat,
    train: Annotated[
        str | None,
        typer.Option(help="The table of the fit: finds its rows in DATA, and trains models to compare with."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a page with scores, calibration, errors, the coreset, the relevance of columns, training and warnings.

    It is one file that needs no network.
    """
    check_output(out, model_file, data, train, endings=(".html", ".htm"), overwrite=overwrite)
    model = load(model_file)
    X, y, exposure = load_scored(model, model_file, data, text)
    others = None if train is None else load_scored(model, model_file, train, text)[:2]
    page = model.report(X, y, train=others, **({} if exposure is None else {"exposure": exposure}))
    page.save(out)
    if as_json:
        print_json({"out": str(out), "scores": page.scores, "cautions": page.cautions})
        return
    _print_scores({MODEL_NAMES[name]: own for name, own in page.scores.items()})
    for words in page.cautions:
        say(f"Caution: {words}")
    say(f"Wrote {out}")


def plot(
    model_file: ModelFile,
    out: Annotated[Path, typer.Option(help="The picture to write: .png, .pdf or .svg.")],
    text: TextFormat,
    data: Annotated[str | None, typer.Option(help="A table with the target, for pictures of the predictions.")] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Draw the relevance of columns, what they do, noise, coreset, training, and with a table the predictions.

    Of a classifier, these are relevance and training, and with a table reliability.
    """
    check_output(out, model_file, data, endings=(".png", ".pdf", ".svg"), overwrite=overwrite)
    model = load(model_file)
    drawings: dict[str, Any] = {"relevance": partial(plots.plot_relevance, model)}
    if isinstance(model, CVGPRegressor):
        for name in plots.columns_by_importance(model)[:MOST_COLUMNS]:
            drawings[f"dependence on {name}"] = partial(plots.plot_partial_dependence, model, name)
        if model.noise_ == "input-dependent":
            drawings["noise"] = partial(plots.plot_noise, model)
        drawings |= {name: partial(getattr(plots, f"plot_{name}"), model) for name in ("coreset", "weights")}
    drawings["training"] = partial(plots.plot_training, model)
    if data is not None:
        X, y, exposure = load_scored(model, model_file, data, text)
        if isinstance(model, CVGPClassifier):
            drawings["reliability"] = partial(plots.plot_reliability, model, X, y)
        else:
            drawings["predictions"] = partial(plots.plot_predicted, model, X, y, exposure=exposure)
            drawings["calibration"] = partial(plots.plot_calibration, model, X, y, exposure=exposure)
    across = 4 if len(drawings) > 6 else min(3, len(drawings))
    down = math.ceil(len(drawings) / across)
    figure = Figure(figsize=(4.4 * across, 3.7 * down), layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1))
    for position, draw in enumerate(drawings.values(), start=1):
        draw(ax=figure.add_subplot(down, across, position))
    with atomic_write(out) as temporary:
        figure.savefig(temporary, format=out.suffix[1:].lower(), dpi=110)
    said = f"Wrote {out}: {', '.join(map(printable, drawings))}"
    print_result(as_json, {"out": str(out), "pictures": list(drawings)}, said)


def _print_scores(scores: dict[str, dict[str, float]]) -> None:
    print_table(["", *scores], score_rows(scores))
