"""Charts by column: errors and noise, relevance, and what a column does to predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.estimators.user_columns import UserColumn, user_columns
from cvgp.plots.dependence import average_over_points, axis_values
from cvgp.plots.noise import noise_along
from cvgp.plots.style import Z95
from cvgp.report.evaluated import is_level, places, shown_place
from cvgp.report.markup import figure, grid, number, paragraph, section, shortened, table, text
from cvgp.report.svg import Axis, Chart

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated

MOST_CHARTS = 6
MOST_BARS = 20
BINS, FEWEST_IN_BIN = 10, 5
MOST_CATEGORIES = 12
DOTS = 800
"""Rows in a chart of errors."""
STEP = 3
"""Every third value of a column's axis is enough for a small chart."""


def shown_columns(rows: Evaluated) -> list[UserColumn]:
    """The columns that have charts: the most important ones that varied in the fit."""
    varies = rows.model.gp_.scaling.varies
    return [column for column in rows.columns if varies[column.features].any()][:MOST_CHARTS]


def errors_section(rows: Evaluated) -> str:
    """What is left of observations, and how wide the model expects that to be."""
    columns = shown_columns(rows)
    told = paragraph(
        "Each point is an error, observed minus predicted. The band is where 95 % of the errors should be, and the "
        "dashed lines are how far noise alone reaches. Orange marks are the mean error of a group with its own 95 % "
        "interval: where it misses zero, the model is wrong there on average." + _others(rows, len(columns))
    )
    figures = [_errors(rows, column, f"errors-{i}") for i, column in enumerate(columns)]
    return section("errors", "Errors and noise by column", told, grid(figures))


def _others(rows: Evaluated, shown: int) -> str:
    left = len(rows.columns) - shown
    return f" {left} other columns matter less and are not shown." if left > 0 else ""


def _errors(rows: Evaluated, column: UserColumn, key: str) -> str:
    at, residual = places(rows.x, column), rows.observed - rows.mean
    groups, names = _groups(at, column)
    middle = np.arange(float(len(groups))) if column.categories else np.array([np.median(at[g]) for g in groups])
    mean = np.array([residual[g].mean() for g in groups])
    far = np.array([Z95 * residual[g].std() / np.sqrt(len(g)) for g in groups])
    rms, sd, noise = (
        np.array([np.sqrt(np.mean(values[g] ** 2)) for g in groups]) for values in (residual, rows.sd, rows.noise_sd)
    )
    name, shown = shortened(column.name), np.random.default_rng(0).permutation(len(at))[:DOTS]
    across = (
        Axis.of_names(name, names)
        if column.categories
        else Axis.around(_label(rows, column), at[shown], shown=shown_place(column))
    )
    limit = float(max(np.quantile(np.abs(residual), 0.995), 1.1 * Z95 * sd.max()))
    chart = Chart(
        key,
        f"Errors by {name}",
        f"Errors of predictions against {name}, in {len(groups)} groups: mean error, and the standard deviations that "
        "the model expects of errors and of noise.",
        across,
        Axis("observed \N{MINUS SIGN} predicted", -limit, limit),
    )
    if column.categories:
        order = {category: place for place, category in enumerate(names)}
        kept = np.array([order.get(column.categories[int(place)], -9) for place in at[shown]], dtype=np.float64)
        jitter = np.random.default_rng(1).uniform(-0.25, 0.25, len(shown))
        inside = kept >= 0
        chart.dots((kept + jitter)[inside], residual[shown][inside], "faint")
        chart.errors(middle, -Z95 * sd, Z95 * sd, "blue thick")
    else:
        chart.dots(at[shown], residual[shown], "faint")
        chart.band(middle, -Z95 * sd, Z95 * sd, "blue")
        for side in (-Z95, Z95):
            chart.line(middle, side * noise, "blue dashed")
    chart.line(np.array([across.low, across.high]), np.zeros(2), "grey")
    chart.errors(middle, mean - far, mean + far, "orange")
    chart.circles(middle, mean, "orange", 3.0)
    numbers = [
        [names[i], str(len(g)), number(mean[i]), number(far[i]), number(rms[i]), number(sd[i]), number(noise[i])]
        for i, g in enumerate(groups)
    ]
    head = [name, "rows", "mean error", "± 95 %", "RMS error", "expected sd", "noise sd"]
    return figure(chart.svg(), f"Errors by {text(column.name)}.", table(f"Errors by {name}", head, numbers))


def _groups(at: Array, column: UserColumn) -> tuple[list[NDArray[np.intp]], list[str]]:
    """Row numbers of each group along a column, and names of the groups."""
    if column.categories:
        counts = np.bincount(at.astype(np.int64), minlength=len(column.categories))
        most = sorted(np.argsort(-counts, kind="stable")[:MOST_CATEGORIES])
        chosen = [int(k) for k in most if counts[k]]
        return [np.flatnonzero(at == k) for k in chosen], [column.categories[k] for k in chosen]
    order = np.argsort(at, kind="stable")
    parts = np.array_split(order, max(1, min(BINS, len(at) // FEWEST_IN_BIN)))
    write = shown_place(column)
    return parts, [f"{write(at[part[0]])} to {write(at[part[-1]])}" for part in parts]


def relevance_section(rows: Evaluated) -> str:
    """The share of predictions that needs each column."""
    found, columns = rows.model.sobol_indices(), user_columns(rows.model)
    ranked = np.argsort(-found.total, kind="stable")[:MOST_BARS]
    names = [shortened(columns[j].name) for j in ranked]
    total, far = found.total[ranked], Z95 * found.total_uncertainty[ranked]
    chart = Chart(
        "relevance-chart",
        "Relevance of columns",
        f"The share of the variance of predictions that needs each column. The most important is {names[0]}, with "
        f"{total[0]:.2f}.",
        Axis("share of the variance of predictions", 0.0, max(1.05 * float((total + far).max()), 0.05)),
        Axis.of_names("", names)._replace(low=len(names) - 0.5, high=-0.5),
    )
    every = np.arange(float(len(names)))
    chart.bars(every, total, "blue")
    chart.errors(every, np.maximum(total - far, 0.0), total + far, "grey thick", flat=True)
    numbers = [
        [
            columns[j].name,
            f"{found.total[j]:.3f}",
            f"± {Z95 * found.total_uncertainty[j]:.3f}",
            f"{found.first_order[j]:.3f}",
        ]
        for j in ranked
    ]
    left = len(columns) - len(ranked)
    more = f" {left} columns with less are not shown." if left > 0 else ""
    caption = (
        "Total Sobol indices: the share of the variance of predictions that needs the column, alone or together with "
        f"others, with 95 % intervals. They add up to more than one where columns act together.{more}"
    )
    head = ["column", "total", "95 %", "alone"]
    return section(
        "relevance", "Which columns matter?", figure(chart.svg(), caption, table("Relevance of columns", head, numbers))
    )


def dependence_section(rows: Evaluated) -> str:
    """What the most important columns do to predictions, on average."""
    columns = shown_columns(rows)
    told = paragraph(
        "The line is the mean prediction over the coreset's points, with the column set to the value on the axis and "
        "all others as they are. The band is the 95 % interval of that mean." + _others(rows, len(columns))
    )
    figures = [_dependence(rows, column, f"dependence-{i}") for i, column in enumerate(columns)]
    return section("dependence", "What does each column do?", told, grid(figures))


def _dependence(rows: Evaluated, column: UserColumn, key: str) -> str:
    values = axis_values(rows.model, column)
    values = values[:MOST_CATEGORIES] if column.categories else np.concatenate([values[:-1:STEP], values[-1:]])
    mean, sd = average_over_points(rows.model, column, values, rows.output)
    noise = noise_along(rows.model, column, values, rows.output)[0]
    low, high = mean - Z95 * sd, mean + Z95 * sd
    name, target = shortened(column.name), shortened(rows.target)
    write = shown_place(column)
    spread = 0.5 * float(rows.model.gp_.y_spread[rows.output])  # what is small against y should look small
    centre = 0.5 * float(mean.min() + mean.max())
    upright = Axis.around(f"mean {target}", low, high, np.array([centre - spread, centre + spread]))
    names = [*map(shortened, column.categories[: len(values)])]
    across = Axis.of_names(name, names) if names else Axis.around(_label(rows, column), values[:, 0], shown=write)
    chart = Chart(
        key,
        f"Partial dependence on {name}",
        f"The mean prediction of {target} against {name}, between {number(float(mean.min()))} and "
        f"{number(float(mean.max()))}.",
        across,
        upright,
    )
    at = np.arange(float(len(values))) if names else values[:, 0]
    if names:
        chart.errors(at, low, high, "blue thick")
        chart.circles(at, mean, "blue")
    else:
        chart.band(at, low, high, "blue")
        chart.line(at, mean, "blue")
    numbers = [
        [names[i] if names else write(at[i]), number(mean[i]), number(low[i]), number(high[i]), number(noise[i])]
        for i in range(len(at))
    ]
    head = [name, f"mean {target}", "from", "to", "noise sd"]
    return figure(chart.svg(), f"Dependence on {text(column.name)}.", table(f"Dependence on {name}", head, numbers))


def _label(rows: Evaluated, column: UserColumn) -> str:
    name = shortened(column.name)
    return f"{name} (effect of its level)" if is_level(rows.model, column) else name
