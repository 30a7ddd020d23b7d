"""What single predictions rest on: a few telling rows, and the points that carry the weight of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cvgp.estimators.resting import Parts, parts_of_mean
from cvgp.report.evaluated import places, shown_place
from cvgp.report.markup import figure, number, paragraph, section, shortened, table, text
from cvgp.report.svg import Axis, Chart

if TYPE_CHECKING:
    from cvgp.report.evaluated import Evaluated

MOST_PARTS, MOST_COLUMNS = 8, 6


def rests_section(rows: Evaluated) -> str:
    """One panel per row, of which a control shows one."""
    chosen = _telling_rows(rows)
    numbers = np.array(list(chosen.values()))
    gp = rows.model.gp_
    found = parts_of_mean(gp, rows.x[numbers], rows.output)
    what = "training rows near it" if gp.local is not None else "pseudo-points"
    described = "" if gp.target.name == "identity" else f" They are parts of the transformed target ({gp.target.name})."
    told = paragraph(
        f"The predicted mean begins with the prior mean, and {what} add to it or take from it: each its weight times "
        f"what its output differs from the prior mean.{described}"
    )
    options = "".join(
        f"<option value='{i}'>row {row + 1}: {label}</option>" for i, (label, row) in enumerate(chosen.items())
    )
    control = f"<div class='controls' hidden><label>Row <select id='rests-row'>{options}</select></label></div>"
    panels = "".join(_panel(rows, found, i, label, row) for i, (label, row) in enumerate(chosen.items()))
    return section("rests", "What does a single prediction rest on?", told, control, panels)


def _telling_rows(rows: Evaluated) -> dict[str, int]:
    """A few rows by what is remarkable about them, each once."""
    size = np.abs(rows.observed - rows.mean) / np.maximum(rows.sd, np.finfo(np.float64).tiny)
    wanted = {
        "a typical error": int(np.argsort(size)[len(size) // 2]),
        "the largest error for its interval": int(size.argmax()),
        "the widest interval": int(rows.sd.argmax()),
        "the lowest prediction": int(rows.mean.argmin()),
        "the highest prediction": int(rows.mean.argmax()),
    }
    found: dict[str, int] = {}
    for label, row in wanted.items():
        if row not in found.values():
            found[label] = row
    return found


def _panel(rows: Evaluated, found: Parts, i: int, label: str, row: int) -> str:
    order = np.argsort(-np.abs(found.parts[i]))
    most, rest = order[:MOST_PARTS], order[MOST_PARTS:]
    is_local = rows.model.gp_.local is not None
    names = _labels(rows, found, i, most)
    parts = found.parts[i, most]
    if is_local:
        names, parts = ["the coreset", *names], np.append(found.start[i] - found.prior[i], parts)
    if len(rest):
        names, parts = [*names, f"{len(rest)} others"], np.append(parts, found.parts[i, rest].sum())
    low, high = rows.quantiles(np.array([0.025, 0.975]))[row]
    chart = Chart(
        f"rests-{i}",
        f"Parts of the prediction of row {row + 1}",
        f"{len(names)} parts lead from the prior mean {number(found.prior[i])} to "
        f"{number(float(found.prior[i] + parts.sum()))}.",
        Axis.around("added to the prior mean", parts, np.zeros(1)),
        Axis.of_names("", names)._replace(low=len(names) - 0.5, high=-0.5),
    )
    every = np.arange(float(len(names)))
    chart.bars(every[parts >= 0], parts[parts >= 0], "blue")
    chart.bars(every[parts < 0], parts[parts < 0], "orange")
    chart.line(np.zeros(2), np.array([-0.5, len(names) - 0.5]), "grey")
    values = ", ".join(
        f"{text(column.name)} {text(shown_place(column)(float(places(rows.x[row : row + 1], column)[0])))}"
        for column in rows.columns[:MOST_COLUMNS]
    )
    caption = (
        f"Row {row + 1}, {label}: {values}. Predicted {number(rows.mean[row])}, in 95 of 100 cases between "
        f"{number(low)} and {number(high)}; observed {number(rows.observed[row])}."
    )
    return (
        f"<div class='rests' data-row='{i}'>{figure(chart.svg(), caption, _numbers(rows, found, i, most, row))}</div>"
    )


def _labels(rows: Evaluated, found: Parts, i: int, most: NDArray[np.intp]) -> list[str]:
    """Names of what a prediction rests on: points have the numbers of the explorer, which go by weight."""
    if rows.model.gp_.local is not None:
        return [f"neighbour {j + 1}" for j in range(len(most))]
    rank = np.argsort(np.argsort(-rows.model.coreset_.beta, kind="stable"), kind="stable")
    return [f"point {rank[found.places[i, m]] + 1}" for m in most]


def _numbers(rows: Evaluated, found: Parts, i: int, most: NDArray[np.intp], row: int) -> str:
    """The points that carry the weight, with what they are."""
    gp, columns = rows.model.gp_, rows.columns[:MOST_COLUMNS]
    if gp.local is not None and rows.train is not None:
        held = gp.local.kept.rows
        own = held.x[found.places[i, most]].cpu().numpy()
        x = gp.scaling.unscale_x(own)
        scaled = held.y.reshape(len(held.x), -1)[found.places[i, most]].cpu().numpy()
        y = gp.target.invert(gp.scaling.unscale_y(scaled))[:, rows.output]
    else:
        coreset = rows.model.coreset_
        x = coreset.X[found.places[i, most]]
        y = coreset.y.reshape(len(coreset), -1)[found.places[i, most], rows.output]
    cells = [[shown_place(column)(float(at)) for at in places(x, column)] for column in columns]
    numbers = [
        [
            label,
            *(own[j] for own in cells),
            number(y[j]),
            f"{found.weights[i, m]:.3f}",
            number(found.parts[i, m]),
        ]
        for j, (m, label) in enumerate(zip(most, _labels(rows, found, i, most), strict=True))
    ]
    head = ["", *(shortened(column.name) for column in columns), shortened(rows.target), "weight", "part"]
    return table(f"What the prediction of row {row + 1} rests on", head, numbers)
