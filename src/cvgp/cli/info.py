"""`cvgp info`, `cvgp coreset`, `cvgp merge` and `cvgp prune`: what a model file has, and models made from models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

import cvgp
from cvgp.cli.console import print_result
from cvgp.cli.options import AsJson, ModelFile, OptionsOf, Overwrite, check_output
from cvgp.errors import InvalidInputError, printable
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.display import model_facts
from cvgp.estimators.frames import feature_names, free_names, schema_of, user_columns
from cvgp.estimators.persistence import load
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.plots.drawing import target_name
from cvgp.tables.columns import Column
from cvgp.tables.files import WRITTEN_ENDINGS, write_table

KINDS = {"numeric": "number", "boolean": "true or false", "categorical": "text"}
MISSING = {None: "are learned from, or integrated out", "drop": "leave a row out"}


def info(model_file: ModelFile, as_json: AsJson = False) -> None:
    """Describe a model: its table, its coreset, its kernel, what the fit decided and how it ended."""
    model = load(model_file)
    schema, facts = schema_of(model), {"model": str(model_file), "schema": None, "decisions": None, **summarize(model)}
    text = {"model": str(model_file)}
    if schema is None:
        text["features"] = ", ".join(map(printable, facts["features"]))
    else:
        facts["schema"] = schema.to_json()
        text["target"] = ", ".join(map(printable, schema.targets))
        text["columns"] = "\n".join(_describe(column) for column in schema.columns)
        text["missing values"] = MISSING.get(schema.impute, "are filled")
    text |= model_facts(model)
    if hasattr(model, "decisions_"):
        facts["decisions"] = model.decisions_.to_json()
    print_result(as_json, facts, text)
    if not as_json and hasattr(model, "decisions_"):  # a table of its own, which is too wide for a column
        print("", *map(printable, str(model.decisions_).splitlines()), sep="\n")


def coreset(
    model_file: ModelFile,
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write the coreset: features, target and weight (beta) of each pseudo-point, the heaviest first.

    Values are in the units of the table. Text columns are written as their indicators, which need not be 0 or 1. A
    classifier has log-odds of the second of two classes in the place of the target, or a latent value and a weight for
    each of several classes.
    """
    check_output(out, model_file, endings=WRITTEN_ENDINGS, overwrite=overwrite)
    model = load(model_file)
    coresets = model.coresets_
    points, target, names = coresets[0], target_name(model), feature_names(model)
    outputs = [target] if points.num_outputs == 1 else [f"{target}{t}" for t in range(points.num_outputs)]
    ends = [f"={own}" for own in model.classes_.tolist()] if len(coresets) > 1 else [""]
    names += free_names([f"{name}{end}" for own in (outputs, ["beta"]) for end in ends for name in own], names)
    beta = np.column_stack([own.beta for own in coresets])
    order = np.argsort(-beta.sum(axis=1), kind="stable")
    values = np.column_stack([points.X, *(own.y for own in coresets), beta])[order]
    write_table(pa.table(list(values.T), names=names), out)
    text = f"Wrote {len(points)} pseudo-points to {out}: {', '.join(map(printable, names))}"
    print_result(as_json, {"out": str(out), "points": len(points), "columns": names}, text)


def merge(
    model_files: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Models of tables without common rows.")
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where to save the merged model.")],
    settings: Annotated[
        dict[str, Any],
        OptionsOf(
            cvgp.merge,
            "How to merge",
            ("n_coreset", "random_state"),
            common=("n_coreset",),
            defaults={"random_state": 0},
        ),
    ],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Make one model from models that were fitted to disjoint tables; no data are needed."""
    check_output(out, *model_files, overwrite=overwrite)
    merged = cvgp.merge([load(path) for path in model_files], **settings)
    merged.save(out)
    print_result(as_json, {"model": str(out), **summarize(merged)}, {**model_facts(merged), "saved": str(out)})


def prune(
    model_file: ModelFile,
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where to save the smaller model.")],
    settings: Annotated[dict[str, Any], OptionsOf(CVGPRegressor.prune, "", leave_out=("self",), common=("tolerance",))],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Make a smaller model: leave out the pseudo-points that matter least; no data are needed."""
    check_output(out, model_file, overwrite=overwrite)
    model = load(model_file)
    if isinstance(model, CVGPClassifier):
        raise InvalidInputError(f"{model_file} is a classifier, which cannot be pruned; fit it with fewer --n-coreset.")
    dropped = model.prune(**settings)
    model.save(out)
    text = f"Left out {dropped} of {dropped + len(model.coreset_)} pseudo-points; saved {out}"
    print_result(as_json, {"model": str(out), "points": len(model.coreset_), "left_out": dropped}, text)


def summarize(model: CVGPRegressor | CVGPClassifier) -> dict[str, Any]:
    """The facts of a model as JSON types."""
    points, indices, lengthscales = model._gp.coreset, model.sobol_indices(), model._gp.lengthscales
    columns, names = [column.name for column in user_columns(model)], feature_names(model)
    if isinstance(model, CVGPClassifier):
        own: dict[str, Any] = {
            "classes": model.classes_.tolist(),
            "class_prior": model.class_prior_.tolist(),
            "left_out_log_loss": model.left_out_log_loss_,
        }
    else:
        own = {
            "coreset_effective_size": points.effective_size,
            "n_neighbors": model.n_neighbors_,
            "target_transform": model.target_transform_,
            "outlier_share": model.outlier_share_,
            "noise": model.noise_,
            "heavy_tails": model._gp.tails is not None,
            "noise_sd": np.sqrt(model.noise_variance_).tolist() if model.likelihood_ is None else None,
            "likelihood": model.likelihood,
            "likelihood_parameters": {} if model.likelihood_ is None else asdict(model.likelihood_),
        }
    return {
        "rows": int(model.n_rows_),
        "private": bool(model.private),
        "features": names,
        "coreset_size": len(points),
        "kernel": model.kernel_name_,
        "solver": model.solver_,
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
        "elbo": float(model.elbo_),
        "elbo_per_row": float(model.elbo_) / model.n_rows_,
        "input_warp": model._gp.scaling.warp.name,
        **own,
        "lengthscales": None if lengthscales is None else dict(zip(names, lengthscales.tolist(), strict=True)),
        "feature_importances": dict(zip(columns, indices.total.tolist(), strict=True)),
        "feature_interactions": dict(zip(columns, indices.interaction.tolist(), strict=True)),
        "feature_importances_sd": dict(zip(columns, indices.total_error.tolist(), strict=True)),
    }


def _describe(column: Column) -> str:
    words = [KINDS.get(column.kind, column.kind)]
    if column.period is not None:
        words = [f"number with the period {column.period:g}"]
    if column.kind == "levels":
        words = [f"text of {len(column.categories)} levels"]
    elif values := column.parts if column.kind == "date" else column.categories:
        words = [f"{words[0]}: {', '.join(map(printable, values))}"]
    if column.n_missing:
        words.append(f"{column.n_missing} missing")
    if column.fill is not None and not column.marks_missing:
        words.append(f"missing is {printable(str(column.fill))}")
    return f"{printable(column.name)} ({', '.join(words)})"
