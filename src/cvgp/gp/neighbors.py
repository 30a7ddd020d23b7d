"""The nearest rows in a kernel's own metric: among all rows, all others, or the earlier ones (§9.4).

Near means correlated, which for a stationary kernel is the distance in lengthscales. In few dimensions a tree is
searched; otherwise all distances are computed, in blocks of float32, since any set of rows is a valid set of neighbors.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import check_inputs, cross_matrix, diagonal, stationary_form
from cvgp.runtime import threads_for

if TYPE_CHECKING:
    from scipy.spatial import KDTree

GROUPS = 16  # columns of a block of distances are a multiple of this, where they can be


class Distance:
    """Squared distances in lengthscales, up to a constant of each query."""

    def __init__(self, x: Tensor, inverse_lengthscale: Tensor) -> None:
        self._scale = inverse_lengthscale.to(torch.float64)
        self._center = (x.to(torch.float64) * self._scale).mean(0)
        self.z = self.place(x)  # [N, D], float64
        # |z|^2 - 2 q^T z is one product of (q, 1); the columns that fill up the last group are infinitely far.
        lifted = torch.cat([-2.0 * self.z, self.z.square().sum(1, keepdim=True)], 1).to(torch.float32)
        filling = lifted.new_zeros(-len(x) % GROUPS, lifted.shape[1])
        filling[:, -1] = torch.inf
        self._lifted = torch.cat([lifted, filling]).mT.contiguous()  # [D + 1, N and filling]

    def place(self, x: Tensor) -> Tensor:
        """Inputs in lengthscales from the center of the rows."""
        return x.to(torch.float64) * self._scale - self._center

    def blocks(self, queries: Iterable[tuple[Tensor, int]]) -> Iterator[Tensor]:
        """From each x [n, D] to the first rows, up to whole groups; a block reuses the memory of the one before it."""
        memory = self._lifted.new_empty(0)
        for x, num_rows in queries:
            lifted = self._lifted[:, : num_rows + -num_rows % GROUPS]
            points = self.place(x).to(torch.float32)
            size = len(x) * lifted.shape[1]
            if len(memory) < size:
                memory = self._lifted.new_empty(size)
            block = memory[:size].view(len(x), -1)
            yield torch.mm(torch.cat([points, points.new_ones(len(x), 1)], 1), lifted, out=block)


class Correlation:
    """Minus the squared correlation of f, up to a factor of each query."""

    def __init__(self, x: Tensor, kernel: Kernel) -> None:
        self._kernel = kernel
        self._x = x.to(torch.float32)
        self._variance = diagonal(kernel, self._x)  # [N]

    def blocks(self, queries: Iterable[tuple[Tensor, int]]) -> Iterator[Tensor]:
        """From each x [n, D] to as many of the first rows as are asked for."""
        for x, num_rows in queries:
            K = cross_matrix(self._kernel, x.to(torch.float32), self._x[:num_rows])
            floor = torch.finfo(K.dtype).tiny  # where f is constant, it explains nothing
            yield K.square().div_(self._variance[:num_rows].clamp_min(floor)).neg_()


TREE_DIMENSIONS = 5  # dimensions up to which the tree is at least as fast

BLOCK_QUERIES = 128
BLOCK_NUMBERS = 2_000_000  # queries and distances of a block, which should stay in the processor's cache
SURPLUS = 3  # how many times as many rows as needed are taken from a tree in which half of the rows come too late


def random_order(num_rows: int, generator: torch.Generator) -> Tensor:
    """A random order of rows [N]: rows of the data, each before those that are conditioned on it."""
    return torch.randperm(num_rows, generator=generator, device=generator.device)


class RowIndex:
    """Finds the nearest among rows x `[N, D]`, in the metric of a kernel at its present parameters.

    With clusters `[N]`, :meth:`others` and :meth:`earlier` pass over rows of a row's own one, and may end in -1.
    """

    @torch.no_grad()
    def __init__(self, kernel: Kernel, x: Tensor, cluster: Tensor | None = None) -> None:
        if x.ndim != 2 or len(x) == 0:
            raise InvalidInputError(f"x must be [N, D] with at least one row; got {tuple(x.shape)}.")
        self.x, self._cluster = x.detach(), cluster
        form = stationary_form(kernel, x.shape[1])
        metric = Correlation(self.x, kernel) if form is None else Distance(self.x, form.inverse_lengthscale)
        self._blocks = metric.blocks
        self._tree: _Tree | None = None
        is_flat = isinstance(metric, Distance) and x.shape[1] <= TREE_DIMENSIONS
        if isinstance(metric, Distance) and is_flat and cluster is None and x.device.type == "cpu":
            self._tree = _Tree(metric)

    @torch.no_grad()
    def nearest(self, x: Tensor, k: int) -> Tensor:
        """The nearest of all rows to each of x `[n, D]`, nearest first `[n, min(k, N)]`."""
        check_inputs(x, self.x)
        N, k = len(self.x), min(k, len(self.x))
        if k == 0:
            return torch.empty(len(x), 0, dtype=torch.int64, device=x.device)
        if self._tree is not None:
            return self._tree.nearest(x, k)
        queries = ((part, N) for part in x.split(self._num_queries()))
        with threads_for(len(x) * self.x.numel()):
            return torch.cat([_smallest(distances, k) for distances in self._blocks(queries)])

    def others(self, rows: Tensor, k: int) -> Tensor:
        """The nearest other rows to rows `[n]` of the data, nearest first `[n, min(k, N - 1)]`."""
        k = min(k, len(self.x) - 1)
        if self._cluster is not None:
            return torch.cat([self._of_other_clusters(part, k) for part in rows.split(self._num_queries())])
        found = self.nearest(self.x[rows], k + 1)
        # A copy of a row may come before it. If all k + 1 are others, the last one is dropped.
        order = (found == rows[:, None]).to(torch.int8).argsort(dim=1, stable=True)[:, :k]
        return found.gather(1, order)

    @torch.no_grad()
    def earlier(self, k: int, start: int = 0, stop: int | None = None) -> Tensor:
        """Up to k nearest among the rows before each row from `start` to `stop`, nearest first, padded with -1."""
        stop = len(self.x) if stop is None else stop
        if k < 0 or not 0 <= start <= stop <= len(self.x):
            raise InvalidInputError(
                f"k must be at least 0, and start and stop within the {len(self.x)} rows; got {k}, {start}, {stop}."
            )
        if k == 0:
            return torch.empty(stop - start, 0, dtype=torch.int64, device=self.x.device)
        parts = self._earlier_in_blocks(k, start, stop) if self._tree is None else self._tree.earlier(k, start, stop)
        with threads_for((stop - start) * self.x.numel()):
            found = [torch.nn.functional.pad(part, (0, k - part.shape[1]), value=-1) for part in parts]
        return torch.cat([*found, torch.empty(0, k, dtype=torch.int64, device=self.x.device)])

    def _earlier_in_blocks(self, k: int, start: int, stop: int) -> Iterator[Tensor]:
        ranges = list(_ranges(start, stop, lambda top: self._num_queries()))
        queries = ((self.x[top:bottom], bottom) for top, bottom in ranges)
        for (top, bottom), distances in zip(ranges, self._blocks(queries), strict=True):
            rows = torch.arange(top, bottom, device=self.x.device)[:, None]
            late = torch.arange(top, distances.shape[1], device=self.x.device) >= rows
            distances[:, top:].masked_fill_(late, torch.inf)
            if self._cluster is not None:
                same = self._cluster[top:bottom, None] == self._cluster[:bottom]
                distances[:, :bottom].masked_fill_(same, torch.inf)
            found = _smallest(distances, min(k, bottom))
            yield found.masked_fill(distances.gather(1, found).isinf(), -1)

    def _of_other_clusters(self, rows: Tensor, k: int) -> Tensor:
        assert self._cluster is not None
        (distances,) = self._blocks([(self.x[rows], len(self.x))])
        distances[:, : len(self.x)].masked_fill_(self._cluster[rows][:, None] == self._cluster, torch.inf)
        found = _smallest(distances, k)
        return found.masked_fill(distances.gather(1, found).isinf(), -1)

    def _num_queries(self) -> int:
        return max(1, min(BLOCK_QUERIES, BLOCK_NUMBERS // len(self.x)))


class _Tree:
    """Answers from a tree of all rows, or of the first ones."""

    def __init__(self, metric: Distance) -> None:
        self._metric = metric
        self._of_all = self._of_first(len(metric.z))

    def _of_first(self, num_rows: int) -> "KDTree":
        from scipy.spatial import KDTree  # only for few dimensions, so most fits and predictions do not load it

        return KDTree(self._metric.z[:num_rows].numpy())

    def nearest(self, x: Tensor, k: int) -> Tensor:
        found = self._of_all.query(self._metric.place(x).numpy(), k=range(1, k + 1), workers=torch.get_num_threads())
        return torch.from_numpy(found[1])

    def earlier(self, k: int, start: int, stop: int) -> Iterator[Tensor]:
        """In ranges of doubling size, so that at least half of the rows in a tree come before each row of its range."""
        N = len(self._metric.z)
        for top, bottom in _ranges(start, stop, lambda top: max(top, 1)):
            tree = self._of_all if bottom == N else self._of_first(bottom)
            found = np.full((bottom - top, k), -1)
            waiting, count = np.arange(top, bottom), SURPLUS * k + 1
            while len(waiting):
                points, count = self._metric.z[waiting].numpy(), min(count, bottom)
                near = np.asarray(tree.query(points, k=range(1, count + 1), workers=torch.get_num_threads())[1])
                early = near < waiting[:, None]
                # Of all rows within some distance, the earlier ones are the nearest earlier ones.
                done = (early.sum(1) >= np.minimum(k, waiting)) | (count == bottom)
                first = np.argsort(~early[done], axis=1, kind="stable")[:, :k]
                chosen = np.take_along_axis(np.where(early, near, -1)[done], first, 1)
                found[waiting[done] - top, : first.shape[1]] = chosen
                waiting, count = waiting[~done], 2 * count
            yield torch.from_numpy(found)


def _ranges(start: int, end: int, size: Callable[[int], int]) -> Iterator[tuple[int, int]]:
    """Consecutive ranges from start to end; `size` says how long one may be that begins at some row."""
    while start < end:
        stop = min(end, start + size(start))
        yield start, stop
        start = stop


def _smallest(values: Tensor, k: int) -> Tensor:
    """Columns of the k smallest values of each line [n, k], which lie in the k groups with the smallest minima."""
    n, columns = values.shape
    size = columns // GROUPS
    if columns % GROUPS or size <= 4 * k:
        return values.topk(k, largest=False).indices
    groups = values.view(n, GROUPS, size).amin(1).topk(k, largest=False, sorted=False).indices  # [n, k]
    members = torch.arange(GROUPS, device=values.device)[None, :, None] * size
    candidates = (groups[:, None, :] + members).reshape(n, -1)  # [n, GROUPS k]
    best = values.gather(1, candidates).topk(k, largest=False).indices
    return candidates.gather(1, best)
