"""A fitted model that also sees new rows, with kernel, noise and points as they are.

With neighbours the rows follow those that predictions consult, each given its nearest rows before it. This is exact in
the local part. A coreset alone sees them as further sites of its posterior, which has seen its data already.
"""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.gp.neighbours.decorrelated import gather_decorrelated, order_rows
from cvgp.gp.neighbours.search import RowIndex
from cvgp.training.merge import Noise, combine, log_evidence, sites_of
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import NeighbourRows, adopt_neighbours, ordered, whitened


class Appended(NamedTuple):
    """A model of its data and of new rows; the model of before stays as it is."""

    model: CVGP
    statistics: Statistics
    kept: NeighbourRows | None
    bound: float
    """On the log density of all rows, in nats and in the model's units."""


def append_rows(first: Rows[Tensor], then: Rows[Tensor]) -> Rows[Tensor]:
    """All rows; where weights or noise variances of some are known, the others count once and have none."""
    weighted = first.sample_weight is not None or then.sample_weight is not None
    noisy = first.noise_variance is not None or then.noise_variance is not None
    return Rows[Tensor].join([_completed(rows, weighted=weighted, noisy=noisy) for rows in (first, then)])


@torch.no_grad()
def append_to_neighbours(model: CVGP, kept: NeighbourRows, new: Rows[Tensor]) -> Appended:
    """Consult new rows too: their statistics, given the rows before each, are added to those of the old ones.

    Parameters
    ----------
    model, kept
        The fitted model, and the rows that it consults.
    new
        Rows in the model's units, with the noise by which the model weighs them.
    """
    model, rows, start = deepcopy(model), append_rows(kept.rows, new), len(kept.rows.x)
    near = RowIndex(model.kernel, rows.x).earlier(kept.num_neighbours, start)
    found = gather_decorrelated(whitened(model), ordered(model, rows), near, start)
    larger, bound = adopt_neighbours(model, rows, kept.num_neighbours, kept.statistics.merge(found))
    return Appended(model, larger.statistics, larger, bound)


@torch.no_grad()
def append_to_coreset(model: CVGP, new: Rows[Tensor], bound: float) -> Appended:
    """Condition the coreset's posterior on new rows, which become points of the coreset.

    The statistics are those of the sites, since the data of the old ones are not here.

    Parameters
    ----------
    model
        The fitted model.
    new
        Rows in the model's units, with the noise by which the model weighs them.
    bound
        That of the model. The log density of the new rows under its posterior is added to it, so that the sum is an
        estimate.
    """
    device = model.X_c.device
    prior = deepcopy(model).cpu()
    new = new.map(lambda values: values.to("cpu", torch.float64))
    noise = prior.total_noise(new.noise_variance).expand(len(new.x))
    rows = order_rows(new.x, new.y, noise, sample_weight=new.sample_weight)
    old = sites_of(prior)
    sites = Rows[Tensor].join(
        [old, Rows(new.x, new.y.reshape(-1, *old.y.shape[1:]), None, rows.precision.reciprocal())]
    )
    spread = Noise(prior.noise.item(), prior.site_noise_offset.item())
    rng = np.random.default_rng(0)  # where all sites are kept, nothing is drawn
    combined = combine(sites, prior.kernel, prior.mean, spread, rng, Watch(), size=None)
    # A row of weight c is one site of c times the precision, but for its normaliser.
    as_sites = 0.5 * (rows.precision / (2.0 * torch.pi)).log()
    extra = rows.y.shape[1] * (rows.log_normaliser - as_sites).sum().item()
    gain = combined.bound - log_evidence(old, prior.kernel, prior.mean) + extra
    found = Statistics(*(sums.to(device) for sums in combined.statistics))
    return Appended(combined.model.to(device), found, None, bound + gain)


def _completed(rows: Rows[Tensor], *, weighted: bool, noisy: bool) -> Rows[Tensor]:
    weight, noise = rows.sample_weight, rows.noise_variance
    return Rows(
        rows.x,
        rows.y,
        torch.ones_like(rows.x[:, 0]) if weighted and weight is None else weight,
        torch.zeros_like(rows.x[:, 0]) if noisy and noise is None else noise,
    )
