"""What single predictions rest on: the parts that pseudo-points, and rows that are consulted, have in the mean."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.estimators.units import ScaledGP
from cvgp.gp.kernels import prior_mean


class Parts(NamedTuple):
    """The mean of T(y) at some points, as a start and the sum of parts; all in the units of T(y)."""

    start: Array  # [n], the prior mean, and what the coreset adds where rows are consulted
    places: NDArray[np.intp]  # [n, k], numbers of pseudo-points, or of rows that are consulted
    weights: Array  # [n, k], how much of each one's output the mean takes
    parts: Array  # [n, k], the weight times the output minus the prior mean
    prior: Array  # [n], the prior mean


@torch.no_grad()
def parts_of_mean(gp: ScaledGP, x: Array, output: int) -> Parts:
    """Take the mean of a few rows [n, D] apart: by the rows that are consulted, or else by the pseudo-points."""
    scaled = torch.as_tensor(gp.scaling.scale_x(x), dtype=torch.float64, device=gp.model.X_c.device)
    model, scale, level = gp.model, gp.scaling.y_scale[output], gp.scaling.y_mean[output]
    if gp.local is None:
        factor = gp.process.factor
        K_cx = gp.process.cross_matrix(scaled)  # [M, n]
        weights = (factor.T.mT @ (factor.T @ K_cx)).mT  # [n, M]
        outputs = factor.y_c.reshape(len(factor.w), -1)[:, output]
        places, parts = np.tile(np.arange(len(outputs)), (len(x), 1)), weights * outputs
        added = torch.zeros(len(x), dtype=torch.float64)
    else:
        found = gp.local.process.consulted(scaled)
        weights, places = found.b, found.near.cpu().numpy().astype(np.intp)
        parts = weights * gp.local.process.data.y[found.near][:, :, output]
        added = found.coreset_part[:, output]
    prior = prior_mean(model.mean, scaled, scaled[:, 0]).expand(len(x))
    own = prior.double().cpu().numpy() * scale + level
    start = own + added.double().cpu().numpy() * scale
    return Parts(start, places, weights.double().cpu().numpy(), parts.double().cpu().numpy() * scale, own)
