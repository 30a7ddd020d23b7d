"""More pseudo-points for a model whose kernel and noise stay as they are.

At fixed kernel, noise and pseudo-inputs one pass over the rows gives the best pseudo-outputs and weights (docs:
mathematics, §5). So a coreset grows without training: rows become points where the present ones leave much prior
variance. A new point of weight zero changes nothing, so the best bound with more points is at least as high.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.gp.pivoting import randomly_pivoted
from cvgp.objectives.full_batch import CHUNK_ROWS, full_bound, statistics

CANDIDATES = 12_000
"""New points are chosen among a sample of so many rows, or more if more points than that are asked for."""
FIRST_WEIGHT = 1e-6
"""Of a new point, as a share of the mean weight. The best weights are searched for from where the model was."""


class Grown(NamedTuple):
    """A larger model and what is known of its data."""

    model: CVGP
    statistics: Statistics
    added: int
    bound: float
    """The paper's bound on the log density of all rows, in nats."""

    def tight_bound(self, source: DataSource) -> float:
        """The tighter bound on the same rows, by one more pass over them."""
        return full_bound(self.model, source.chunks(CHUNK_ROWS), source.num_rows, tight=True, group=source.group)


@torch.no_grad()
def grow_model(model: CVGP, source: DataSource, size: int, rng: np.random.Generator) -> Grown:
    """The best coreset of all rows on the present points and others among the rows, `size` in all.

    With the present size, the present points are solved for again. Where nothing is left to explain, fewer points than
    asked for are added. The model stays as it is.
    """
    wanted = size - len(model.X_c)
    new = _new_points(model, source, wanted, rng) if wanted else model.X_c[:0]
    larger = _with_more_points(model, new)
    found = statistics(larger, source.chunks(CHUNK_ROWS), source.group)
    bound = larger.adopt_optimum(found).item()
    larger.set_site_noise_offset(source.harmonic_noise(larger.noise.item()) - larger.noise.item())
    return Grown(larger, found, len(new), bound)


def _new_points(model: CVGP, source: DataSource, count: int, rng: np.random.Generator) -> Tensor:
    """Rows to become points; in a group, those that the first process chooses."""
    candidates: Tensor = source.sample(max(CANDIDATES, count), rng).x.to(model.X_c.dtype).unique(dim=0)
    if count > len(candidates):
        raise InvalidInputError(
            f"{count} more points were asked for, and the data have only {len(candidates)} distinct rows to make "
            f"them of; ask for at most {len(model.X_c) + len(candidates)} points in all."
        )
    chosen = torch.full((count,), -1.0, dtype=torch.float64)
    rows = randomly_pivoted(model.kernel, candidates, count, rng, present=model.X_c)
    chosen[: len(rows)] = torch.as_tensor(rows)
    (chosen,) = source.group.first([chosen])
    return candidates[chosen[chosen >= 0].long().to(candidates.device)]


def _with_more_points(model: CVGP, new: Tensor) -> CVGP:
    """The model with points of next to no weight, whose sites are still to be solved for."""
    y_new = model.y_c.new_zeros(len(new), *model.y_c.shape[1:])
    beta_new = (FIRST_WEIGHT * model.beta.mean()).repeat(len(new))
    X_c, y_c, beta = (torch.cat(pair) for pair in ((model.X_c, new), (model.y_c, y_new), (model.beta, beta_new)))
    return model.with_coreset(Coreset(X_c, y_c, beta))
