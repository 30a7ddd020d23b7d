"""What the figures share: one color, marker and line for each system, readable in print and by color-blind readers.

The colors are Okabe and Ito's; markers and line styles tell the systems apart without them. The paper's figures have
the size that they are printed at, so that their fonts are not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cvgp.errors import FileAccessError, InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PAGE_WIDTH = 7.0
"""Inches between the margins of a page with two columns."""
DPI = 200
PRINT = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "axes.linewidth": 0.6,
    "pdf.fonttype": 42,
}
"""Fonts at their final size, in points; embedded as TrueType, which journals ask for."""


class Style(NamedTuple):
    """How a system is drawn."""

    color: str
    marker: str
    line: Any


STYLES = {
    "ExactGP": Style("#000000", "s", "-"),
    "SparseGP": Style("#009E73", "^", (0, (5, 1))),
    "SVGP": Style("#D55E00", "v", (0, (3, 1, 1, 1))),
    "SVGP (KL per batch)": Style("#E69F00", "P", (0, (1, 1))),
    "PPGPR": Style("#CC79A7", "D", (0, (6, 2, 1, 2))),
    "CVGP": Style("#0072B2", "o", "-"),
    "RandomCVGP": Style("#56B4E9", "X", (0, (4, 2))),
}


def label(method: str, size: int | None = None) -> str:
    """A system's name with its number of points."""
    return method if size is None else f"{method} ({size})"


def line_style(method: str) -> dict[str, Any]:
    """Keyword arguments of a line."""
    style = STYLES[method]
    return {"color": style.color, "marker": style.marker, "ls": style.line, "ms": 4, "lw": 1.5}


def grid(rows: int, columns: int, size: tuple[float, float] = (3.0, 2.6), **options: Any) -> tuple[Figure, Any]:
    """A figure with axes [rows, columns], `size` inches each."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if rows == 0 or columns == 0:
        raise InvalidInputError("There are no results to draw yet; run the experiment first.")
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def page_grid(rows: int, columns: int, height: float, **options: Any) -> tuple[Figure, Any]:
    """A figure as wide as a page, with axes [rows, columns] of a height in inches."""
    return grid(rows, columns, size=(PAGE_WIDTH / max(columns, 1), height), **options)


def shared_legend(figure: Figure, axes: Sequence[Axes], columns: int | None = None) -> None:
    """One legend for all axes, below them, with four columns or as many as fit."""
    from matplotlib import rcParams

    fitting = max(int(figure.get_figwidth() / (0.2 * rcParams["font.size"])), 1)
    found: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    if found:
        figure.legend(
            found.values(), found.keys(), loc="outside lower center", ncols=columns or min(4, fitting), frameon=False
        )


def plain_ticks(ax: Axes) -> None:
    """Labels such as 0.01 and 1000, at powers of ten only."""
    from matplotlib.ticker import NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter(
                lambda value, _: f"{value:g}" if value < 1e4 else f"{value:.0e}".replace("e+0", "e")
            )
            axis.set_minor_formatter(NullFormatter())


def save(figures: Mapping[str, Figure], folder: Path) -> list[Path]:
    """Write each figure as PNG and PDF; returns the files."""
    from matplotlib import rc_context

    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, figure in figures.items():
            for ending in ("png", "pdf"):
                path = folder / f"{name}.{ending}"
                # Without a date in it, the same results give the same file.
                metadata = {"CreationDate": None} if ending == "pdf" else {}
                with rc_context(PRINT):  # some ticks are made only now
                    figure.savefig(path, dpi=DPI, metadata=metadata)
                written.append(path)
    except OSError as error:
        raise FileAccessError(f"Could not write figures into {folder} ({error}); choose another folder.") from error
    return written
