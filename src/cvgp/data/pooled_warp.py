"""Scalings of parts of a data set, with warps that are made comparable and pooled.

Each part may have warped a column in its own way, or not at all. In standard deviations of their parts all of these are
functions of the same kind, and their mean over rows is the function of the whole.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cvgp.data.input_warp import KNOTS, Path, distinct_path, warp_of
from cvgp.data.rows import Array
from cvgp.data.scaling import Scaling, pool_scalings


def pool_warped_scalings(scalings: Sequence[Scaling], rows: Array) -> tuple[Scaling, list[Scaling]]:
    """The scaling of a data set from those of its parts and their numbers of rows [K], and the latter in its form.

    In that form a column that any part has warped has mean zero and scale one, so that all are in the same units. The
    warps themselves are those of the whole there.
    """
    is_warped = np.any([_warped(scaling) for scaling in scalings], axis=0)
    paths = {int(d): _mean_path(int(d), scalings, rows) for d in np.flatnonzero(is_warped)}
    shares = np.average([_shares(scaling) for scaling in scalings], axis=0, weights=rows)
    warp = warp_of("mixed", shares, paths)
    alike = [_in_form_of(scaling, paths)._replace(warp=warp) for scaling in scalings]
    return pool_scalings(alike, rows)._replace(warp=warp), alike


def _warped(scaling: Scaling) -> NDArray[np.bool_]:
    none = np.zeros(len(scaling.x_mean), dtype=bool)
    return none if scaling.warp.name == "identity" else scaling.warp.warped & scaling.varies


def _shares(scaling: Scaling) -> Array:
    return np.zeros(len(scaling.x_mean)) if scaling.warp.name == "identity" else scaling.warp.shares


def _standard_path(d: int, scaling: Scaling) -> Path:
    """A column in standard deviations, as a function of its values."""
    mean, scale = scaling.x_mean[d], scaling.x_scale[d]
    path = scaling.warp.paths().get(d)
    if path is None:
        return Path(mean + np.array([-1.0, 1.0]) * scale, np.array([-1.0, 1.0]))
    return Path(path.knots, (path.values - mean) / scale)


def _mean_path(d: int, scalings: Sequence[Scaling], rows: Array) -> Path:
    """The mean of the functions of the parts in which the column varies."""
    known = [k for k, scaling in enumerate(scalings) if scaling.varies[d]]
    paths = [_standard_path(d, scalings[k]) for k in known]
    knots = np.unique(np.concatenate([path.knots for path in paths]))
    if len(knots) > 2 * KNOTS:
        knots = knots[np.unique(np.linspace(0, len(knots) - 1, 2 * KNOTS).round().astype(int))]
    return distinct_path(knots, np.average([path.apply(knots) for path in paths], axis=0, weights=rows[known]))


def _in_form_of(scaling: Scaling, paths: dict[int, Path]) -> Scaling:
    x_mean, x_scale = scaling.x_mean.copy(), scaling.x_scale.copy()
    for d, path in paths.items():
        is_known = scaling.varies[d]
        x_mean[d], x_scale[d] = (0.0, 1.0) if is_known else (path.apply(x_mean[[d]])[0], 0.0)
    return scaling._replace(x_mean=x_mean, x_scale=x_scale)
