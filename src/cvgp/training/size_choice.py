"""How many points: the fewest that predict unseen rows about as well as the most that the time affords.

For a fixed kernel and noise the best coreset on a nested set of points is known in closed form for every number of them
(:mod:`cvgp.gp.nested`). So one pass over some rows gives a curve: the density of held-out rows by the number of points.
The size is where the curve becomes flat. It is drawn for what the exact likelihood of some rows learned too: a kernel
that was learned with few points is too smooth for many.

Training moves points, and takes a time that grows with their number. Where the curve still rises steeply at the largest
size that there is time to train, more points are worth more than their training: they stay where they are, among the
rows, and are solved for.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.gp.bounds import whitener
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean
from cvgp.gp.model import CVGP
from cvgp.gp.nested import nested_prediction
from cvgp.gp.pivoting import randomly_pivoted
from cvgp.optim.stopping import Progress
from cvgp.threads import threads_for
from cvgp.training.candidates import Start
from cvgp.training.densities import log_normal, weighted_mean
from cvgp.training.initialise import rows_to_see
from cvgp.training.monitor import Watch
from cvgp.training.size import SMALLEST, UNEXPLAINED_SHARE, largest_size, largest_untrained

MARGIN = 0.01
"""Nats per held-out row by which the chosen size may stay behind the best one; more where chance explains more."""
TRAINING_GAIN = 0.1
"""Nats per held-out row that points must be worth which there is no time to train: what training gains, about."""
HELD_OUT, MOST_HELD_OUT = 0.2, 1000
SIZES_PER_DOUBLING = 2


class SizeCurve(NamedTuple):
    """Log densities of held-out rows by the number of points, for one kernel and noise."""

    start: Start
    sizes: list[int]
    """In rising order, at least one."""
    densities: Tensor  # [S, n]
    judging: Rows[Tensor]
    is_explained: bool = False
    """Whether the largest size leaves next to nothing of the prior variance unexplained."""

    def mean(self, number: int) -> float:
        """Nats per row at one of the sizes."""
        return weighted_mean(self.densities[number], self.judging)

    @property
    def best(self) -> int:
        """The number of the size with the highest density."""
        return max(range(len(self.sizes)), key=self.mean)

    @property
    def enough(self) -> int:
        """The number of the smallest size that is close to the best one, or not clearly worse."""
        best = self.densities[self.best]
        return next(i for i in range(len(self.sizes)) if self._is_close(best - self.densities[i]))

    def _is_close(self, loss: Tensor) -> bool:
        mean = weighted_mean(loss, self.judging)
        weight = torch.ones_like(loss) if self.judging.sample_weight is None else self.judging.sample_weight
        error = (weight * (loss - mean)).square().sum().sqrt() / weight.sum()
        return mean <= max(MARGIN, error.item())

    def __str__(self) -> str:
        numbers = sorted({0, self.enough, self.best, len(self.sizes) - 1})
        return ", ".join(f"{self.mean(i):.3f} with {self.sizes[i]}" for i in numbers) + " (nats per unseen row)"


class Sized(NamedTuple):
    """A number of points, and the start that suits it."""

    start: Start
    size: int
    is_trained: bool
    """Whether there is time to train so many points. If not, they are to be solved for where they are placed."""


def choose_size(
    start: Start, source: DataSource, rng: np.random.Generator, watch: Watch, *, may_stay_untrained: bool
) -> Sized:
    """The size of a coreset for the data, and one of the starts that a search has found.

    Parameters
    ----------
    start
        What the search for a start found.
    source
        The data, of which some rows are seen.
    rng
        Draws the rows and the points.
    watch
        Records the choice, and knows the time limit.
    may_stay_untrained
        Whether the size may be one that there is no time to train.
    """
    limit = largest_size(watch.max_time)
    learning, judging = _two_parts(source.sample(watch.some_of(rows_to_see(limit)), rng), rng)
    starts = [start] if start.by_rows is None or not may_stay_untrained else [start, start.by_rows]
    curves = [held_out_curve(one, learning, judging, limit, rng) for one in starts]
    trained = max(curves, key=lambda curve: curve.mean(curve.best))
    curve = trained
    most = min(largest_untrained(source.num_rows, watch.max_time), len(learning.x))
    if may_stay_untrained and most > limit and not trained.is_explained:
        larger = held_out_curve(start.by_rows or start, learning, judging, most, rng)
        if (
            larger.mean(larger.best) > trained.mean(trained.best) + TRAINING_GAIN
            and larger.sizes[larger.enough] > limit
        ):
            curve = larger
    _report(curve, watch)
    return Sized(curve.start, curve.sizes[curve.enough], curve is trained)


@torch.no_grad()
def held_out_curve(
    start: Start, learning: Rows[Tensor], judging: Rows[Tensor], limit: int, rng: np.random.Generator
) -> SizeCurve:
    """The curve of a start up to `limit` points, which are rows that it learns from."""
    x, y = learning.x.to(torch.float64), learning.y.to(torch.float64)
    with threads_for(float(limit) ** 2 * len(x)):
        points = randomly_pivoted(start.kernel, x, min(limit, len(x)), rng)
        points = points if len(points) else np.zeros(1, dtype=np.intp)
        coreset = Coreset(x[points], y[points], np.ones(len(points)))
        model = CVGP(coreset, start.kernel, mean=start.mean, likelihood=start.likelihood()).to(x.device)
        L_inv = whitener(model.jittered_covariance())
        found = model.gather(L_inv, x, y, sample_weight=learning.sample_weight, noise_variance=learning.noise_variance)
        sizes = _sizes_up_to(len(points))
        psi = L_inv @ cross_matrix(start.kernel, model.X_c, judging.x)  # [M, n]
        numbers = torch.tensor(sizes, device=x.device)
        prediction = nested_prediction(found, psi, diagonal(start.kernel, judging.x), numbers)
    variance = prediction.f_var + model.total_noise(judging.noise_variance)  # [S, n]
    error = judging.y - prior_mean(model.mean, judging.x, judging.y)
    error = error.reshape(len(error), -1) - prediction.f_mean  # [S, n, Q]
    variance = _calibrated(error, variance[..., None], judging)
    left = prediction.f_prior_left[-1].mean().item()
    is_explained = left <= UNEXPLAINED_SHARE * model.noise.item()
    return SizeCurve(start, sizes, log_normal(error, variance).mean(-1), judging, is_explained)


def _calibrated(error: Tensor, variance: Tensor, rows: Rows[Tensor]) -> Tensor:
    """Variances [S, n, 1] times the factor of each size that suits its errors [S, n, Q] best.

    Too few points for a kernel predict worse than their variances say. The noise grows to what is left as soon as it is
    learned, so a size is judged by what it predicts, not by a noise that suits another size.
    """
    squares = (error.square() / variance).mean(-1)  # [S, n]
    factors = torch.tensor([weighted_mean(row, rows) for row in squares], dtype=variance.dtype, device=variance.device)
    return variance * factors.clamp_min(torch.finfo(variance.dtype).tiny)[:, None, None]


def untrained_points(sized: Sized, source: DataSource, rng: np.random.Generator) -> Coreset:
    """The rows that become points where these are not trained; their outputs and weights are still to be solved for."""
    rows = source.sample(rows_to_see(sized.size), rng)
    points = randomly_pivoted(sized.start.kernel, rows.x, sized.size, rng)
    return Coreset(rows.x[points], rows.y[points], np.full(len(points), source.total_weight / len(points)))


def rows_beside(rows: Rows[Tensor], points: Tensor) -> Rows[Tensor]:
    """The rows that are no points."""
    _, number = torch.cat([rows.x, points.detach().to(rows.x.dtype)]).unique(dim=0, return_inverse=True)
    return rows.take(~torch.isin(number[: len(rows.x)], number[len(rows.x) :]))


def _two_parts(rows: Rows[Tensor], rng: np.random.Generator) -> tuple[Rows[Tensor], Rows[Tensor]]:
    """Rows to learn from and rows to judge by; a single row serves as both."""
    order = torch.as_tensor(rng.permutation(len(rows.x)), device=rows.x.device)
    held_out = min(math.ceil(HELD_OUT * len(order)), MOST_HELD_OUT)
    return (rows.take(order[held_out:]), rows.take(order[:held_out])) if len(order) > 1 else (rows, rows)


def _sizes_up_to(limit: int) -> list[int]:
    """Sizes in equal ratios, from the smallest one to the limit."""
    if limit <= SMALLEST:
        return [limit]
    count = math.ceil(SIZES_PER_DOUBLING * math.log2(limit / SMALLEST))
    return sorted({round(SMALLEST * (limit / SMALLEST) ** (i / count)) for i in range(count + 1)})


def _report(curve: SizeCurve, watch: Watch) -> None:
    """Write the choice into the history, where callbacks see it too."""
    watch.begin("start size", 1)
    chosen = curve.enough
    watch.observe(Progress(1, -curve.mean(chosen), math.nan, f"{curve.sizes[chosen]} points: {curve}"))
