r"""Periods to start from: the likelihood has a peak at each of many lengths.

The peaks of a periodogram say which of them are worth a try. For irregular inputs it is a least-squares fit of
:math:`a \cos(2 \pi \nu x) + b \sin(2 \pi \nu x)` to the residuals of a cubic, at each frequency :math:`\nu`.
"""

import math

import torch
from gpytorch.kernels import Kernel, PeriodicKernel
from torch import Tensor

from cvgp.gp.kernels import multiply_inside

TREND_DEGREE = 3
FEWEST_CYCLES = 2.0
"""Within the span of the inputs: one cycle alone cannot be told from a trend."""
STEPS_PER_CYCLE = 4
"""Frequencies that are tried for each further cycle within the span."""
MOST_CYCLES_PER_ROW = 5.0
"""Of irregular inputs; two of them may happen to be as close as one likes."""


def periodic_parts(kernel: Kernel) -> list[PeriodicKernel]:
    """The periodic kernels whose period is to be learned."""
    parts = [part for part in kernel.modules() if isinstance(part, PeriodicKernel)]
    return [part for part in parts if part.raw_period_length.requires_grad and part.active_dims is None]


def shortest_periods(x: Tensor) -> Tensor:
    """The shortest period that rows `[n, D]` can tell from a longer one, along each column `[D]`.

    On a grid this is twice its step: the waves of all shorter periods take the same values there as longer ones do.
    """
    return torch.stack([_shortest_period(column) for column in x.to(torch.float64).mT])


def _shortest_period(x: Tensor) -> Tensor:
    span = x.max() - x.min()
    gaps = x.sort().values.diff()
    gaps = gaps[gaps > 1e-9 * span]
    if len(gaps) == 0:
        return torch.zeros_like(span)
    return torch.max(2.0 * gaps.min(), span / (MOST_CYCLES_PER_ROW * len(x)))


@torch.no_grad()
def is_alias(kernel: Kernel, shortest: Tensor) -> bool:
    """Whether a period that was learned is shorter than the rows can tell."""
    return any(bool((part.period_length.to(shortest) < 0.99 * shortest).any()) for part in periodic_parts(kernel))


@torch.no_grad()
def candidate_periods(x: Tensor, y: Tensor, shortest: Tensor, count: int) -> list[Tensor]:
    """Up to `count` likely periods `[D]` of y `[n]` or `[n, Q]` along the columns of x `[n, D]`, likeliest first."""
    columns, outputs = x.to(torch.float64).mT, y.reshape(len(y), -1)
    by_column = [_peaks(column, outputs, least.item(), count) for column, least in zip(columns, shortest, strict=True)]
    longest = max(len(peaks) for peaks in by_column)
    if min(len(peaks) for peaks in by_column) == 0:
        return []
    return [torch.stack([peaks[min(i, len(peaks) - 1)] for peaks in by_column]) for i in range(longest)]


def set_periods(kernel: Kernel, periods: Tensor) -> None:
    """Give the periodic parts these periods `[D]`; their geometric mean, where one period is for all columns."""
    for part in periodic_parts(kernel):
        now = part.period_length.detach()
        wanted = periods if now.shape[-1] == len(periods) else periods.log().mean().exp()
        multiply_inside(part, "period_length", wanted.to(now) / now)


def _peaks(x: Tensor, y: Tensor, shortest: float, count: int) -> Tensor:
    """The periods with the highest peaks of the periodogram; none where there are too few distinct inputs."""
    span, distinct = (x.max() - x.min()).item(), len(x.unique())
    if distinct <= TREND_DEGREE + FEWEST_CYCLES or span < FEWEST_CYCLES * shortest:
        return x.new_zeros(0)
    cycles = torch.arange(FEWEST_CYCLES, span / shortest, 1.0 / STEPS_PER_CYCLE, dtype=x.dtype, device=x.device)
    power = _power((x - x.min()) / span, y.to(torch.float64), cycles)
    inner = power[1:-1]
    is_peak = (inner >= power[:-2]) & (inner >= power[2:])
    peaks = is_peak.nonzero()[:, 0] + 1
    best = peaks[power[peaks].argsort(descending=True)[:count]]
    return span / cycles[best]


def _power(x: Tensor, y: Tensor, cycles: Tensor) -> Tensor:
    """The share of y beyond its trend that one wave of each frequency explains."""
    trend = torch.stack([(2.0 * x - 1.0) ** degree for degree in range(TREND_DEGREE + 1)], 1)  # [n, 4]
    basis = torch.linalg.qr(trend)[0]
    rest = y - basis @ (basis.mT @ y)  # [n, Q]
    phase = 2.0 * math.pi * cycles[:, None] * x  # [F, n]
    c, s = phase.cos(), phase.sin()
    cc, ss, cs = c.square().sum(1), s.square().sum(1), (c * s).sum(1)  # [F]
    cy, sy = c @ rest, s @ rest  # [F, Q]
    determinant = (cc * ss - cs.square()).clamp_min(1e-9 * len(x) ** 2)
    explained = ss[:, None] * cy.square() + cc[:, None] * sy.square() - 2.0 * cs[:, None] * cy * sy
    power: Tensor = explained.sum(1) / determinant / rest.square().sum().clamp_min(torch.finfo(x.dtype).tiny)
    return power
