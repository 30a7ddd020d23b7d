"""`cvgp info`: what there is to say about a fitted model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvgp
from cvgp.cli.console import print_facts, print_json
from cvgp.cli.options import AsJson, ModelFile
from cvgp.printable import printable

if TYPE_CHECKING:
    from cvgp.data.columns import Column
    from cvgp.estimators.regressor import CVGPRegressor

MOST_FEATURES = 5
RARE = 0.001
"""The share of observations by which tails are described; of normal ones so many are more than 3.3 sd off."""
KINDS = {
    "numeric": "number",
    "boolean": "true or false",
    "categorical": "text",
    "levels": "text",
    "ordered": "ordered",
    "date": "date",
}
MISSING = {None: "are learned from, or integrated out", "drop": "leave a row out"}
TRANSFORMS = {"log": "logarithm", "yeo-johnson": "Yeo-Johnson transform"}


def info(model_file: ModelFile, as_json: AsJson = False) -> None:
    """Describe a model: its table, its coreset, its kernel and how its fit ended."""
    model = cvgp.load(model_file)

    from cvgp.estimators.frames import schema_of

    schema = schema_of(model)
    facts = summarise(model)
    if as_json:
        print_json({"model": str(model_file), "schema": None if schema is None else schema.to_json(), **facts})
        return
    text: dict[str, Any] = {"model": str(model_file)}
    if schema is None:
        text["features"] = ", ".join(map(printable, facts["features"]))
    else:
        text["target"] = ", ".join(map(printable, schema.targets))
        text["columns"] = "\n".join(_describe(column) for column in schema.columns)
        text["missing values"] = MISSING.get(schema.impute, "are filled")
    print_facts(text | as_text(facts, model))


def summarise(model: CVGPRegressor) -> dict[str, Any]:
    """The facts of a model as JSON types."""
    import numpy as np

    from cvgp.estimators.frames import feature_names
    from cvgp.estimators.packed_fit import pack_rows
    from cvgp.estimators.user_columns import user_columns

    coreset = model.coreset_
    stored = pack_rows(None if model.gp_.local is None else model.gp_.local.kept, model.gp_.scaling)
    indices = model.sobol_indices()
    columns = [column.name for column in user_columns(model)]
    lengthscales = model.lengthscales_
    names = feature_names(model)
    shares = model.gp_.scaling.warp.shares.round(4).tolist()
    # JSON has no infinity, which is the lengthscale of a constant column.
    finite = [] if lengthscales is None else [v if np.isfinite(v) else None for v in lengthscales.tolist()]
    return {
        "rows": int(model.n_rows_),
        "features": names,
        "coreset_size": len(coreset),
        "coreset_effective_size": coreset.effective_size,
        "neighbors": model.n_neighbors_,
        "holds_training_rows": model.n_neighbors_ > 0,
        "training_rows_in": sorted({str(stored[name].dtype) for name in ("rows.x", "rows.y") if name in stored}),
        "kernel": model.kernel_name_,
        "ard": any(getattr(part, "ard_num_dims", None) is not None for part in model.model_.kernel.modules()),
        "solver": model.solver_,
        "iterations": int(model.n_iter_),
        "converged": bool(model.converged_),
        "elbo": float(model.elbo_),
        "elbo_per_row": float(model.elbo_) / model.n_rows_,
        "target_transform": model.target_,
        "inputs": model.inputs_,
        "rank_shares": None if model.inputs_ == "identity" else dict(zip(names, shares, strict=True)),
        "outlier_share": model.outlier_share_,
        "noise": model.noise_,
        "heavy_tails": model.gp_.tails is not None,
        "weighs_rows_by_noise": model.gp_.weighs_rows,
        "noise_sd": np.sqrt(model.noise_variance_).tolist(),
        "lengthscales": None if lengthscales is None else dict(zip(names, finite, strict=True)),
        "feature_importances": dict(zip(columns, indices.total.tolist(), strict=True)),
        "feature_importances_sd": dict(zip(columns, indices.total_uncertainty.tolist(), strict=True)),
        "first_order_importances": dict(zip(columns, indices.first_order.tolist(), strict=True)),
    }


def as_text(facts: dict[str, Any], model: CVGPRegressor) -> dict[str, str]:
    """The same facts for people, the most telling ones only."""
    import numpy as np

    unit = "evaluations" if facts["solver"] == "lbfgs" else "steps"
    ended = "converged" if facts["converged"] else "stopped before it converged"
    bound = f"{facts['elbo_per_row']:.4f} nats per row"
    if facts["target_transform"] == "identity":
        standardised = facts["elbo_per_row"] + float(np.log(model.gp_.scaling.y_scale).sum())
        bound += f" ({standardised:.4f} with y standardised)"
    sizes = f"{facts['coreset_size']} points for {facts['rows']} rows"
    text = {
        "solver": f"{facts['solver']}, {facts['iterations']} {unit}, {ended}",
        "coreset": f"{sizes} (effective size {facts['coreset_effective_size']:.0f})",
        "neighbours": f"{facts['neighbors']} nearest rows for each prediction, so the file holds all training rows "
        f"({' and '.join(facts['training_rows_in'])})"
        if facts["holds_training_rows"]
        else "none, so the file holds no training rows but points of the coreset",
        "kernel": facts["kernel"] + (", one lengthscale per feature" if facts["ard"] else ", one lengthscale"),
        "bound": bound,
        "noise sd": ", ".join(f"{sd:.4g}" for sd in np.atleast_1d(facts["noise_sd"])),
    }
    if facts["target_transform"] != "identity":
        text["target"] = f"described by its {TRANSFORMS[facts['target_transform']]}, which the noise is that of"
    if facts["rank_shares"] is not None:
        warped = {name: share for name, share in facts["rank_shares"].items() if share > 0}
        most = sorted(warped.items(), key=lambda item: item[1], reverse=True)[:MOST_FEATURES]
        listed = ", ".join(f"{printable(name)} {share:.0%}" for name, share in most)
        text["inputs"] = f"{len(warped)} of {len(facts['features'])} features mixed with their ranks ({listed})"
    if facts["outlier_share"] > 0:
        text["outliers"] = f"{facts['outlier_share']:.1%} of the rows are wildly wrong; they hardly count"
    if facts["noise"] == "input-dependent":
        text["noise sd"] += " as a constant; it depends on the features"
        text["tails"] = "normal"
        text["rows"] = (
            f"{'weighed by their own noise' if facts['weighs_rows_by_noise'] else 'of equal noise'} in the fit"
        )
    if (tails := model.gp_.tails) is not None:
        farthest = float(tails.quantiles(1.0 - RARE / 2.0))
        text["tails"] = f"heavier than normal: 1 in {1.0 / RARE:.0f} observations is more than {farthest:.1f} sd off"
    ranked = sorted(facts["feature_importances"].items(), key=lambda item: item[1], reverse=True)
    spread = facts["feature_importances_sd"]
    needed = ", ".join(f"{printable(name)} {value:.2f} ± {spread[name]:.2f}" for name, value in ranked[:MOST_FEATURES])
    text["importance"] = f"{needed} (the share of the variance of predictions that needs the column)"
    return text


def _describe(column: Column) -> str:
    kind = KINDS[column.kind]
    if column.kind == "levels":
        kind = f"text of {len(column.categories)} levels"
    values = ", ".join(map(printable, column.parts if column.kind == "date" else column.categories))
    words = [f"{kind}: {values}" if values and column.kind != "levels" else kind]
    if column.n_missing:
        words.append(f"{column.n_missing} missing")
    if column.fill is not None and not column.marks_missing:
        words.append(f"missing is {printable(str(column.fill))}")
    return f"{printable(column.name)} ({', '.join(words)})"
