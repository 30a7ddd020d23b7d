"""Parts of dates as features: a trend in days, and circles for season, weekday and hour.

Days are counted from the beginning of 1970, in UTC; a date without a time zone is taken as it is. The year is the mean
one of the Gregorian calendar, so that a season moves by at most a day against the dates of a year.
"""

import math
from typing import Any

import numpy as np

from cvgp.data.rows import Array

YEAR, WEEK = 365.2425, 7.0
"""In days."""
FIRST_MONDAY = 4.0
"""1970 began on a Thursday, three days after a Monday."""
PART_FEATURES = {
    "trend": ("trend",),
    "season": ("season sin", "season cos"),
    "weekday": ("weekday sin", "weekday cos"),
    "hour": ("hour sin", "hour cos"),
}
"""The parts, and the features that each becomes."""


def date_features(days: Array, parts: tuple[str, ...]) -> Array:
    """The features [n, w] of dates in days [n]; NaN where a date is missing."""
    date = np.floor(days)
    phases = {
        "season": days / YEAR,
        "weekday": np.mod(date - FIRST_MONDAY, WEEK) / WEEK,
        "hour": days - date,
    }
    columns: list[Any] = []
    for part in parts:
        if part == "trend":
            columns.append(days)
        else:
            angle = 2.0 * math.pi * phases[part]
            columns += [np.sin(angle), np.cos(angle)]
    return np.stack(columns, axis=1)


def varying_parts(days: Array) -> tuple[str, ...]:
    """The parts that differ among dates [n] without gaps: a season needs half a year, and weekdays need a week."""
    span = float(days.max() - days.min())
    wanted = {
        "trend": True,
        "season": span > YEAR / 2.0,
        "weekday": span >= WEEK and len(np.unique(np.mod(np.floor(days), WEEK))) > 1,
        "hour": bool(np.ptp(days - np.floor(days)) > 0.0),
    }
    return tuple(part for part in PART_FEATURES if wanted[part])
