"""Lengthscales that are held together where there are hardly more rows than columns.

With as many columns as rows, some lengthscales explain any noise, and the likelihood of the same rows prefers them.
The noise falls to its floor, and intervals are far too narrow. A prior on the logarithm of each lengthscale, around one
that is typical of the inputs, takes that freedom. Where rows are many it would have little say, and is left out. It is
also left out where rows that were not learned from are clearly less likely with it (§6.4).
"""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp.kernels import stationary_form
from cvgp.gp.priors import hold_lengthscales, registered_priors
from cvgp.training.candidates import Start, best_of, has_time
from cvgp.training.densities import is_clearly_better
from cvgp.training.monitor import Watch

__all__ = ["choose_shrinkage", "may_overfit"]

ROWS_PER_LENGTHSCALE = 2
"""With more rows than this for each lengthscale, the rows decide. On generated problems with three to eight rows for
each, the prior was as often worse as better."""
SPREAD = math.sqrt(3.0)
"""Standard deviation of the logarithm of a lengthscale: a factor of five or six."""
ERRORS = 2.0
"""By how many standard errors of the difference, row by row, a start without the prior has to be ahead."""


def may_overfit(kernel: Kernel, num_rows: int, num_dims: int) -> bool:
    """Whether there are too few rows for so many lengthscales; a kernel with priors of its own needs no other."""
    is_plain = isinstance(kernel, ScaleKernel) and stationary_form(kernel, num_dims) is not None
    if not is_plain or registered_priors(kernel):
        return False
    lengthscale = kernel.base_kernel.raw_lengthscale
    is_learned = lengthscale.requires_grad and lengthscale.numel() > 1
    return is_learned and num_rows <= ROWS_PER_LENGTHSCALE * num_dims


def choose_shrinkage(
    plain: Start,
    first: Start,
    learn: Callable[[Start, str], Start],
    rows: Rows[Tensor],
    judging: Rows[Tensor],
    watch: Watch,
) -> tuple[Start, Start]:
    """What was learned with a prior on the lengthscales, and the start that it came from; or both without it.

    Parameters
    ----------
    plain, first
        What the rows teach without a prior, and the start.
    learn
        Learns from some rows, and judges by `judging`.
    rows
        Their spread says which lengthscale is typical.
    judging
        The rows whose densities are compared.
    watch
        Where there is no time to learn with the prior, the fit begins at the start with it.
    """
    kernel, num_dims = deepcopy(first.kernel), rows.x.shape[1]
    width = rows.x.std(0)
    typical = math.sqrt(num_dims) * torch.where(width > 0.0, width, 1.0)  # [D]
    hold_lengthscales(kernel, typical.log(), SPREAD)
    held = first._replace(kernel=kernel, mean=deepcopy(first.mean))
    found = best_of([partial(learn, held, "start held")], watch) if has_time(watch) else None
    does_without = found is not None and _is_better(plain, found, judging)
    # Processes whose last digits differ must not maximise different functions.
    (agreed,) = watch.group.first([torch.tensor(float(does_without))])
    return (plain, first) if agreed else (found or held, held)


def _is_better(start: Start, other: Start, judging: Rows[Tensor]) -> bool:
    assert start.densities is not None, "a start that has learned has been judged"
    assert other.densities is not None, "a start that has learned has been judged"
    return is_clearly_better(start.densities, other.densities, judging, errors=ERRORS)
