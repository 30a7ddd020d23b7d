"""What mkdocs adds to the pages when it builds them: the options of every command, and the code of every example."""

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
COMMANDS = "<!-- commands -->"
WIDTH = 90
"""Characters of a line of help: what a page shows without scrolling."""
EXAMPLE = re.compile(r"^\[examples/(\w+)\.py\]\(\.\./examples/\1\.py\)$", re.MULTILINE)


def on_startup(**_: Any) -> None:
    """Print the types of docstrings such as {"log", "yeo-johnson"} as they are; griffe reads their strings as code."""
    from griffe._internal.docstrings import numpy

    parse = numpy.parse_docstring_annotation

    def parse_unless_literal(annotation: str, *args: Any, **kwargs: Any) -> Any:
        return annotation if '"' in annotation else parse(annotation, *args, **kwargs)

    numpy.parse_docstring_annotation = parse_unless_literal


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with its generated parts."""
    if page.file.src_uri == "commands.md":
        return markdown.replace(COMMANDS, commands())
    if page.file.src_uri == "gallery.md":
        return EXAMPLE.sub(lambda match: folded_code(match[1]), markdown)
    return markdown


def folded_code(name: str) -> str:
    """The code of an example, behind one line that opens it."""
    code = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    lines = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
    return f'??? example "examples/{name}.py"\n\n    ```python\n{lines}\n    ```'


def commands() -> str:
    """The help of every command, as the program prints it without boxes and colours."""
    os.environ["TYPER_USE_RICH"] = "0"  # read when typer is imported
    import typer
    from typer.testing import CliRunner

    from cvgp.cli import app

    sections = []
    for words in called_by(typer.main.get_command(app)):
        shown = CliRunner().invoke(app, [*words, "--help-all"], prog_name="cvgp", env={"COLUMNS": str(WIDTH)})
        sections.append(f"## cvgp {' '.join(words)}\n\n```text\n{shown.stdout.strip()}\n```")
    return "\n\n".join(sections)


def called_by(group: Any) -> list[list[str]]:
    """The words that call each command below a group."""
    found = []
    for name, command in group.commands.items():
        below = called_by(command) if hasattr(command, "commands") else [[]]
        found += [[name, *words] for words in below]
    return found
