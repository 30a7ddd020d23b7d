"""The model that a fit begins with: a start for kernel and noise, and the places of the pseudo-points."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.fitting.kernel import raise_noise
from cvgp.fitting.monitor import Run
from cvgp.fitting.place import InitName, initial_coreset, placing_seconds, rows_to_see
from cvgp.fitting.sample import Start
from cvgp.gp.kernels import prior_mean
from cvgp.gp.model import CVGP

LEAST_PER_CENTER = 2
"""Rows per center that k-means sees even if time is short."""


def begin_model(
    start: Start,
    source: DataSource,
    size: int,
    run: Run,
    *,
    init: InitName | Coreset = "kmeans",
    beta_transform: Literal["log", "softplus"] = "log",
    is_standard: bool = True,
) -> CVGP:
    """A model with `size` pseudo-points, placed among the rows; all rows, if it is as many as there are.

    Parameters
    ----------
    start
        Kernel, mean and noise.
    source
        The rows.
    size
        How many pseudo-points.
    run
        Draws the points. In a group, all processes take those of the first.
    init
        How points are placed, or a coreset in the units of the source.
    beta_transform
        How weights are parametrized.
    is_standard
        Whether all columns have variance one; otherwise random points are given the spread of the rows.
    """
    if isinstance(init, Coreset):
        coreset = init
    else:
        placed = _place(init, source, size, start, run)
        if init == "random" and not is_standard:
            placed = _spread_out(placed, source.sample(run.heuristics.ladder_rows, run.rng("spread")))
        coreset = _first_coreset(source, placed)
    model = start.model(coreset)
    model = CVGP(coreset, model.kernel, mean=model.mean, likelihood=model.likelihood, beta_transform=beta_transform)
    model.to(source.device)
    if size < source.num_rows and not start.noise_is_known:
        rows = source.sample(run.rows(run.heuristics.ladder_rows), run.rng("noise ladder"))
        raise_noise(model, rows, run.heuristics.noise_ladder)
    if source.has_known_noise:
        # The weights of a first coreset count rows, and a row's precision is that of its total noise.
        w = model.beta.detach() / source.harmonic_noise(model.noise.item())
        model.set_sites(model.y_c - prior_mean(model.mean, model.X_c, model.y_c), w)
    adopt_first(source, model)
    return model


@torch.no_grad()
def adopt_first(source: DataSource, model: CVGP) -> None:
    """Give the models of all processes of a group the same bits, whatever rounding did to the same steps."""
    tensors = [*model.parameters(), *model.buffers()]
    for tensor, value in zip(tensors, source.group.first([t.detach() for t in tensors]), strict=True):
        tensor.copy_(value)


def _place(method: InitName, source: DataSource, size: int, start: Start, run: Run) -> Coreset:
    rng = run.rng("points")
    rows = source.sample(size if method == "random" else _rows_to_place_by(source, size, run), rng)
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().numpy()
    x, y = rows.x.cpu().numpy(), rows.y.cpu().numpy()
    if method == "kmeans" and size >= source.num_rows:
        return Coreset(x, y, np.ones(len(x)) if weight is None else weight)  # nothing to summarize
    total = source.total_weight
    return initial_coreset(method, x, y, size, rng, sample_weight=weight, total_weight=total, kernel=start.kernel)


def _rows_to_place_by(source: DataSource, size: int, run: Run) -> int:
    """How many rows k-means sees: fewer if the time limit is short."""
    limit = run.budget.max_time
    if limit is None or size >= source.num_rows:
        return rows_to_see(size)
    num_dims = source.sample(1, np.random.default_rng(0)).x.shape[1]
    seconds = run.budget.clock.pace * placing_seconds(size, num_dims)
    return min(rows_to_see(size), max(int(run.heuristics.placing_share * limit / seconds), LEAST_PER_CENTER * size))


def _first_coreset(source: DataSource, coreset: Coreset) -> Coreset:
    """The coreset of the first process, for all of a group."""
    (size,) = source.group.first([torch.tensor(float(len(coreset)), dtype=torch.float64)])
    # Clusters may be lost: to receive the first process's points, the others need arrays of their number.
    arrays = [np.resize(a, (int(size), *a.shape[1:])) for a in (coreset.X, coreset.y, coreset.beta)]
    x, y, beta = source.group.first([torch.as_tensor(a) for a in arrays])
    return Coreset(x, y, beta)


def _spread_out(noise: Coreset, rows: Rows[Tensor]) -> Coreset:
    """White noise with the means and standard deviations of some rows."""
    x, y = (values.reshape(len(values), -1).cpu().numpy() for values in (rows.x, rows.y))
    outputs = noise.y.reshape(len(noise), -1) * y.std(0) + y.mean(0)
    return Coreset(noise.X * x.std(0) + x.mean(0), outputs.reshape(noise.y.shape), noise.beta)
