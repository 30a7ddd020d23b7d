"""How many pseudo-points: all rows, where the exact GP is affordable, or the fewest that predict about as well as more.

For a fixed kernel and noise the best coreset on a nested set of points is known in closed form for every number of them
(:mod:`cvgp.gp.sites`). So one pass over some rows gives a curve: the density of held-out rows by the number of points.
The size is where the curve becomes flat.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.fitting.budget import exact_seconds, step_seconds
from cvgp.fitting.compare import Scores, compare
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.place import greedy_order, rows_to_see
from cvgp.fitting.residuals import log_normal, weighted_mean
from cvgp.fitting.sample import Start
from cvgp.gp.bounds import whitener
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean
from cvgp.gp.sites import nested_prediction, randomly_pivoted
from cvgp.runtime import threads_for

SIZES_PER_DOUBLING = 2


def exact_is_affordable(num_rows: int, num_dims: int, run: Run, *, has_neighbors: bool) -> bool:
    """Whether to learn kernel and noise with every row as a point.

    The exact GP has no pseudo-inputs to search for, and so learns better; but its cost grows with the cube of the rows.
    If predictions may use neighbors, that is the cheaper way from fewer rows on.
    """
    h, limit = run.heuristics, run.budget.max_time
    seconds = h.exact_evaluations * exact_seconds(num_rows, num_dims, h)
    longest = h.exact_seconds_with_neighbors if has_neighbors else h.exact_seconds
    return seconds <= longest and (limit is None or seconds <= limit)


def largest_size(max_time: float | None, h: Heuristics) -> int:
    """The most points that are trained: by default, or the largest multiple of 50 that a time limit affords."""
    if max_time is None:
        return h.largest_coreset
    size = 50
    while size < 2000 and h.timed_adam_steps * step_seconds(size + 50, default_batch(size + 50), h) <= max_time:
        size += 50
    return size


def default_batch(size: int) -> int:
    """The smallest power of two from 512 on that is at least twice the coreset."""
    batch = 512
    while batch < 2 * size:
        batch *= 2
    return batch


class SizeCurve(NamedTuple):
    """Scores of held-out rows by the number of points, for one kernel and noise."""

    sizes: list[int]
    """In rising order, at least one."""
    scores: list[Scores]
    margin: float

    @property
    def enough(self) -> int:
        """The smallest size that is close to the best one, or not clearly worse."""
        best = max(self.scores, key=lambda score: score.density)
        return next(size for size, score in zip(self.sizes, self.scores, strict=True) if self._is_close(score, best))

    def _is_close(self, score: Scores, best: Scores) -> bool:
        loss = compare(best, score)
        return loss.gain <= max(self.margin, loss.gain_error)


def choose_size(start: Start, source: DataSource, run: Run) -> SizeCurve:
    """The curve of sizes for the data and a start, up to the most points that there is time to train."""
    h, rng = run.heuristics, run.rng("size")
    limit = largest_size(run.budget.max_time, h)
    rows = source.sample(run.rows(rows_to_see(limit)), rng)
    order = torch.as_tensor(rng.permutation(len(rows.x)), device=rows.x.device)
    held_out = min(math.ceil(h.size_held_out * len(order)), h.judging_rows)
    parts = (rows.take(order[held_out:]), rows.take(order[:held_out])) if len(order) > 1 else (rows, rows)
    return size_curve(start, *parts, limit, rng, h)


@torch.no_grad()
def size_curve(
    start: Start,
    learning: Rows[Tensor],
    judging: Rows[Tensor],
    limit: int,
    rng: np.random.Generator,
    h: Heuristics,
) -> SizeCurve:
    """The curve of a start up to `limit` points, which are rows that it learns from."""
    x, y = learning.x.to(torch.float64), learning.y.to(torch.float64)
    with threads_for(float(limit) ** 2 * len(x)):
        points = randomly_pivoted(start.kernel, x, min(limit, len(x)), rng)
        points = points if len(points) else np.zeros(1, dtype=np.intp)
        model = start.model(Coreset(x[points], y[points], np.ones(len(points)))).to(x.device)
        L_inv = whitener(model.jittered_covariance())
        found = model.gather(L_inv, x, y, sample_weight=learning.sample_weight, noise_variance=learning.noise_variance)
        sizes = _sizes_up_to(len(points), h.smallest_coreset)
        psi = L_inv @ cross_matrix(start.kernel, model.X_c, judging.x)  # [M, n]
        numbers = torch.tensor(sizes, device=x.device)
        prediction = nested_prediction(found, psi, diagonal(start.kernel, judging.x), numbers)
    variance = prediction.f_var + model.total_noise(judging.noise_variance)  # [S, n]
    residual = judging.y - prior_mean(model.mean, judging.x, judging.y)
    error = residual.reshape(len(residual), -1) - prediction.f_mean  # [S, n, Q]
    weight = torch.ones_like(judging.x[:, 0]) if judging.sample_weight is None else judging.sample_weight
    scores = []
    for e, v in zip(error, variance, strict=True):
        square = e.square().mean(-1)
        # Too few points for a kernel predict worse than their variances say. The noise grows to the residuals as soon
        # as it is learned, so a size is judged with variances that suit its own residuals.
        factor = max(weighted_mean(square / v, judging), torch.finfo(v.dtype).tiny)
        scores.append(Scores(log_normal(e, factor * v[:, None]).mean(-1), square, weight))
    return SizeCurve(sizes, scores, h.size_margin)


def points_to_keep(kernel: Kernel, noise: float, x: NDArray[np.float64], h: Heuristics) -> int | None:
    """How many greedy points explain the inputs of an exact GP, or nearly do; None if all rows are to be kept."""
    limit = min(len(x) // 2, h.largest_coreset)
    size = needed_points(kernel, noise, x, limit, h)
    if size is None and limit == h.largest_coreset:
        is_bearable = needed_points(kernel, h.bearable_loss * noise, x, limit, h) is not None
        return limit if is_bearable else None
    return size


def needed_points(kernel: Kernel, noise: float, x: NDArray[np.float64], limit: int, h: Heuristics) -> int | None:
    """How many greedy points (Burt et al. 2020) explain the inputs up to a share of the noise; None if not `limit`."""
    chosen, unexplained = greedy_order(kernel, x, limit)
    enough = np.flatnonzero(unexplained <= h.unexplained_share * noise)
    if not len(enough) and len(chosen) == limit:
        return None
    needed = int(enough[0]) + 1 if len(enough) else len(chosen)  # where the kernel has no further direction
    return min(max(needed, h.smallest_coreset), limit, max(len(chosen), 1))


def _sizes_up_to(limit: int, smallest: int) -> list[int]:
    """Sizes in equal ratios, from the smallest one to the limit."""
    if limit <= smallest:
        return [limit]
    count = math.ceil(SIZES_PER_DOUBLING * math.log2(limit / smallest))
    return sorted({round(smallest * (limit / smallest) ** (i / count)) for i in range(count + 1)})
