"""How many pseudo-points, where they start, and the model that a fit begins with.

For a fixed kernel and noise the best coreset on a nested set of points is known in closed form for every number of them
(:mod:`cvgp.gp.sites`). So one pass over some rows gives a curve: the density of held-out rows by the number of points.
The size is where the curve becomes flat; all rows are points where the exact GP is affordable.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from cvgp.coreset import Coreset, cluster_summary, kmeans_labels, nearest_summary, pivoted_rows
from cvgp.data.rows import Array, Rows
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError
from cvgp.fitting.compare import Scores, compare, log_normal, weighted_mean
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.kernel import raise_noise
from cvgp.fitting.monitor import Run, exact_seconds, step_seconds
from cvgp.fitting.options import InitName
from cvgp.fitting.sample import Start, two_parts
from cvgp.gp.bounds import whitener
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean, stationary_form, typical_slopes
from cvgp.gp.model import CVGP
from cvgp.gp.sites import nested_prediction, randomly_pivoted
from cvgp.runtime import threads_for

SIZES_PER_DOUBLING = 2
SAMPLE_PER_CENTER, SMALLEST_SAMPLE = 10, 4_000  # rows for k-means; more change the centers little
GREEDY_CANDIDATES = 4_000


def exact_is_affordable(num_rows: int, num_dims: int, run: Run) -> bool:
    """Whether to learn kernel and noise with every row as a point."""
    h, limit = run.heuristics, run.budget.max_time
    seconds = h.exact_evaluations * exact_seconds(num_rows, num_dims, h)
    return seconds <= h.exact_seconds and (limit is None or seconds <= limit)


def largest_size(max_time: float | None, h: Heuristics) -> int:
    """The most points that are trained: by default, or the largest multiple of 50 that a time limit affords."""
    if max_time is None:
        return h.largest_coreset
    size = 50
    while size < 2000 and h.most_adam_steps * step_seconds(size + 50, default_batch(size + 50), h) <= max_time:
        size += 50
    return size


def default_batch(size: int) -> int:
    """The smallest power of two from 512 on that is at least twice the coreset."""
    return max(512, 1 << (2 * size - 1).bit_length())


class SizeCurve(NamedTuple):
    """Scores of held-out rows by the number of points (in rising order), for one kernel and noise."""

    sizes: list[int]
    scores: list[Scores]
    margin: float

    @property
    def enough(self) -> int:
        """The smallest size that is close to the best one, or not clearly worse."""
        best = max(self.scores, key=lambda score: score.density)
        pairs = zip(self.sizes, self.scores, strict=True)
        return next(size for size, score in pairs if not compare(best, score).is_likelier(margin=self.margin))


def choose_size(start: Start, source: DataSource, run: Run) -> SizeCurve:
    """The curve of sizes for the data and a start, up to the most points that there is time to train."""
    h, rng = run.heuristics, run.rng("size")
    limit = largest_size(run.budget.max_time, h)
    rows = source.sample(run.rows(rows_to_see(limit)), rng)
    held_out = min(math.ceil(h.size_held_out * len(rows.x)), h.judging_rows)
    judging, learning = rows, rows
    if len(rows.x) > 1:
        judging, learning = two_parts(rows, held_out, len(rows.x) - held_out, rng, first_is_later=True)
    return size_curve(start, learning, judging, limit, rng, h)


@torch.no_grad()
def size_curve(
    start: Start, learning: Rows[Tensor], judging: Rows[Tensor], limit: int, rng: np.random.Generator, h: Heuristics
) -> SizeCurve:
    """The curve of a start up to `limit` points, which are rows that it learns from."""
    x, y = learning.x.to(torch.float64), learning.y.to(torch.float64)
    with threads_for(float(limit) ** 2 * len(x)):
        points = randomly_pivoted(start.kernel, x, min(limit, len(x) // h.rows_per_point), rng)
        points = points if len(points) else np.zeros(1, dtype=np.intp)
        model = start.model(Coreset(x[points], y[points], np.ones(len(points)))).to(x.device)
        L_inv = whitener(model.jittered_covariance())
        found = model.gather(L_inv, x, y, sample_weight=learning.sample_weight, noise_variance=learning.noise_variance)
        least, most = min(h.smallest_coreset, len(points)), len(points)
        steps = max(math.ceil(SIZES_PER_DOUBLING * math.log2(most / least)), 1)
        sizes = sorted({round(least * (most / least) ** (i / steps)) for i in range(steps + 1)})  # in equal ratios
        psi = L_inv @ cross_matrix(start.kernel, model.X_c, judging.x)  # [M, n]
        numbers = torch.tensor(sizes, device=x.device)
        f_mean, f_var = nested_prediction(found, psi, diagonal(start.kernel, judging.x), numbers)
    variance = f_var + model.total_noise(judging.noise_variance)  # [S, n]
    residual = judging.y - prior_mean(model.mean, judging.x, judging.y)
    error = residual.reshape(len(residual), -1) - f_mean  # [S, n, Q]
    scores = []
    for e, v in zip(error, variance, strict=True):
        square = e.square().mean(-1)
        # Too few points for a kernel predict worse than their variances say. The noise grows to the residuals as soon
        # as it is learned, so a size is judged with variances that suit its own residuals.
        factor = max(weighted_mean(square / v, judging), torch.finfo(v.dtype).tiny)
        scores.append(Scores.of(judging, log_normal(e, factor * v[:, None]).mean(-1), square))
    return SizeCurve(sizes, scores, h.size_margin)


def points_to_keep(kernel: Kernel, noise: float, x: Array, h: Heuristics) -> int | None:
    """How many greedy points (Burt et al. 2020) explain the inputs up to a share of the noise; at most half of all."""
    limit = min(len(x) // 2, h.largest_coreset)
    chosen, unexplained = greedy_order(kernel, x, limit)
    for factor in (1.0, h.bearable_loss) if limit == h.largest_coreset else (1.0,):
        enough = np.flatnonzero(unexplained <= factor * h.unexplained_share * noise)
        if len(enough) or len(chosen) < limit:
            needed = int(enough[0]) + 1 if len(enough) else len(chosen)  # the kernel has no further direction
            size = min(max(needed, h.smallest_coreset), limit, max(len(chosen), 1))
            return size if factor == 1.0 else limit
    return None


def begin_model(
    start: Start,
    source: DataSource,
    size: int,
    run: Run,
    *,
    init: InitName | Coreset = "kmeans",
    beta_transform: Literal["log", "softplus"] = "log",
    is_standard: bool = True,
) -> CVGP:
    """A model with `size` pseudo-points, placed among the rows; all rows, if it is as many as there are."""
    coreset = init if isinstance(init, Coreset) else _place(init, source, size, start, run, is_standard=is_standard)
    model = start.model(coreset, beta_transform).to(source.device)
    if size < source.num_rows and not start.noise_is_known:
        rows = source.sample(run.rows(run.heuristics.judging_rows), run.rng("noise ladder"))
        raise_noise(model, rows, run.heuristics.noise_ladder)
    if source.has_known_noise:
        # The weights of a first coreset count rows, and a row's precision is that of its total noise.
        w = model.beta.detach() / source.harmonic_noise(model.noise.item())
        model.set_sites(model.y_c - prior_mean(model.mean, model.X_c, model.y_c), w)
    adopt_first(source, model)
    return model


@torch.no_grad()
def adopt_first(source: DataSource, model: CVGP) -> None:
    """Give the models of all processes of a group the same bits, whatever rounding did to the same steps."""
    tensors = [*model.parameters(), *model.buffers()]
    for tensor, value in zip(tensors, source.group.first([t.detach() for t in tensors]), strict=True):
        tensor.copy_(value)


def _place(method: InitName, source: DataSource, size: int, start: Start, run: Run, *, is_standard: bool) -> Coreset:
    rng, total = run.rng("points"), source.total_weight
    rows = source.sample(size if method == "random" else rows_to_see(size), rng)
    x, y, weight, *_ = rows.map(lambda values: values.cpu().numpy())
    if method == "kmeans" and size >= source.num_rows:
        placed = Coreset(x, y, np.ones(len(x)) if weight is None else weight)  # nothing to summarize
    else:
        alike: Any = {"total_weight": total, "kernel": start.kernel, "least_rows": run.heuristics.rows_per_point}
        placed = initial_coreset(method, x, y, size, rng, sample_weight=weight, **alike)
    if method == "random" and not is_standard:
        some = source.sample(run.heuristics.judging_rows, run.rng("spread"))
        x, y = (values.cpu().numpy() for values in (some.x, some.y))
        placed = Coreset(placed.X * x.std(0) + x.mean(0), placed.y * y.std(0) + y.mean(0), placed.beta)
    (count,) = source.group.first([torch.tensor(float(len(placed)), dtype=torch.float64)])
    # Clusters may be lost: to receive the first process's points, the others need arrays of their number.
    arrays = [np.resize(a, (int(count), *a.shape[1:])) for a in (placed.X, placed.y, placed.beta)]
    x_c, y_c, beta = source.group.first([torch.as_tensor(a) for a in arrays])
    return Coreset(x_c, y_c, beta)


def initial_coreset(
    method: InitName,
    x: Array,
    y: Array,
    size: int,
    rng: np.random.Generator,
    *,
    sample_weight: Array | None = None,
    total_weight: float | None = None,
    kernel: Kernel | None = None,
    least_rows: int = 1,
) -> Coreset:
    """A coreset of at most `size` points for data x [N, D], y [N] or [N, Q], in the model's units.

    Distances are those of the kernel, or Euclidean without one. With `least_rows`, clusters have as many rows each.
    """
    weight = np.ones(len(x)) if sample_weight is None else sample_weight
    total = float(weight.sum()) if total_weight is None else total_weight
    size = min(size, len(x))
    if method == "random":
        shape = (size, *y.shape[1:])
        return Coreset(rng.standard_normal((size, x.shape[1])), rng.standard_normal(shape), np.full(size, total / size))
    sample = _subsample(len(x), rows_to_see(size), rng)
    xs, ys, ws = x[sample], y[sample], weight[sample]
    if method == "kmeans":
        scaled = xs if kernel is None else xs * _inverse_lengthscale(kernel, xs.shape[1])
        seed = int(rng.integers(2**31))
        labels = kmeans_labels(scaled, ws, size, seed) if least_rows == 1 else balanced_labels(scaled, size)
        found = cluster_summary(labels, xs, ys, ws)
    elif method == "greedy":
        assert kernel is not None, "variance is measured by a kernel"
        candidates = xs[_subsample(len(xs), max(GREEDY_CANDIDATES, size), rng)]
        found = nearest_summary(candidates[greedy_order(kernel, candidates, size)[0]], xs, ys, ws)
    else:
        raise InvalidInputError(f"Unknown initializer {method!r}. Choose kmeans, random or greedy, or pass a Coreset.")
    return Coreset(found.X, found.y, found.beta * (total / found.beta.sum()))


def balanced_labels(x: Array, size: int) -> NDArray[np.intp]:
    """The part of each row x [N, D]: `size` parts of equally many rows, by halves across the widest column."""
    if size == 1:
        return np.zeros(len(x), dtype=np.intp)
    some, order = size // 2, np.argsort(x[:, x.std(axis=0).argmax()], kind="stable")
    first = len(x) * some // size
    labels = np.empty(len(x), dtype=np.intp)
    labels[order[:first]] = balanced_labels(x[order[:first]], some)
    labels[order[first:]] = some + balanced_labels(x[order[first:]], size - some)
    return labels


def rows_to_see(size: int) -> int:
    """How many rows are enough to place a number of points by."""
    return max(SAMPLE_PER_CENTER * size, SMALLEST_SAMPLE)


def greedy_order(kernel: Kernel, x: Array, size: int) -> tuple[NDArray[np.intp], Array]:
    """Pivoted Cholesky: indices in the order of the largest variance left, and the mean variance left after each."""
    points = torch.as_tensor(x)
    with torch.no_grad():
        k_xx = diagonal(kernel, points)  # [N]
        return pivoted_rows(k_xx, lambda i: cross_matrix(kernel, points[i : i + 1], points)[0], size)


def _subsample(count: int, limit: int, rng: np.random.Generator) -> NDArray[np.intp]:
    if count <= limit:
        return np.arange(count)
    return np.sort(rng.choice(count, limit, replace=False))


def _inverse_lengthscale(kernel: Kernel, num_dims: int) -> Array:
    """Factors to units of lengthscales, or of typical slopes, in which columns that do not matter divide no rows."""
    with torch.no_grad():
        form = stationary_form(kernel, num_dims)
        factors = typical_slopes(kernel, num_dims) if form is None else form.inverse_lengthscale.to(torch.float64)
        return np.asarray(factors.cpu().numpy())
