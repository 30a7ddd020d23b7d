"""Charts of predictions: calibration, and predicted against observed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.plots.quality import LEVELS, chance_of_shares, ends_of_levels, shares_inside
from cvgp.plots.style import some_rows
from cvgp.report.markup import figure, grid, number, section, shortened, table, text
from cvgp.report.svg import Axis, Chart

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated

PARTS = 10
"""Groups of rows in the table beside a scatter."""


def quality_section(rows: Evaluated) -> str:
    """Both charts."""
    return section(
        "quality", "Can the intervals and the predictions be trusted?", grid([_calibration(rows), _predicted(rows)])
    )


def _calibration(rows: Evaluated) -> str:
    # One level after the other: the ends of all intervals of a million rows would fill the memory.
    ends = (rows.quantiles(ends_of_levels(level)) for level in LEVELS[:, None])
    inside = np.array([shares_inside(pair, rows.observed)[0] for pair in ends])
    chance = chance_of_shares(LEVELS, len(rows.y))
    off = float(np.abs(inside - LEVELS).max())
    chart = Chart(
        "calibration",
        "Calibration",
        "The share of observations inside central intervals against the probability that the intervals claim. "
        f"The largest difference is {off:.1%}.",
        Axis("probability of the interval", 0.0, 1.0),
        Axis("share inside", 0.0, 1.0),
    )
    whole = np.array([0.0, 1.0])
    chart.band(LEVELS, np.maximum(LEVELS - chance, 0.0), np.minimum(LEVELS + chance, 1.0), "grey")
    chart.line(whole, whole, "grey")
    chart.line(LEVELS, inside, "blue")
    chart.circles(LEVELS, inside, "blue", 2.5)
    numbers = [
        [f"{level:.0%}", f"{share:.1%}", f"± {far:.1%}"]
        for level, share, far in zip(LEVELS, inside, chance, strict=True)
    ]
    caption = (
        "Calibration. A point on the diagonal is an interval that holds as many observations as it claims; above, "
        "intervals are wider than needed, below, too narrow. The grey band is what chance allows."
    )
    head = ["claimed", "observed inside", "by chance (95 %)"]
    return figure(chart.svg(), caption, table("Shares of observations inside intervals", head, numbers))


def _predicted(rows: Evaluated) -> str:
    low, high = rows.quantiles(np.array([0.025, 0.975])).T
    outside = (rows.observed < low) | (rows.observed > high)
    shown = some_rows(len(rows.y))
    name = shortened(rows.target)
    both = Axis.around("", rows.mean[shown], rows.observed[shown])
    chart = Chart(
        "predicted",
        "Predicted against observed",
        f"Each point is a row: the predicted mean of {name} across, what was observed upright. {outside.mean():.1%} of "
        "the observations are outside their 95 % intervals.",
        both._replace(label=f"predicted {name}"),
        both._replace(label=f"observed {name}"),
    )
    chart.line(np.array([both.low, both.high]), np.array([both.low, both.high]), "grey")
    for group, kind in ((~outside, "blue"), (outside, "orange")):
        chosen = shown[group[shown]]
        chart.dots(rows.mean[chosen], rows.observed[chosen], kind)
    order = np.argsort(rows.mean, kind="stable")
    numbers = []
    for part in np.array_split(order, min(PARTS, len(order))):
        error = rows.observed[part] - rows.mean[part]
        ends = f"{number(rows.mean[part[0]])} to {number(rows.mean[part[-1]])}"
        numbers.append(
            [
                ends,
                str(len(part)),
                number(rows.mean[part].mean()),
                number(rows.observed[part].mean()),
                number(float(np.sqrt(np.mean(error**2)))),
                f"{1.0 - outside[part].mean():.1%}",
            ]
        )
    few = "" if len(shown) == len(rows.y) else f" It shows {len(shown)} rows of {len(rows.y)}, chosen at random."
    caption = (
        f"Predicted against observed {text(rows.target)}. Orange points are outside their 95 % intervals: "
        f"{outside.mean():.1%} of all rows.{few}"
    )
    head = ["predicted", "rows", "mean predicted", "mean observed", "RMSE", "inside 95 %"]
    return figure(chart.svg(), caption, table("Groups of rows by prediction", head, numbers))
