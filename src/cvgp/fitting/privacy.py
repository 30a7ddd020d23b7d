"""Private models: no point is a row. Distances are in standard deviations of the column where points differ most."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from cvgp.data.rows import Array
from cvgp.data.scaling import Scaling
from cvgp.errors import InvalidInputError
from cvgp.fitting.monitor import Run
from cvgp.fitting.prepare import FitData
from cvgp.fitting.solve import Solution, set_site_noise
from cvgp.objectives import CHUNK_ROWS, statistics_and_gain
from cvgp.tables.columns import PLACE, TYPICAL, Column

FEWEST = 10  # rows behind each point, text and residual
NEAR = 0.05  # of the distance to the row that is number FEWEST: a point that is nearer to a row is too near it
SAME = 1e-9  # standard deviations: a point that is nearer to a row equals it
LEAST_REACH, STEP, GROWTH = 0.01, 0.1, 1.25  # of a move, in standard deviations and in distances to that row
OPEN: dict[str, tuple[Any, Any]] = {"n_neighbors": ("auto", 0), "noise": ("auto", "constant")}
OPEN |= dict.fromkeys(("input_warp", "target_transform"), ("auto", "identity"))


def check_rows(num_rows: int, size: int | None) -> None:
    """Raise if rows are too few for a private model, or for the points that are asked for."""
    if num_rows < FEWEST**2 or (size is not None and size > num_rows // FEWEST):
        raise InvalidInputError(
            f"private=True needs at least {FEWEST**2} rows, and {FEWEST} for each point, where copies count once; "
            f"got {num_rows} and n_coreset={size or 'auto'}. Give more rows, or ask for fewer points."
        )


def private_columns(columns: Sequence[Column], num_rows: int) -> tuple[Column, ...]:
    """Columns whose values are known by their mean and spread alone; raise if they have hardly any."""
    if few := [column.name for column in columns if num_rows - column.n_missing < FEWEST]:
        raise InvalidInputError(f"private=True needs {FEWEST} values in each column; leave out {', '.join(few)}.")
    z, found = ndtri((np.arange(TYPICAL) + 0.5) / TYPICAL), list(columns)
    for place, column in enumerate(columns):
        if column.kind in ("numeric", "date", "cyclic", *PLACE) and column.typical:
            mean, sd = float(np.mean(column.typical)), float(np.std(column.typical))
            typical = tuple((mean + sd * z / z.std()).tolist())
            found[place] = replace(column, typical=typical, fill=None if column.fill is None else mean)
    return tuple(found)


def spread_of_inputs(data: FitData) -> Tensor:
    """The standard deviations of the columns in the model's units [D]; 0 for a constant column."""
    return torch.as_tensor(np.ones_like(data.scaling.x_mean) if data.spread is None else data.spread.x)


@torch.no_grad()
def without_rows(solution: Solution, data: FitData, rows: Sequence[Array], run: Run, *, in_parts: bool) -> Solution:
    """A solution none of whose points is one of the rows [N, D], or of all rows beside if they are read in parts."""

    def blocks() -> Iterator[Tensor]:
        for x in rows:
            yield from torch.as_tensor(data.scaling.scale_x(np.unique(x, axis=0))).split(CHUNK_ROWS)
        for source in (data.train, data.held_out) if in_parts else ():
            yield from () if source is None else (part.x for part in source.chunks(CHUNK_ROWS))

    model = deepcopy(solution.model)
    model.X_c.copy_(apart(model.X_c, spread_of_inputs(data), blocks, run))
    sums, gain = statistics_and_gain(model, data.train.chunks(CHUNK_ROWS), data.train.group)
    bound = model.adopt_optimum(sums).item() + (gain if solution.tight else 0.0)
    set_site_noise(model, data.train)
    return solution._replace(model=model, bound=bound, statistics=sums)


@torch.no_grad()
def apart(points: Tensor, spread: Tensor, blocks: Callable[[], Iterable[Tensor]], run: Run) -> Tensor:
    """Points [M, D] of which those too near a row are moved into random directions, farther and farther."""
    rng, found, step, moving = run.rng("apart"), points.clone(), STEP, torch.arange(len(points), device=points.device)
    spread = spread.to(points)
    while True:
        nearest, usual = _nearest(found[moving], spread, blocks)
        is_near = nearest <= (NEAR * usual).clamp_min(SAME)
        moving, reach = moving[is_near], step * usual[is_near, None].clamp_min(LEAST_REACH)
        if not len(moving):
            return found
        way = torch.as_tensor(rng.uniform(-1.0, 1.0, (len(moving), len(spread)))).to(points)
        found[moving] = points[moving] + reach * way * spread
        step *= GROWTH


def _nearest(points: Tensor, spread: Tensor, blocks: Callable[[], Iterable[Tensor]]) -> tuple[Tensor, Tensor]:
    """The distances [m] to the nearest row and to row number FEWEST, or to the last one if there are fewer."""
    scale = torch.where(spread > 0.0, spread, torch.inf)  # constant columns tell no rows apart
    found = points.new_full((len(points), FEWEST), torch.inf)
    for x in blocks():
        distance = torch.cdist(points / scale, x.to(points) / scale, p=torch.inf)
        found = torch.cat([found, distance], 1).topk(FEWEST, largest=False).values
    return found[:, 0], torch.where(found.isfinite(), found, 0.0).amax(1)


def check_batch(scaling: Scaling, X_c: Tensor, x: Array, *, adapt: bool) -> None:
    """Raise if new rows [n, D] are so few that files before and after tell them, or may become or equal a point."""
    if adapt:
        refuse_points("partial_fit with adapt=True")
    if len(x) < FEWEST:
        raise InvalidInputError(
            f"A private model learns at least {FEWEST} different rows at once, or files would tell them; got {len(x)}."
        )
    spread = torch.as_tensor(scaling.varies, dtype=torch.float64)
    nearest, _ = _nearest(X_c.detach(), spread, lambda: torch.as_tensor(scaling.scale_x(x)).split(CHUNK_ROWS))
    if bool((nearest <= SAME).any()):
        raise InvalidInputError("A new row equals a point of the coreset, which private=True excludes. Fit all again.")


def refuse_points(what: str) -> None:
    """Raise for a change of a private model that makes points of rows."""
    raise InvalidInputError(
        f"{what} makes points of rows, which private=True excludes; use partial_fit without adapt, or fit again."
    )
