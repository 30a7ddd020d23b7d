"""Pieces of HTML. All text that comes from data or a model passes through `text`, which leaves nothing to interpret."""

from collections.abc import Sequence
from html import escape

from cvgp.printable import printable

LONGEST = 60
"""Characters of a name or a value that the page shows."""

Row = Sequence[str]


def text(value: str) -> str:
    """A name or a value as text of a page, shortened and escaped."""
    return escape(printable(shortened(value)))


def shortened(value: str) -> str:
    """A name or a value, not longer than the page has room for."""
    return value if len(value) <= LONGEST else value[: LONGEST - 1] + "…"


def number(value: float) -> str:
    """A number with as many digits as people read."""
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e").replace("-", "\N{MINUS SIGN}", 1 if value < 0 else 0)


def table(caption: str, head: Row, rows: Sequence[Row], *, key: str = "") -> str:
    """A table whose first column names the rows."""
    columns = "".join(f"<th scope='col'>{text(name)}</th>" for name in head)
    body = "".join(
        f"<tr><th scope='row'>{text(row[0])}</th>" + "".join(f"<td>{text(cell)}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    own = f" id='{key}'" if key else ""
    return (
        f"<div class='wide' tabindex='0' role='region' aria-label='{text(caption)}'><table{own}>"
        f"<caption>{text(caption)}</caption><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def figure(svg: str, caption: str, numbers: str) -> str:
    """A chart with its caption, and its numbers as a table that opens."""
    return (
        f"<figure>{svg}<figcaption>{caption}</figcaption>"
        f"<details><summary>The numbers as a table</summary>{numbers}</details></figure>"
    )


def section(key: str, title: str, *parts: str) -> str:
    """A part of the page under a heading that links can name."""
    return f"<section aria-labelledby='{key}'><h2 id='{key}'>{text(title)}</h2>{''.join(parts)}</section>"


def paragraph(words: str) -> str:
    """Words that are escaped already."""
    return f"<p>{words}</p>"


def grid(figures: Sequence[str]) -> str:
    """Figures beside each other where there is room."""
    return f"<div class='grid'>{''.join(figures)}</div>"
