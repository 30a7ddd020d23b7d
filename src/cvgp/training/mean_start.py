"""Where a mean begins whose parameters say nothing of the data: at its least squares.

GPyTorch draws the weights of a ``LinearMean`` from a normal distribution. On inputs of 1e4 such a mean is far from y,
and what a search of some steps then learns is a line and noise.
"""

from copy import deepcopy

import torch
from gpytorch.means import Mean
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp.kernels import prior_mean
from cvgp.training.densities import variance_of_y, weighted_mean

ROWS_PER_PARAMETER = 2
"""With fewer rows a mean could explain what is left to the function."""


@torch.enable_grad()  # also for a caller that has switched gradients off
def sensible_mean(mean: Mean, rows: Rows[Tensor]) -> Mean:
    """The mean, or a copy after one step of Gauss and Newton if it is farther from the rows than a constant is.

    The step is exact for means that are linear in their parameters. One that does not lead nearer is not taken.
    """
    error, stepped = squared_error(mean, rows), deepcopy(mean).to(rows.x.device)
    learned = [p for p in stepped.parameters() if p.requires_grad]
    too_few = len(rows.x) < ROWS_PER_PARAMETER * sum(p.numel() for p in learned)
    if not learned or too_few or error <= variance_of_y(rows):
        return mean
    values = _values(stepped, rows)  # [n]
    slopes = torch.stack([_slopes(value, learned) for value in values])  # [n, p]
    left = rows.y.reshape(len(values), -1).mean(1) - values.detach()  # [n]
    root = torch.ones_like(left) if rows.sample_weight is None else rows.sample_weight.sqrt()
    step = torch.linalg.lstsq((root[:, None] * slopes).cpu(), (root * left)[:, None].cpu()).solution[:, 0]
    with torch.no_grad():
        for parameter, change in zip(learned, step.split([p.numel() for p in learned]), strict=True):
            parameter += change.view_as(parameter).to(parameter)
    return stepped if squared_error(stepped, rows) < error else mean


@torch.no_grad()
def squared_error(mean: Mean, rows: Rows[Tensor]) -> float:
    """The mean square of what a mean leaves of the outputs; rows count by their weights."""
    return weighted_mean((rows.y - prior_mean(mean, rows.x, rows.y)).square(), rows)


def _values(mean: Mean, rows: Rows[Tensor]) -> Tensor:
    return prior_mean(mean, rows.x, rows.y).reshape(len(rows.x), -1)[:, 0]


def _slopes(value: Tensor, parameters: list[torch.nn.Parameter]) -> Tensor:
    found = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([slope.reshape(-1) for slope in found])
