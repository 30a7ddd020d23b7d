"""The coreset explorer: a chart over two columns, a table of points and a histogram of their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.rows import Array
from cvgp.estimators.user_columns import UserColumn
from cvgp.plots.columns import column_places, is_date
from cvgp.plots.pseudo_points import weight_histogram
from cvgp.report.evaluated import is_level, shown_place
from cvgp.report.markup import figure, grid, number, paragraph, section, shortened, table, text
from cvgp.report.svg import Axis, Chart

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated

MOST_POINTS, MOST_COLUMNS = 300, 12
"""The heaviest points, and the most important columns, that the explorer has."""
LARGEST_RADIUS, SMALLEST_RADIUS = 11.0, 2.0


def coreset_section(rows: Evaluated) -> str:
    """The explorer, the table and the histogram."""
    coreset, columns = rows.model.coreset_, rows.columns[:MOST_COLUMNS]
    heaviest = np.argsort(-coreset.beta, kind="stable")[:MOST_POINTS]
    places = [column_places(rows.model, column)[heaviest] for column in columns]
    outputs = coreset.y.reshape(len(coreset), -1)[heaviest, rows.output]
    weights = coreset.beta[heaviest]
    few = (
        ""
        if len(heaviest) == len(coreset)
        else f" The {len(heaviest)} heaviest are shown; <code>cvgp coreset</code> writes all."
    )
    left = len(rows.columns) - len(columns)
    fewer = f" {left} columns that matter less are left out." if left > 0 else ""
    beyond = " They say what rows say beyond their neighbours." if rows.model.n_neighbors_ else ""
    told = paragraph(
        f"{len(coreset)} pseudo-points stand for {rows.model.n_rows_:.0f} rows. A point of weight 5 counts as five "
        f"rows.{beyond}{few}{fewer}"
    )
    return section(
        "coreset",
        "The coreset",
        told,
        grid([_explorer(rows, columns, places, outputs, weights), _weights(coreset.beta)]),
        _points_table(rows, columns, places, outputs, weights),
    )


def _explorer(rows: Evaluated, columns: list[UserColumn], places: list[Array], outputs: Array, weights: Array) -> str:
    target = shortened(rows.target)
    pair = [0, 1] if len(columns) > 1 else [0, len(columns)]
    axes = [_axis(rows, column, at) for column, at in zip(columns, places, strict=True)]
    axes.append(Axis.around(target, outputs))
    values = [*places, outputs]
    chart = Chart(
        "explorer",
        "Pseudo-points over two columns",
        f"{len(weights)} pseudo-points, with areas in proportion to their weights. The table below has their values.",
        axes[pair[0]],
        axes[pair[1]],
    )
    x, y = chart.px(values[pair[0]]), chart.py(values[pair[1]])
    radius = np.maximum(LARGEST_RADIUS * np.sqrt(weights / weights.max()), SMALLEST_RADIUS)
    for i, (a, b, r) in enumerate(zip(x, y, radius, strict=True)):
        chart.add(f"<circle class='point' data-row='{i}' cx='{a:.1f}' cy='{b:.1f}' r='{r:.1f}'/>")
    names = [*(shortened(column.name) for column in columns), f"{target} (pseudo-output)"]
    chosen = zip(("x", "y"), ("Across", "Upright"), pair, strict=True)
    controls = "".join(
        f"<label>{label} <select id='explorer-{axis}'>"
        + "".join(
            f"<option value='{i}'{' selected' if i == at else ''}>{text(name)}</option>" for i, name in enumerate(names)
        )
        + "</select></label>"
        for axis, label, at in chosen
    )
    return (
        f"<div><div class='controls' hidden>{controls}</div>"
        f"<figure>{chart.svg()}<output id='explorer-said'>No point is chosen.</output>"
        "<figcaption>Pseudo-points over two columns, with areas in proportion to their weights. Point at one, or move "
        "through them with the arrow keys, to read its values.</figcaption></figure></div>"
    )


def _axis(rows: Evaluated, column: UserColumn, at: Array) -> Axis:
    name = shortened(column.name)
    if column.categories:
        return Axis.of_names(name, [shortened(category) for category in column.categories])
    label = f"{name} (effect of its level)" if is_level(rows.model, column) else name
    return Axis.around(label, at, shown=shown_place(column))


def _points_table(
    rows: Evaluated, columns: list[UserColumn], places: list[Array], outputs: Array, weights: Array
) -> str:
    """The points, in a table that sorts and that the explorer reads."""
    write = [_cell(column) for column in columns]
    head = "<th scope='col' data-kind='number'>point</th>"
    for column in columns:
        kind = "text" if column.categories else "date" if is_date(column) else "number"
        head += f"<th scope='col' data-kind='{kind}'>{text(column.name)}</th>"
    head += f"<th scope='col' data-kind='number'>{text(rows.target)}</th><th scope='col' data-kind='number'>weight</th>"
    body = ""
    for i in range(len(weights)):
        cells = [own(at[i]) for own, at in zip(write, places, strict=True)]
        cells += [f"{outputs[i]:.5g}", f"{weights[i]:.5g}"]
        body += f"<tr><th scope='row'>{i + 1}</th>{''.join(f'<td>{text(cell)}</td>' for cell in cells)}</tr>"
    return (
        "<details open><summary>The points as a table</summary>"
        "<p class='controls' hidden><button type='button' id='save-csv'>Save as CSV</button></p>"
        "<div class='wide tall' tabindex='0' role='region' aria-label='Pseudo-points'><table id='points'>"
        "<caption>Pseudo-points, the heaviest first. A button in each heading sorts.</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _cell(column: UserColumn) -> Callable[[float], str]:
    """How a place along a column is written in the table, so that a program can read it."""
    write = shown_place(column)
    return write if write is not number else lambda place: f"{place:.5g}"


def _weights(beta: Array) -> str:
    counts, edges = weight_histogram(beta)
    chart = Chart(
        "weights",
        "Histogram of weights",
        f"{len(beta)} weights from {number(float(beta.min()))} to {number(float(beta.max()))}.",
        Axis("weight (rows that a point counts as)", float(edges[0]), float(edges[-1]), is_log=True),
        Axis("pseudo-points", 0.0, 1.08 * float(counts.max())),
    )
    chart.columns(edges, counts.astype(np.float64), "blue")
    numbers = [[f"{number(edges[i])} to {number(edges[i + 1])}", str(count)] for i, count in enumerate(counts)]
    caption = "Weights of the pseudo-points, on a logarithmic axis. Points of next to no weight are not used."
    return figure(chart.svg(), caption, table("Weights of pseudo-points", ["weight", "points"], numbers))
