"""Priors on lengthscales, outputscale and noise, where rows are few for so many columns.

The likelihood of few rows prefers lengthscales that explain their noise: some columns look useful by chance, the noise
falls to its floor, and intervals are far too narrow. Weak priors take that freedom (§6.4). Rows that were held out
cannot decide it: after the few steps of a search, nothing is to be seen of the trouble yet.

With up to 100 rows for each lengthscale, lengthscales and noises that are far below typical ones, and an outputscale
that is far above the variance of y, have to be worth a few nats of all rows together. A column that is not needed
costs nothing. With up to two rows for each, lengthscales are held together from both sides. With more rows the priors
would have little say, and are left out.
"""

import math
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from cvgp.gp.hyperparameters import hold_above, hold_around, registered_priors
from cvgp.gp.kernels import stationary_form

VERY_FEW, FEW = 2, 100
"""Rows for each lengthscale. On generated problems with three to eight rows for each, holding them together was as
often worse as better."""
SPREAD = math.sqrt(3.0)
"""Standard deviation of the logarithm of a lengthscale that is held together: a factor of five or six."""
SHORT = 3.0
"""Standard deviations of a column. A lengthscale of one of them then costs 2.3 nats, which is what the criterion of
Schwarz (1978) asks of a parameter with 100 rows. All columns together cost at most about nine where a search begins."""

LARGE = 3.0
"""Standard deviations of y. Long lengthscales and a large f are nearly the same for rows that are close together, and
without a limit both grow until numbers lose their digits and predictions beyond the rows go anywhere."""


def hold_if_few(kernel: Kernel, num_rows: int, x: Tensor, y_sd: float) -> Kernel:
    """A copy of the kernel whose lengthscales are held, where rows are few for so many; else the kernel itself.

    Parameters
    ----------
    kernel
        It is held if it has a lengthscale per column to learn, and no priors.
    num_rows
        How many rows the fit has.
    x
        Some of their inputs `[n, D]`, whose spread says which lengthscale is typical.
    y_sd
        The standard deviation of their outputs, which says it of f.
    """
    num_dims = x.shape[1]
    if not _may_be_held(kernel, num_dims) or num_rows > FEW * num_dims:
        return kernel
    held, width = deepcopy(kernel), x.std(0, correction=0)
    width = torch.where(width > 0.0, width, 1.0)  # [D]
    if num_rows > VERY_FEW * num_dims:
        hold_above(held, SHORT * width, width.new_tensor(LARGE * y_sd))
    elif isinstance(kernel, ScaleKernel) and stationary_form(kernel, num_dims) is not None:
        hold_around(held, math.sqrt(num_dims) * width, SPREAD)
    return held


def _may_be_held(kernel: Kernel, num_dims: int) -> bool:
    """Whether a kernel has more than one lengthscale to learn, one per column, and no priors of its own."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    is_one_per_column = all(part.lengthscale.shape == (1, num_dims) for part in parts)
    is_learned = any(part.raw_lengthscale.requires_grad for part in parts)
    return num_dims > 1 and is_one_per_column and is_learned and not registered_priors(kernel)
