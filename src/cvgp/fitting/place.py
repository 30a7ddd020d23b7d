"""Where a coreset starts: k-means, random noise, or the greedy choice of Burt et al. (2020).

Inputs and outputs are in the model's (standardised) units. Every method returns inputs, outputs and weights that
add up to the weight of the data, as the weights of the posterior do when each point speaks for its share.
"""

from typing import Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray

from cvgp.coreset import Coreset, cluster_summary, kmeans_labels, nearest_summary, pivoted_rows
from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import cross_matrix, diagonal, stationary_form, typical_slopes

Array = NDArray[np.float64]
InitName = Literal["kmeans", "random", "greedy"]

SAMPLE_PER_CENTER = 10
SMALLEST_SAMPLE = 4_000
"""K-means sees at most this many rows, or ten per center: more change the centers little and the time a lot."""

LEAST_PER_CENTER = 2
"""What k-means sees however short the time is."""

PLACING_SECONDS, PLACING_COLUMNS = 2.5e-9, 20
"""Of k-means per row, center and column, and how many columns the rest of a distance is worth: on the machine of the
cost model (docs: speed)."""

GREEDY_CANDIDATES = 4_000


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
) -> Coreset:
    """A coreset of at most `size` points for data x [N, D], y [N] or [N, T].

    Parameters
    ----------
    method
        ``kmeans``: centroids, cluster means and cluster sizes. ``random``: white noise for inputs and outputs and equal
        weights (the paper's RandomCVGP). ``greedy``: the data points that leave the least prior variance
        unexplained, with the outputs and weights of the points nearest to each.
    total_weight
        What the weights of the coreset add up to, where the rows are a sample of more.
    kernel
        ``greedy`` measures variance with it, and ``kmeans`` distances in its lengthscales.
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
        found = cluster_summary(kmeans_labels(scaled, ws, size, int(rng.integers(2**31))), xs, ys, ws)
    elif method == "greedy":
        if kernel is None:
            raise InvalidInputError("The greedy initialiser needs a kernel to measure variance with.")
        candidates = xs[_subsample(len(xs), max(GREEDY_CANDIDATES, size), rng)]
        found = nearest_summary(candidates[greedy_order(kernel, candidates, size)[0]], xs, ys, ws)
    else:
        raise InvalidInputError(f"Unknown initialiser {method!r}. Choose kmeans, random or greedy, or pass a Coreset.")
    return Coreset(found.X, found.y, found.beta * (total / found.beta.sum()))


def rows_to_see(size: int) -> int:
    """How many rows are enough to place a number of points by."""
    return max(SAMPLE_PER_CENTER * size, SMALLEST_SAMPLE)


def placing_seconds(size: int, num_dims: int) -> float:
    """What k-means takes for each row that it sees."""
    return PLACING_SECONDS * size * (num_dims + PLACING_COLUMNS)


def greedy_order(kernel: Kernel, x: Array, size: int) -> tuple[NDArray[np.intp], Array]:
    """Pivoted Cholesky: indices in the order of the largest variance left, and the mean variance left after each."""
    points = torch.as_tensor(x)
    with torch.no_grad():
        k_xx = diagonal(kernel, points)  # [N]
        return pivoted_rows(k_xx, lambda i: cross_matrix(kernel, points[i : i + 1], points)[0], size)


def _subsample(count: int, limit: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """At most `limit` row numbers, in order; all of them where they fit, so that no draw is needed."""
    if count <= limit:
        return np.arange(count)
    return np.sort(rng.choice(count, limit, replace=False))


def _inverse_lengthscale(kernel: Kernel, num_dims: int) -> Array:
    """Factors to units of lengthscales, or of typical slopes, in which columns that do not matter divide no rows."""
    with torch.no_grad():
        form = stationary_form(kernel, num_dims)
        factors = typical_slopes(kernel, num_dims) if form is None else form.inverse_lengthscale.to(torch.float64)
        return np.asarray(factors.cpu().numpy())
