"""`cvgp info`: what a model file holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cvgp.cli.console import print_facts, print_json
from cvgp.cli.model_files import load_model
from cvgp.cli.options import AsJson, ModelFile

if TYPE_CHECKING:
    from cvgp.data.schema import Column

__all__ = ["info"]


def info(model_file: ModelFile, as_json: AsJson = False) -> None:
    """Describe a model: its table, its coreset, its kernel and how its fit ended."""
    model = load_model(model_file)

    from cvgp.cli.summary import as_text, summarise
    from cvgp.plots.columns import stored_schema

    schema = stored_schema(model)
    facts = summarise(model)
    if as_json:
        print_json({"model": str(model_file), "schema": None if schema is None else schema.to_json(), **facts})
        return
    text: dict[str, Any] = {"model": str(model_file)}
    if schema is None:
        text["features"] = ", ".join(facts["features"])
    else:
        text["target"] = schema.target
        text["columns"] = "\n".join(_describe(column) for column in schema.columns)
        text["missing values"] = {None: "are an error", "drop": "leave a row out"}.get(schema.impute, "are filled")
    print_facts(text | as_text(facts, model))


def _describe(column: Column) -> str:
    kind = {"numeric": "number", "boolean": "true or false", "categorical": "text"}[column.kind]
    values = f": {', '.join(column.categories)}" if column.categories else ""
    fill = "" if column.fill is None else f", missing is {column.fill}"
    return f"{column.name} ({kind}{values}{fill})"
