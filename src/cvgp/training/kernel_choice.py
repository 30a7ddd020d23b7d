"""The choice among kernels: each is learned from some rows, and the density of others decides.

The first kernel keeps its place unless another is better by more than the noise of that judgement. A sum with a line
has to be better than the best single kernel by more: it costs more, and the best of several sums is often ahead by
chance.

A sum of two kernels of distances holds the single one as a case, and its second part learns what few unseen rows show
badly. So it may also be judged by the evidence of the rows that it was learned from: then it has to gain more nats than
it has parameters more (Akaike, 1974). Unseen rows for which it is clearly worse still have the last word: it has then
learned its own rows by heart.
"""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp.kernel_names import name_of_kernel
from cvgp.optim.stopping import Progress
from cvgp.training.candidates import Start, best_of
from cvgp.training.densities import MARGIN, is_clearly_better
from cvgp.training.monitor import Watch

ERRORS, ERRORS_OF_SUMS = 1.0, 2.0
"""By how many standard errors of the difference, row by row, a kernel has to be ahead."""

Learn = Callable[[Start, str], Start]
"""From a start and the name of a phase to what some rows teach it."""


def choose_kernel(
    default: Start, alternatives: Sequence[Kernel], learn: Learn, judging: Rows[Tensor], watch: Watch
) -> tuple[Start, Kernel | None]:
    """What the chosen kernel has learned, and which of the alternatives it is; None where the default is as good.

    Parameters
    ----------
    default
        What the kernel that all are compared with has learned: an outputscale times a stationary kernel.
    alternatives
        Such kernels too, or sums that begin with one. They go on from the lengthscales of the default.
    learn
        Learns from some rows, and judges by `judging`.
    judging
        The rows whose densities are compared.
    watch
        Records what was chosen. Where there is no time, the alternatives that are left are not tried.
    """
    singles = [i for i, kernel in enumerate(alternatives) if not isinstance(kernel, AdditiveKernel)]
    lines = [i for i, kernel in enumerate(alternatives) if i not in singles and _has_line(kernel)]
    others = [i for i in range(len(alternatives)) if i not in (*singles, *lines)]

    def is_clear(start: Start, other: Start) -> bool:
        return _is_better(start, other, judging, ERRORS_OF_SUMS)

    rules: list[tuple[list[int], Callable[[Start, Start], bool]]] = [
        (singles, lambda start, other: _is_better(start, other, judging, ERRORS)),
        (lines, is_clear),
        (others, lambda start, other: is_clear(start, other) or _is_worth_its_parameters(start, other)),
    ]
    learned: dict[int, Start] = {}
    chosen, best = -1, default
    for stage, is_better in rules:
        for i in stage:
            start, name = _going_on(default, alternatives[i]), name_of_kernel(alternatives[i])
            found = best_of([partial(learn, start, f"start {name}")], watch) if watch.has_time else None
            if found is not None:
                learned[i] = found
        leader = max((i for i in stage if i in learned), key=lambda i: learned[i].density, default=-1)
        if leader >= 0 and is_better(learned[leader], best):
            chosen, best = leader, learned[leader]
    # Processes whose last digits differ must not fit different kernels.
    (first,) = watch.group.first([torch.tensor(float(chosen), dtype=torch.float64)])
    chosen = int(first)
    best = default if chosen < 0 else learned.get(chosen) or _going_on(default, alternatives[chosen])
    _report(best, default, watch)
    return best, None if chosen < 0 else alternatives[chosen]


def _has_line(kernel: Kernel) -> bool:
    return any(isinstance(part, LinearKernel) for part in kernel.modules())


def _is_worth_its_parameters(start: Start, other: Start) -> bool:
    """Whether the evidence of the same rows grows by more than the number of parameters does, and others agree."""
    more = _num_parameters(start.kernel) - _num_parameters(other.kernel)
    return start.evidence - other.evidence > more and start.density >= other.density - MARGIN


def _num_parameters(kernel: Kernel) -> int:
    return sum(parameter.numel() for parameter in kernel.parameters() if parameter.requires_grad)


def _is_better(start: Start, other: Start, judging: Rows[Tensor], errors: float) -> bool:
    assert start.densities is not None, "a start that has learned has been judged"
    assert other.densities is not None, "a start that has learned has been judged"
    return is_clearly_better(start.densities, other.densities, judging, errors=errors)


@torch.no_grad()
def _going_on(default: Start, kernel: Kernel) -> Start:
    """A copy of a kernel with the lengthscales and the outputscale that the default has learned."""
    kernel, learned = deepcopy(kernel), default.kernel
    term = kernel.kernels[0] if isinstance(kernel, AdditiveKernel) else kernel
    term.base_kernel.lengthscale = learned.base_kernel.lengthscale
    term.outputscale = learned.outputscale
    return default._replace(kernel=kernel, mean=deepcopy(default.mean))


def _report(best: Start, default: Start, watch: Watch) -> None:
    """Write the choice into the history, where callbacks see it too."""
    choice = f"kernel {name_of_kernel(best.kernel)}: {best.density:.3f} nats per unseen row"
    if best is not default:
        choice += f", and {default.density:.3f} with {name_of_kernel(default.kernel)}"
    watch.begin("start kernel", 1)
    watch.observe(Progress(1, -best.density, math.nan, choice))
