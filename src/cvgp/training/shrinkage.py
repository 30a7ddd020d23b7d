"""Lengthscales that are held together where there are hardly more rows than columns.

With as many columns as rows, some lengthscales explain any noise, and the likelihood of the same rows prefers them.
The noise falls to its floor, and intervals are far too narrow. A prior on the logarithm of each lengthscale, around one
that is typical of the inputs, takes that freedom (§6.4). Where rows are many it would have little say, and is left out.
Rows that were held out cannot decide it: after the few steps of a search, nothing is to be seen of the trouble yet.
"""

import math
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from cvgp.gp.hyperparameters import hold_lengthscales, registered_priors
from cvgp.gp.kernels import stationary_form

ROWS_PER_LENGTHSCALE = 2
"""With more rows than this for each lengthscale, the rows decide. On generated problems with three to eight rows for
each, the prior was as often worse as better."""
SPREAD = math.sqrt(3.0)
"""Standard deviation of the logarithm of a lengthscale: a factor of five or six."""


def hold_if_few(kernel: Kernel, num_rows: int, x: Tensor) -> Kernel:
    """A copy of the kernel whose lengthscales are held, where rows are few for so many; else the kernel itself.

    Parameters
    ----------
    kernel
        It is held if it is a scaled stationary kernel with a lengthscale per column to learn, and without priors.
    num_rows
        How many rows the fit has.
    x
        Some of their inputs `[n, D]`, whose spread says which lengthscale is typical.
    """
    num_dims = x.shape[1]
    if not may_overfit(kernel, num_rows, num_dims):
        return kernel
    held, width = deepcopy(kernel), x.std(0, correction=0)
    typical = math.sqrt(num_dims) * torch.where(width > 0.0, width, 1.0)  # [D]
    hold_lengthscales(held, typical.log(), SPREAD)
    return held


def may_overfit(kernel: Kernel, num_rows: int, num_dims: int) -> bool:
    """Whether there are too few rows for so many lengthscales; a kernel with priors of its own needs no other."""
    is_plain = isinstance(kernel, ScaleKernel) and stationary_form(kernel, num_dims) is not None
    if not is_plain or registered_priors(kernel):
        return False
    lengthscale = kernel.base_kernel.raw_lengthscale
    is_learned = lengthscale.requires_grad and lengthscale.numel() > 1
    return is_learned and num_rows <= ROWS_PER_LENGTHSCALE * num_dims
