"""`cvgp evaluate`, `compare`, `report` and `plot`: how good models are, in numbers, on a page and in pictures."""

from __future__ import annotations

import math
import warnings
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from cvgp import plots
from cvgp.cli import options
from cvgp.cli.console import print_json, print_result, print_table, say
from cvgp.cli.fit import Asked
from cvgp.cli.predict import Scored, load_scored, model_schema, scored_rows, scores_of
from cvgp.errors import CVGPWarning, InvalidInputError, printable
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.persistence import load
from cvgp.estimators.predictive import Predictive, score_rows
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.files import TINY, atomic_write
from cvgp.fitting.compare import Scores
from cvgp.fitting.compare import compare as compare_scores
from cvgp.progress import listening, tell
from cvgp.report.page import MODEL_NAMES

MOST_COLUMNS = 4
Data = Annotated[str, typer.Argument(metavar="DATA", help="A table that the model has not seen, with the target.")]


def evaluate(
    context: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(metavar="[MODEL] DATA", help="A model and a table with the target; with --cv a table."),
    ],
    columns: options.ColumnOptions,
    text: options.TextFormat,
    model: options.ModelOptions,
    of_classes: options.ClassOptions,
    training: options.TrainingOfCommand,
    cv: Annotated[
        int | None, typer.Option(metavar="FOLDS", help="Score fits to parts of DATA on the other parts; 5 is usual.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="With --cv, the column to predict.")] = None,
    task: options.TaskOption = None,
    as_json: options.AsJson = False,
) -> None:
    """Score predictions: error, log-likelihood, CRPS and the share of observations inside the intervals.

    DATA should have rows that the model has not seen, or with --cv all rows. The constant and the linear model have
    learned from the rows that the model was fitted to. A classifier has log loss, Brier score, AUC, accuracy and
    calibration error, next to those of the shares of the classes in these rows.
    """
    if cv is not None:
        if len(files) != 1 or target is None:
            raise typer.BadParameter("needs a table and its target: cvgp evaluate --cv 5 DATA --target COLUMN")
        asked = Asked(context, files[0], target, columns, text, model, of_classes, training, task)
        _cross_validate(asked, cv, as_json)
        return
    fits = ("target", "task", *model, *of_classes, *training, *columns)
    if given := [name for name in fits if name != "on_bad_rows" and options.is_given(context, name)]:
        flag = f"--{given[0].replace('_', '-')}"
        raise typer.BadParameter("is for new fits to parts of a table; give --cv 5 too.", param_hint=f"'{flag}'")
    if len(files) != 2:
        raise typer.BadParameter(
            f"needs a model and a table; got {len(files)} name. Without a model: cvgp evaluate --cv 5 DATA --target "
            "COLUMN"
        )
    path, data = Path(files[0]), files[1]
    fitted = load(path)
    rows = load_scored(fitted, path, data, text, columns["on_bad_rows"])
    name, scores = model_schema(fitted, path).target, scores_of(fitted, rows)
    if as_json:
        print_json({"target": name, "rows": len(rows.y), "scores": scores})
        return
    say(f"{printable(str(name))} in {len(rows.y)} rows of {printable(data)}")
    print_table(["", *scores], score_rows(scores))
    if getattr(fitted._gp.likelihood, "is_discrete", False):
        say("Intervals of counts end at whole numbers, and hold more than they claim.")
    if not hasattr(fitted, "_baselines") and isinstance(fitted, CVGPRegressor):
        say("The file has no linear and constant model to compare with.")


def _cross_validate(asked: Asked, folds: int, as_json: bool) -> None:
    """Fit each part of a table without the rows that are scored, and print mean and standard error of each score."""
    found: list[dict[str, dict[str, float]]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("once", CVGPWarning)  # and not for each fold
        table, rows = asked.table(), 0
        for number, (part, test) in enumerate(asked.splits(table, folds=folds)):
            tell("folds", number, folds)
            with listening(None):
                estimator = asked.estimator(part, verbose=False).fit(part)
                scored = scored_rows(estimator, Path(asked.data), test, asked.columns["on_bad_rows"])
                rows += len(scored.y)
                found.append(scores_of(estimator, scored))
    every = pd.concat(map(pd.DataFrame, found)).groupby(level=0, sort=False)
    mean: Any
    error: Any
    mean, error = ({name: own.dropna().to_dict() for name, own in of.items()} for of in (every.mean(), every.sem()))
    if as_json:
        print_json({"target": asked.target, "rows": rows, "folds": folds, "scores": mean, "standard_errors": error})
        return
    say(
        f"{printable(asked.target)} in {rows} rows of {printable(asked.data)}: mean and standard error of {folds} folds"
    )
    cells = zip(score_rows(mean), score_rows(error), strict=True)
    lines = [
        [own[0], *(f"{a} ± {b}" if a else "" for a, b in zip(own[1:], other[1:], strict=True))] for own, other in cells
    ]
    print_table(["", *mean], lines)


def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A model that `cvgp fit` saved.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another model of the same target.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help="A table that neither model has seen, with the target.")],
    text: options.TextFormat,
    rows: options.RowOptions,
    as_json: options.AsJson = False,
) -> None:
    """Compare two models by their predictions of the same rows.

    Differences in log density and in squared error are means over rows, with their standard errors. A positive
    difference means that A is better. Of classes, the squared error is the Brier score.
    """
    models = {path: load(path) for path in (first, second)}
    scored = [load_scored(model, path, data, text, **rows) for path, model in models.items()]
    if len(set(map(type, models.values()))) > 1 or not np.array_equal(scored[0].y, scored[-1].y):
        raise InvalidInputError(
            f"{first} and {second} predict different targets or rows of {data}, so they cannot be compared; fit both "
            "to the same target, with the same --task and --impute."
        )
    a, b = _scores_by_row(models[first], scored[0]), _scores_by_row(models[second], scored[-1])
    found = compare_scores(a, b)
    better = "A" if found.is_clear else "B" if compare_scores(b, a).is_clear else None
    gains = {"log_density": (found.gain, found.gain_error), "squared_error": (found.square_gain, found.square_error)}
    means = {"log_density": (a.density, b.density), "squared_error": (a.squares.mean().item(), b.squares.mean().item())}
    if as_json:
        of_each = {name: dict(zip("AB", values, strict=True)) for name, values in means.items()}
        ahead = {name: dict(zip(("mean", "standard_error"), values, strict=True)) for name, values in gains.items()}
        print_json({"rows": len(a.densities), "better": better, **of_each, "A_ahead_by": ahead})
        return
    say(f"A: {printable(str(first))}\nB: {printable(str(second))}\n{len(a.densities)} rows of {printable(data)}")
    lines = [
        [label, *(f"{value:.4g}" for value in means[name]), f"{gains[name][0]:+.4g} ± {gains[name][1]:.2g}"]
        for name, label in (("log_density", "log density, nats per row"), ("squared_error", "squared error"))
    ]
    print_table(["", "A", "B", "A is ahead by"], lines)
    say("No clear difference." if better is None else f"{better} is clearly better: more than 2 standard errors ahead.")


def _scores_by_row(model: Any, rows: Scored) -> Scores:
    """Log density and squared error of each row."""
    if isinstance(model, CVGPClassifier):
        p, codes = model.predict_proba(rows.inputs), model._codes(rows.y)
        density = np.log(np.maximum(p[np.arange(len(p)), codes], TINY))
        square = ((p - np.eye(p.shape[1])[codes]) ** 2).sum(axis=1)
    else:
        found = Predictive.at(model._gp, rows.inputs, rows.exposure)
        density = found.log_density(rows.y[:, None])[:, 0]
        square = (rows.y - found.moments.mean[:, 0]) ** 2
    return Scores(torch.as_tensor(density), torch.as_tensor(square), torch.ones(len(density), dtype=torch.float64))


def report(
    model_file: options.ModelFile,
    data: Data,
    out: Annotated[Path, typer.Option(help="The page to write: .html.")],
    text: options.TextFormat,
    rows: options.RowOptions,
    train: Annotated[
        str | None,
        typer.Option(help="The table of the fit: finds its rows in DATA, and trains models to compare with."),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a page with scores, calibration, errors, the coreset, the relevance of columns, training and warnings.

    It is one file that needs no network.
    """
    options.check_output(out, model_file, data, train, endings=(".html", ".htm"), overwrite=overwrite)
    model = load(model_file)
    X, y, exposure = load_scored(model, model_file, data, text, **rows)
    seen = None if train is None else load_scored(model, model_file, train, text, **rows)[:2]
    page = model.report(X, y, train=seen, **({} if exposure is None else {"exposure": exposure}))
    page.save(out)
    if as_json:
        print_json({"out": str(out), "scores": page.scores, "cautions": page.cautions})
        return
    scores = {MODEL_NAMES[name]: own for name, own in page.scores.items()}
    print_table(["", *scores], score_rows(scores))
    for words in page.cautions:
        say(f"Caution: {words}")
    say(f"Wrote {out}")


def plot(
    model_file: options.ModelFile,
    out: Annotated[Path, typer.Option(help="The picture to write: .png, .pdf or .svg.")],
    text: options.TextFormat,
    data: Annotated[str | None, typer.Option(help="A table with the target, for pictures of the predictions.")] = None,
    overwrite: options.Overwrite = False,
    as_json: options.AsJson = False,
) -> None:
    """Draw the relevance of columns, what they do, noise, coreset, training, and with a table the predictions.

    Of a classifier, these are relevance and training, and with a table reliability.
    """
    options.check_output(out, model_file, data, endings=(".png", ".pdf", ".svg"), overwrite=overwrite)
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
