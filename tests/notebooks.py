"""Notebooks are run without Jupyter: each cell of code in one namespace, with what it prints and its last value.

``python -m tests.notebooks`` writes the outputs into every notebook of `examples/`, as they are shown where it is read.
"""

import ast
import base64
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


def code_cells(notebook: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run(notebook: Path) -> Iterator[list[dict[str, Any]]]:
    """The outputs of each cell of code, in the format of the file."""
    names: dict[str, Any] = {}
    for number, cell in enumerate(code_cells(notebook), start=1):
        tree, where = ast.parse("".join(cell["source"])), f"{notebook.name}[{number}]"
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(tree, where, "exec"), names)
            value = None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)
        outputs: list[dict[str, Any]] = []
        if printed.getvalue():
            outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
        if value is not None:
            data = {"execution_count": number, "metadata": {}, "data": shown(value)}
            outputs.append({"output_type": "execute_result", **data})
        yield outputs


def shown(value: Any) -> dict[str, Any]:
    """A value as Jupyter would show it."""
    if hasattr(value, "savefig"):
        file = io.BytesIO()
        value.savefig(file, format="png", dpi=80)
        return {"text/plain": [repr(value)], "image/png": base64.b64encode(file.getvalue()).decode()}
    html = {"text/html": value._repr_html_().splitlines(True)} if hasattr(value, "_repr_html_") else {}
    return {"text/plain": repr(value).splitlines(True), **html}


def write_outputs(notebook: Path) -> None:
    """Run a notebook in an empty folder, and store what its cells show."""
    stored = json.loads(notebook.read_text(encoding="utf-8"))
    own = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, (cell, outputs) in enumerate(zip(own, run(notebook), strict=True), start=1):
            cell |= {"outputs": outputs, "execution_count": number}
    notebook.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + os.linesep, encoding="utf-8")


if __name__ == "__main__":
    for path in NOTEBOOKS:
        write_outputs(path)
