"""The columns of a table as an exported model needs them; beside `cvgp_predictor.py`, and with NumPy alone.

A missing cell, or a category that the model does not know, may have several values that are equally likely: predictions
are means over these, as in cvgp.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
PERIODS = {"season": 365.2425, "weekday": 7.0, "hour": 1.0}  # in days
FIRST_MONDAY = 4.0  # of 1970, in days
EARTH_RADIUS = 6371.0  # in km


def latent(model: Any, table: Mapping[str, Any]) -> tuple[Array, Array, Array]:
    """What `Predictor.latent_at` gives at the rows of a table, a dictionary of columns by name."""
    columns, a, open_cells, gaps = model.spec["columns"], model.arrays, list[Any](), list[Any]()
    names = [column["name"] for column in columns]
    if not names or set(names) - set(table):
        raise ValueError(f"The model needs the columns {names}; got {list(table)}.")
    x = np.empty((len(table[names[0]]), len(a["x_mean"])))
    for j, column in enumerate(columns):
        at, (features, codes) = slice(*column["features"]), encode(column, table[column["name"]])
        if column["kind"] == "longitude":  # which follows the latitude
            features = features * np.cos(np.radians(np.asarray(table[names[j - 1]], dtype=float)))[:, None]
        x[:, at] = np.where(codes[:, None] < 0, features, a[f"features{j}"][codes])
        if not np.isfinite(x[:, at]).all():
            raise ValueError(
                f"Column {column['name']!r} has missing or infinite cells, for which the model has no rule."
            )
        for kind, found in (("open", open_cells), ("gap", gaps)):
            rows = (codes >= 0) & a[f"{kind}{j}"][codes]
            found.append((rows, at, a[f"{kind}_draws{j}"][codes[rows]]))
    mean, f_var, noise = model.latent_at(x)
    for cells in open_cells, gaps:
        rows = np.logical_or.reduce([own for own, _, _ in cells])
        if rows.any():
            draws = np.repeat(x[:, None], cells[0][2].shape[1], axis=1)  # [n, S, D]
            for own, at, values in cells:
                draws[own, :, at] = values
            parts = model.latent_at(draws[rows].reshape(-1, x.shape[1]))
            m, v, s = (part.reshape(-1, draws.shape[1], part.shape[1]) for part in parts)  # [r, S, Q]
            if cells is gaps:  # the noise is at least that of a complete row, and what the cell may change
                noise[rows] = np.maximum(noise[rows], s.mean(1) + m.var(1))
            else:
                mean[rows], f_var[rows], noise[rows] = m.mean(1), v.mean(1) + m.var(1), s.mean(1)
    return mean, f_var, noise


def encode(column: Mapping[str, Any], cells: Any) -> tuple[Array, NDArray[np.int64]]:
    """Features [n, w] of the cells of a column, and codes [n] of those that have features in a table; -1 if none."""
    if column["kind"] == "text":
        known = {category: code for code, category in enumerate(column["categories"])}
        codes = [len(known) if is_missing(cell) else known.get(label(cell), len(known) + 1) for cell in cells]
        return np.zeros((len(codes), 1)), np.array(codes, dtype=np.int64)
    if column["kind"] == "date":
        stamps = np.array([None if is_missing(cell) else cell for cell in cells], dtype="datetime64[us]")
        values = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 86400e6)  # days
        phases = {"season": values, "weekday": np.floor(values) - FIRST_MONDAY, "hour": values}
        features = []
        for part in column["parts"]:
            angle = 2.0 * math.pi * np.mod(phases[part] / PERIODS[part], 1.0) if part != "trend" else values
            features += [values] if part == "trend" else [np.sin(angle), np.cos(angle)]
    else:
        values = np.array([np.nan if is_missing(cell) else cell for cell in cells], dtype=float)
        features = [values]
        if column["kind"] in ("latitude", "longitude"):
            angle = np.radians(values)
            features = [np.sin(angle)] if column["kind"] == "latitude" else [np.cos(angle), np.sin(angle)]
            features = [EARTH_RADIUS * part for part in features]
        elif column["kind"] == "cyclic":
            angle = 2.0 * math.pi * np.mod(values / column["period"], 1.0)
            features = [np.sin(angle), np.cos(angle)]
    if column["marks_missing"]:
        features.append(np.zeros(len(values)))
    return np.stack(features, axis=1), np.where(np.isnan(values), 0, -1)


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN or NaT."""
    return cell is None or bool(cell != cell)


def label(cell: Any) -> str:
    """A cell as the name of a category: `1`, 1 and 1.0 have the same name."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
