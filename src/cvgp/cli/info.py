"""`cvgp info`, `cvgp coreset` and `cvgp merge`: what a model file has, and models made from models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import cvgp
from cvgp.cli.console import print_facts, print_json, say
from cvgp.cli.options import AsJson, ModelFile, Overwrite, check_output, command, options_of
from cvgp.errors import printable
from cvgp.estimators.frames import feature_names, schema_of, user_columns

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor
    from cvgp.tables.columns import Column

MOST_FEATURES = 5
RARE = 0.001
"""The share of observations by which tails are described; for a normal distribution these are more than 3.3 sd off."""
KINDS = {"numeric": "number", "boolean": "true or false", "categorical": "text"}
MISSING = {None: "are learned from, or integrated out", "drop": "leave a row out"}
TRANSFORMS = {"log": "logarithm", "yeo-johnson": "Yeo-Johnson transform"}


def info(model_file: ModelFile, as_json: AsJson = False) -> None:
    """Describe a model: its table, its coreset, its kernel, what the fit decided and how it ended."""
    model = cvgp.load(model_file)
    schema, facts = schema_of(model), summarize(model)
    decisions = getattr(model, "decisions_", None)
    if as_json:
        read_by = None if schema is None else schema.to_json()
        print_json(
            {
                "model": str(model_file),
                "schema": read_by,
                **facts,
                "decisions": None if decisions is None else decisions.to_json(),
            }
        )
        return
    text = {"model": str(model_file)}
    if schema is None:
        text["features"] = ", ".join(map(printable, facts["features"]))
    else:
        text["target"] = ", ".join(map(printable, schema.targets))
        text["columns"] = "\n".join(_describe(column) for column in schema.columns)
        text["missing values"] = MISSING.get(schema.impute, "are filled")
    print_facts(text | as_text(facts, model) | ({} if decisions is None else {"decisions": str(decisions)}))


def coreset(
    model_file: ModelFile,
    out: Annotated[Path, typer.Option(help="The table to write; its ending says the format.")],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write the coreset: features, target and weight (beta) of each pseudo-point, the heaviest first.

    Values are in the units of the table. Text columns are written as their indicators, which need not be 0 or 1.
    """
    import pyarrow as pa

    from cvgp.cli.predict import free_names
    from cvgp.plots.drawing import target_name
    from cvgp.tables.locate import WRITTEN_ENDINGS
    from cvgp.tables.write import write_table

    check_output(out, model_file, endings=WRITTEN_ENDINGS, overwrite=overwrite, kind="table")
    model = cvgp.load(model_file)
    points, target = model.coreset_, target_name(model)
    outputs = [target] if points.num_outputs == 1 else [f"{target}{t}" for t in range(points.num_outputs)]
    names = feature_names(model)
    names += free_names([*outputs, "beta"], names)
    order = np.argsort(-points.beta, kind="stable")
    values = np.column_stack([points.X, points.y, points.beta])[order]
    write_table(pa.table(list(values.T), names=names), out)
    if as_json:
        print_json({"out": str(out), "points": len(points), "columns": names})
    else:
        say(f"Wrote {len(points)} pseudo-points to {out}: {', '.join(map(printable, names))}")


def merge(
    model_files: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Models of tables without common rows.")
    ],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where to save the merged model.")],
    settings: dict[str, Any],
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Make one model from models that were fitted to disjoint tables; no data are needed."""
    check_output(out, *model_files, overwrite=overwrite)
    merged = cvgp.merge([cvgp.load(path) for path in model_files], **settings)
    merged.save(out)
    facts = summarize(merged)
    if as_json:
        print_json({"model": str(out), **facts})
    else:
        print_facts({**as_text(facts, merged), "saved": str(out)})


def build(name: str) -> Any:
    """One of the commands."""
    if name == "merge":
        return command(merge, settings=options_of(cvgp.merge, "How to merge", leave_out=("models",), random_state=0))
    return command(coreset if name == "coreset" else info)


def summarize(model: CVGPRegressor) -> dict[str, Any]:
    """The facts of a model as JSON types."""
    points, indices, lengthscales = model.coreset_, model.sobol_indices(), model.lengthscales_
    columns, names = [column.name for column in user_columns(model)], feature_names(model)
    scaling = model._gp.scaling
    shares = scaling.warp.shares.round(4).tolist()
    return {
        "rows": int(model.n_rows_),
        "features": names,
        "coreset_size": len(points),
        "coreset_effective_size": points.effective_size,
        "n_neighbors": model.n_neighbors_,
        "kernel": model.kernel_name_,
        "ard": any(getattr(part, "ard_num_dims", None) is not None for part in model.model_.kernel.modules()),
        "solver": model.solver_,
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
        "elbo": float(model.elbo_),
        "elbo_per_row": float(model.elbo_) / model.n_rows_,
        "target_transform": model.target_transform_,
        "input_warp": model.input_warp_,
        "rank_shares": None if model.input_warp_ == "identity" else dict(zip(names, shares, strict=True)),
        "outlier_share": model.outlier_share_,
        "noise": model.noise_,
        "heavy_tails": model._gp.tails is not None,
        "weighs_rows_by_noise": model._gp.weighs_rows,
        "noise_sd": np.sqrt(model.noise_variance_).tolist(),
        "lengthscales": None if lengthscales is None else dict(zip(names, lengthscales.tolist(), strict=True)),
        "feature_importances": dict(zip(columns, indices.total.tolist(), strict=True)),
        "feature_importances_sd": dict(zip(columns, indices.total_uncertainty.tolist(), strict=True)),
        "first_order_importances": dict(zip(columns, indices.first_order.tolist(), strict=True)),
    }


def as_text(facts: dict[str, Any], model: CVGPRegressor) -> dict[str, str]:
    """The same facts for people, only the most important ones."""
    unit = "evaluations" if facts["solver"] == "lbfgs" else "steps"
    ended = "converged" if facts["converged"] else "stopped before it converged"
    bound = f"{facts['elbo_per_row']:.4f} nats per row"
    if facts["target_transform"] == "identity":
        standardized = facts["elbo_per_row"] + float(np.log(model._gp.scaling.y_scale).sum())
        bound += f" ({standardized:.4f} with y standardized)"
    sizes = f"{facts['coreset_size']} points for {facts['rows']} rows"
    text = {
        "solver": f"{facts['solver']}, {facts['iterations']} {unit}, {ended}",
        "coreset": f"{sizes} (effective size {facts['coreset_effective_size']:.0f})",
        "neighbors": f"{facts['n_neighbors']} nearest rows for each prediction, so the file has all training rows"
        if facts["n_neighbors"]
        else "none, so the file has no training rows but points of the coreset",
        "kernel": facts["kernel"] + (", one lengthscale per feature" if facts["ard"] else ", one lengthscale"),
        "bound": bound,
        "noise sd": ", ".join(f"{sd:.4g}" for sd in np.atleast_1d(facts["noise_sd"])),
    }
    if facts["target_transform"] != "identity":
        text["target"] = f"modeled by its {TRANSFORMS[facts['target_transform']]}, which the noise is that of"
    if facts["rank_shares"] is not None:
        warped = [name for name, share in facts["rank_shares"].items() if share > 0]
        text["inputs"] = f"{len(warped)} of {len(facts['features'])} features mixed with their ranks"
    if facts["outlier_share"] > 0:
        text["outliers"] = f"{facts['outlier_share']:.1%} of the rows are gross outliers, with little weight in the fit"
    if facts["noise"] == "input-dependent":
        text["noise sd"] += " as a constant; it depends on the features"
        text["rows"] = f"weighted {'by their own noise' if facts['weighs_rows_by_noise'] else 'equally'} in the fit"
    if (tails := model._gp.tails) is not None:
        farthest = float(tails.quantiles(1.0 - RARE / 2.0))
        text["tails"] = f"heavier than normal: 1 in {1.0 / RARE:.0f} observations is more than {farthest:.1f} sd off"
    ranked = sorted(facts["feature_importances"].items(), key=lambda item: item[1], reverse=True)
    spread = facts["feature_importances_sd"]
    needed = ", ".join(f"{printable(name)} {value:.2f} ± {spread[name]:.2f}" for name, value in ranked[:MOST_FEATURES])
    text["importance"] = f"{needed} (the share of the variance of predictions that needs the column)"
    return text


def _describe(column: Column) -> str:
    kind = KINDS.get(column.kind, column.kind)
    if column.kind == "levels":
        kind = f"text of {len(column.categories)} levels"
    values = ", ".join(map(printable, column.parts if column.kind == "date" else column.categories))
    words = [f"{kind}: {values}" if values and column.kind != "levels" else kind]
    if column.n_missing:
        words.append(f"{column.n_missing} missing")
    if column.fill is not None and not column.marks_missing:
        words.append(f"missing is {printable(str(column.fill))}")
    return f"{printable(column.name)} ({', '.join(words)})"
