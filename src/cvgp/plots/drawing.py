"""What the pictures share: the columns of a model, axes that people can read, and colors for any color vision."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, optional_packages, printable
from cvgp.estimators.display import LONGEST_NAME, number, shortened
from cvgp.estimators.frames import UserColumn, schema_of, user_columns
from cvgp.tables.columns import place_in_cycle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from cvgp.estimators.regressor import CVGPRegressor

BLUE, ORANGE, GRAY = "#0072B2", "#D55E00", "#666666"
Z95 = float(ndtri(0.975))
MOST_DOTS = 2000  # a scatter plot of more rows than this shows a random sample of them
LONGEST_TICK, WIDEST_TICKS = 16, 28  # in characters
CYCLES = {"season": "day of the year", "weekday": "day of the week", "hour": "part of the day"}
STEPS = [1, 2, 2.5, 5, 10]  # steps between ticks, but for powers of ten
UNUSED = 1e-4  # a pseudo-point below this share of the mean weight is not used and not drawn


def columns_by_importance(model: CVGPRegressor) -> list[str]:
    """Return the names of the columns, the most important first, without those that were constant in the fit."""
    return [column.name for column in ranked_columns(model)]


def ranked_columns(model: CVGPRegressor) -> list[UserColumn]:
    """The columns that varied in the fit, the most important first."""
    varies, columns = model._gp.scaling.varies, user_columns(model)
    ranked = [columns[j] for j in np.argsort(-model.feature_importances_, kind="stable")]
    return [column for column in ranked if varies[column.features].any()]


def most_important(model: CVGPRegressor, count: int) -> list[UserColumn]:
    """At most `count` columns, the most important first; the first ones if none varied in the fit."""
    return (ranked_columns(model) or user_columns(model))[:count]


def find_column(model: CVGPRegressor, wanted: str | int) -> UserColumn:
    """A column by name or position."""
    columns = user_columns(model)
    names = [column.name for column in columns]
    if isinstance(wanted, str) and wanted in names:
        return columns[names.index(wanted)]
    if isinstance(wanted, int) and 0 <= wanted < len(columns):
        return columns[wanted]
    raise InvalidInputError(f"There is no column {wanted!r}; choose from {names}, or a position from 0 on.")


def varying_column(model: CVGPRegressor, column: str | int | None) -> UserColumn:
    """The column of a name or position, unless it was constant in the fit; by default the most important one."""
    one_output(model)
    chosen = most_important(model, 1)[0] if column is None else find_column(model, column)
    if not model._gp.scaling.varies[chosen.features].any():
        raise InvalidInputError(
            f"Column {chosen.name!r} had one value in all rows of the fit, so predictions do not depend on it; choose "
            "another."
        )
    return chosen


def places(x: Array, column: UserColumn) -> Array:
    """Where rows [n, D] are along a column: number of the nearest category, days into a cycle, or first feature."""
    own = x[:, column.features]
    found = own[:, : len(column.categories)].argmax(axis=1) if column.categories else along(own, column)
    return found.astype(np.float64)


def along(own: Array, column: UserColumn) -> Array:
    """Where features [n, w] of a column without categories are: in its cycle, at a latitude, or as they are."""
    if column.period is not None:
        return place_in_cycle(own, column.period)
    return np.asarray(
        np.degrees(np.arctan2(own[:, 0], np.hypot(own[:, 1], own[:, 2]))) if column.is_place else own[:, 0]
    )


def place_text(column: UserColumn, place: float) -> str:
    """A place along a column in words: a category, a date or a number."""
    if column.labels:
        return column.labels[int(np.clip(round(place), 0, len(column.labels) - 1))]
    return as_date(place) if is_date(column) else number(place)


def is_date(column: UserColumn) -> bool:
    """Whether the first feature of a column is the days of a date, since 1970."""
    return column.parts[:1] == ("trend",)


def is_cyclic(column: UserColumn) -> bool:
    """Whether a column goes round, as dates without a trend do, which are drawn along their longest cycle."""
    return column.period is not None


def as_date(days: float) -> str:
    """The date of a number of days since 1970."""
    return str(np.datetime64("1970-01-01") + np.timedelta64(round(days), "D"))


def target_name(model: CVGPRegressor) -> str:
    """The name of what is predicted."""
    schema = schema_of(model)
    return "y" if schema is None else ", ".join(schema.targets)


def expected_name(model: CVGPRegressor) -> str:
    """The name of what pictures along a column show: of counts with exposures, a rate."""
    name, exposure = target_name(model), model._gp.exposure
    return name if exposure is None else f"{name} per unit of {exposure or 'exposure'}"


def one_output(model: CVGPRegressor) -> CVGPRegressor:
    """The model, if a picture of it can be drawn."""
    if model.coreset_.num_outputs != 1:
        raise InvalidInputError(f"Pictures are of one output, but the model has {model.coreset_.num_outputs}.")
    return model


def as_label(name: str, most: int = LONGEST_NAME) -> str:
    """A name from data as text of a picture: dollar signs start no formula, and control characters are escaped."""
    return printable(shortened(name, most)).replace("$", r"\$")


def tick_text(value: float, _: object = None) -> str:
    """A tick as people write it: 0.25, 2013, 12,000."""
    text = f"{value:.10g}" if abs(value) < 9999.5 else f"{value:,.10g}"
    return text.replace("e+0", "e").replace("e+", "e")


def date_tick(days: float, _: object = None) -> str:
    """A date at a tick: a year or a month, if it is the first day of one."""
    text = as_date(days)
    return text.removesuffix("-01-01") if text.endswith("-01-01") else text.removesuffix("-01")


def axes_or_current(ax: Axes | None) -> Axes:
    """The axes to draw on."""
    if ax is not None:
        return ax
    with optional_packages():
        import matplotlib.pyplot as plt

    return plt.gca()


def readable_ticks(ax: Axes) -> None:
    """Write the ticks of finished linear axes as people do, and along x only as many as have room."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, high = sorted(ax.get_xlim())
    for count in (6, 4, 3, 2):
        locator = MaxNLocator(count, steps=STEPS)
        labels = [tick_text(value) for value in locator.tick_values(low, high) if low <= value <= high]
        if sum(len(label) + 2 for label in labels) <= WIDEST_TICKS:
            break
    ax.xaxis.set_major_locator(locator)
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(tick_text))


def name_axis(axis: Axis, column: UserColumn) -> None:
    """Label an axis by its column, and write dates along it, or categories at 0, 1, 2, ..."""
    about = "effect of its level" if column.is_level else "latitude" if column.is_place else ""
    if column.parts and is_cyclic(column):
        about = CYCLES[column.parts[0]]
    axis.set_label_text(as_label(column.name) + (f" ({about})" if about else ""))
    if column.labels:
        from matplotlib.axis import XAxis

        step = math.ceil(len(column.labels) / 20)
        labels = [as_label(name, LONGEST_TICK) for name in column.labels[::step]]
        axis.set_ticks(range(0, len(column.labels), step), labels=labels)
        if isinstance(axis, XAxis) and sum(len(label) + 2 for label in labels) > WIDEST_TICKS:
            for text in axis.get_majorticklabels():
                text.set(rotation=30, ha="right", rotation_mode="anchor")
    elif is_date(column):
        from matplotlib.dates import AutoDateLocator
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        low, high = sorted(axis.get_view_interval())
        is_usual = low > -7e5 and high < 2.9e6  # within the years that Matplotlib knows
        years = AutoDateLocator(minticks=2, maxticks=4)  # type: ignore[no-untyped-call]
        axis.set_major_locator(years if is_usual else MaxNLocator(3))
        axis.set_major_formatter(FuncFormatter(date_tick))


def used_points(beta: Array) -> NDArray[np.intp]:
    """The numbers of pseudo-points that have a weight worth drawing, the heaviest first."""
    order = np.argsort(-beta, kind="stable")
    return order[: int((beta >= UNUSED * beta.mean()).sum())]


def some_rows(count: int, most: int = MOST_DOTS) -> NDArray[np.intp]:
    """Row numbers to show: all, or a random sample of many."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))
