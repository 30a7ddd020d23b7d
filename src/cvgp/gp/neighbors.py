"""The nearest rows in a kernel's own metric: among all rows, all others, or the earlier ones (§9.4).

Near means correlated, which for a stationary kernel is the distance in lengthscales. A tree is searched if it leaves
out most rows. Otherwise all distances are computed, in blocks of float32, since any set of rows is a valid set of
neighbors; of very large tables, only those to rows in the nearest cells, which contain 99 % of the neighbors.
"""

import math
from collections.abc import Callable, Iterable, Iterator

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import pad

from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import check_inputs, cross_matrix, diagonal, stationary_form
from cvgp.runtime import threads_for

GROUPS = 16  # columns of a block of distances are a multiple of this, where they can be


class Distance:
    """Squared distances in lengthscales, up to a constant of each query."""

    def __init__(self, x: Tensor, inverse_lengthscale: Tensor) -> None:
        self._scale = inverse_lengthscale.to(torch.float64)
        self._center = (x.to(torch.float64) * self._scale).mean(0)
        self.z = self.place(x)  # [N, D], float64
        self._lifted = lift(self.z, GROUPS)  # [D + 1, N and filling]

    def place(self, x: Tensor) -> Tensor:
        """Inputs in lengthscales from the center of the rows."""
        return x.to(torch.float64) * self._scale - self._center

    def blocks(self, queries: Iterable[tuple[Tensor, int]]) -> Iterator[Tensor]:
        """From each x [n, D] to the first rows, up to whole groups; a block reuses the memory of the one before it."""
        memory = self._lifted.new_empty(0)
        for x, num_rows in queries:
            lifted = self._lifted[:, : num_rows + -num_rows % GROUPS]
            size = len(x) * lifted.shape[1]
            if len(memory) < size:
                memory = self._lifted.new_empty(size)
            block = memory[:size].view(len(x), -1)
            yield torch.mm(with_one(self.place(x)), lifted, out=block)


def lift(z: Tensor, multiple: int) -> Tensor:
    """Columns (-2 z, |z|^2) `[D + 1, N]` in float32, filled up to a multiple by columns that are infinitely far."""
    lifted = torch.cat([-2.0 * z, z.square().sum(1, keepdim=True)], 1).to(torch.float32)
    filling = lifted.new_zeros(-len(z) % multiple, lifted.shape[1])
    filling[:, -1] = torch.inf
    return torch.cat([lifted, filling]).mT.contiguous()


def with_one(q: Tensor) -> Tensor:
    """(q, 1) `[n, D + 1]`, whose products with lifted rows are |z|^2 - 2 q^T z."""
    return pad(q.to(torch.float32), (0, 1), value=1.0)


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


BLOCK_QUERIES = 128
BLOCK_NUMBERS = 2_000_000  # queries and distances of a block, which should stay in the processor's cache

FEWEST_ROWS = 2048  # with fewer rows to search, or to search for, all distances to earlier rows are computed
SURPLUS = 1.5  # how many times as many rows are taken as contain enough earlier ones on average
SAMPLE_ROWS, SAMPLE_OTHERS = 128, 2000  # rows whose neighbors decide how to search, and rows to compare them with
BOX_NEIGHBORS = 20
BOX_SHARE = 0.01  # of all rows in the box around a row and its neighbors; up to it, a tree is faster than all distances
LEAF_ROWS = 32
MOST_NUMBERS = 3_000_000  # rows times columns up to which all distances are computed
CELL_ROWS = 256  # fewest in a cell
CELL_GROUPS = 8  # rows of which only the nearest is compared at first
CELL_RECALL = 0.995  # share of the sample's neighbors in the cells that are searched
PART_QUERIES, PART_NUMBERS = 4096, 2_000_000  # queries, and numbers of their candidates, that are held at a time


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
        self._metric = Correlation(self.x, kernel) if form is None else Distance(self.x, form.inverse_lengthscale)
        self._division: tuple[int, _Tree | _Cells | None] = 0, None  # of all rows, for up to this many neighbors

    @torch.no_grad()
    def nearest(self, x: Tensor, k: int) -> Tensor:
        """The nearest of all rows to each of x `[n, D]`, nearest first `[n, min(k, N)]`."""
        check_inputs(x, self.x)
        N, k = len(self.x), min(k, len(self.x))
        if k == 0:
            return torch.empty(len(x), 0, dtype=torch.int64, device=x.device)
        if k > self._division[0]:
            self._division = k, self._divided(N, k)
        division = self._division[1]
        if isinstance(division, _Tree):
            return division.nearest(x, k)
        with threads_for(len(x) * self.x.numel()):
            return self._nearest_of_first(N, x, k) if division is None else division.nearest(x, k)

    def others(self, rows: Tensor, k: int) -> Tensor:
        """The nearest other rows to rows `[n]` of the data, nearest first `[n, min(k, N - 1)]`."""
        k = min(k, len(self.x) - 1)
        if self._cluster is not None:
            return self._of_other_clusters(rows, k)
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
        found = torch.full((stop - start, k), -1, device=self.x.device)
        with threads_for((stop - start) * self.x.numel()):
            # In ranges of doubling size, so that at least half of the rows that are searched come before each row.
            for top, bottom in _ranges(start, stop, lambda top: max(top, FEWEST_ROWS)) if k else ():
                self._fill_earlier(found[top - start : bottom - start], top, bottom)
        return found

    def _fill_earlier(self, found: Tensor, top: int, bottom: int) -> None:
        """Write the nearest earlier rows of the rows from `top` to `bottom` into `found` [bottom - top, k]."""
        rows, k = torch.arange(top, bottom, device=self.x.device), found.shape[1]
        count = math.ceil(SURPLUS * k * bottom / max(top, 1))
        may_divide = self._cluster is None and min(top, bottom - top) >= FEWEST_ROWS
        division = self._divided(bottom, count) if may_divide else None
        if division is not None:
            waiting = []
            for part in rows.split(PART_QUERIES):
                near = division.nearest(self.x[part], count)
                early = near < part[:, None]
                # Of all rows within some distance, the earlier ones are the nearest earlier ones.
                first = early.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :k]
                found[part - top] = near.gather(1, first)
                waiting.append(part[early.sum(1) < k])
            rows = torch.cat(waiting)
        queries = [part for part in rows.split(self._num_queries(bottom)) if len(part)]
        blocks = self._metric.blocks((self.x[part], int(part[-1]) + 1) for part in queries)
        for part, distances in zip(queries, blocks, strict=True):
            first, last = int(part[0]), int(part[-1])
            late = torch.arange(first, distances.shape[1], device=self.x.device) >= part[:, None]
            distances[:, first:].masked_fill_(late, torch.inf)
            if self._cluster is not None:
                self._pass_over(distances[:, : last + 1], part)
            near = _smallest(distances, min(k, last + 1))
            found[part - top, : near.shape[1]] = near.masked_fill(distances.gather(1, near).isinf(), -1)

    def _pass_over(self, distances: Tensor, rows: Tensor) -> None:
        """Set the distances [n, m] of rows to the first ones of their own clusters to infinity, in place."""
        assert self._cluster is not None, "there are clusters"
        distances.masked_fill_(self._cluster[rows][:, None] == self._cluster[: distances.shape[1]], torch.inf)

    @torch.no_grad()
    def _of_other_clusters(self, rows: Tensor, k: int) -> Tensor:
        N, found = len(self.x), []
        queries = rows.split(self._num_queries(N))
        for part, distances in zip(queries, self._metric.blocks((self.x[q], N) for q in queries), strict=True):
            self._pass_over(distances[:, :N], part)
            near = _smallest(distances, k)
            found.append(near.masked_fill(distances.gather(1, near).isinf(), -1))
        return torch.cat(found)

    def _nearest_of_first(self, num_rows: int, x: Tensor, k: int) -> Tensor:
        """The nearest of the first rows `[n, k]`, by all distances."""
        found = []
        for distances in self._metric.blocks((part, num_rows) for part in x.split(self._num_queries(num_rows))):
            distances[:, num_rows:] = torch.inf  # of the last group
            found.append(_smallest(distances, k))
        return torch.cat(found)

    def _num_queries(self, num_rows: int) -> int:
        return max(1, min(BLOCK_QUERIES, BLOCK_NUMBERS // num_rows))

    def _divided(self, num_rows: int, k: int) -> "_Tree | _Cells | None":
        """The first rows, divided for a search of k neighbors; None if all distances are to be computed."""
        if not isinstance(self._metric, Distance) or num_rows * BOX_SHARE < max(k, BOX_NEIGHBORS):
            return None
        z, evenly = self._metric.z, torch.arange(num_rows, device=self.x.device)
        sample, others = (evenly[:: num_rows // count] for count in (SAMPLE_ROWS, SAMPLE_OTHERS))
        near = self._nearest_of_first(num_rows, self.x[sample], max(k, BOX_NEIGHBORS) + 1)[:, 1:]  # without the row
        radius = (z[near[:, BOX_NEIGHBORS - 1]] - z[sample]).norm(dim=1, keepdim=True)  # [n, 1]
        in_box = torch.cdist(z[sample], z[others], p=torch.inf) <= radius
        if in_box.to(torch.float64).mean() <= BOX_SHARE and z.device.type == "cpu":
            return _Tree(self._metric, num_rows)
        return _Cells(self._metric, num_rows, sample, near[:, :k]) if num_rows * z.shape[1] > MOST_NUMBERS else None


class _Tree:
    """The first rows as a k-d tree."""

    def __init__(self, metric: Distance, num_rows: int) -> None:
        from scipy.spatial import KDTree  # most small models need none, and do not load it

        self._metric = metric
        self._tree = KDTree(metric.z[:num_rows].numpy(), leafsize=LEAF_ROWS)

    def nearest(self, x: Tensor, k: int) -> Tensor:
        """The nearest rows to each of x `[n, D]`, nearest first `[n, k]`."""
        workers = min(torch.get_num_threads(), 1 + len(x) // BLOCK_QUERIES)
        return torch.from_numpy(self._tree.query(self._metric.place(x).numpy(), range(1, k + 1), workers=workers)[1])


class _Cells:
    """The first rows in cells of equal size, halves of halves across principal axes; a query searches the nearest."""

    def __init__(self, metric: Distance, num_rows: int, sample: Tensor, near: Tensor) -> None:
        """Search as many cells as contain almost all neighbors `near` [n, k] of some rows `sample` [n]."""
        self._metric, z = metric, metric.z[:num_rows]
        depth = int(math.log2(num_rows / CELL_ROWS))
        cells = _halves(z.to(torch.float32), torch.arange(num_rows, device=z.device), depth)
        size = len(cells[0]) + -len(cells[0]) % CELL_GROUPS  # no cell is larger than the first
        self._rows = torch.stack([pad(rows, (0, size - len(rows)), value=-1) for rows in cells])  # [C, size]
        self._lifted = [lift(z[rows], size) for rows in cells]  # C times [D + 1, size]
        self._norms = z.square().sum(1)  # [N]
        self._centers = lift(torch.stack([z[rows].mean(0) for rows in cells]), 1)  # [D + 1, C]
        cell_of = torch.empty(num_rows, dtype=torch.int64, device=z.device)
        for cell, rows in enumerate(cells):
            cell_of[rows] = cell
        rank = (with_one(z[sample]) @ self._centers).argsort(1).argsort(1).gather(1, cell_of[near])  # [n, k]
        self._num_searched = 1 + int(rank.to(torch.float64).quantile(CELL_RECALL))

    def nearest(self, x: Tensor, k: int) -> Tensor:
        """The nearest rows to each of x `[n, D]` that are in the nearest cells, nearest first `[n, k]`."""
        return torch.cat([self._nearest(self._metric.place(part), k) for part in x.split(PART_QUERIES)])

    def _nearest(self, q: Tensor, k: int) -> Tensor:
        (C, size), n = self._rows.shape, len(q)
        num_groups, points = size // CELL_GROUPS, with_one(q)
        P = max(self._num_searched, -(-k // num_groups))
        P = min(C, P + -P % GROUPS)
        cells = (points @ self._centers).topk(P, largest=False, sorted=False).indices  # [n, P]
        pairs, counts = cells.reshape(-1).argsort(), torch.bincount(cells.reshape(-1), minlength=C).tolist()
        minima = points.new_empty(n * P, num_groups)
        for lifted, own in zip(self._lifted, pairs.split(counts), strict=True):
            if len(own):  # those who search this cell
                distances = points.index_select(0, own // P) @ lifted  # [len(own), size]
                minima.index_copy_(0, own, distances.view(-1, CELL_GROUPS, num_groups).amin(1))
        groups = _smallest(minima.view(n, -1), k)  # [n, k], which contain the nearest rows
        members = groups[..., None] % num_groups + num_groups * torch.arange(CELL_GROUPS, device=q.device)
        rows = self._rows[cells.gather(1, groups // num_groups)[..., None], members].reshape(n, -1)
        at_once = max(1, PART_NUMBERS // (rows.shape[1] * q.shape[1]))
        found = [self._sorted(*parts)[:, :k] for parts in zip(q.split(at_once), rows.split(at_once), strict=True)]
        return torch.cat(found)

    def _sorted(self, q: Tensor, rows: Tensor) -> Tensor:
        """Rows `[n, m]` or -1, those nearest to each query `[n, D]` first."""
        near = rows.clamp_min(0)
        z = self._metric.z.index_select(0, near.reshape(-1)).view(*near.shape, -1)
        distances = torch.baddbmm(self._norms[near][..., None], z, q[..., None], alpha=-2.0)[..., 0]
        return rows.gather(1, distances.masked_fill_(rows < 0, torch.inf).argsort(1))


AXIS_ROWS = 2048  # by which the principal axis of a part is found


def _halves(z: Tensor, rows: Tensor, depth: int) -> list[Tensor]:
    """Rows of z [N, D] in 2^depth parts, split at the median of each part's first principal component."""
    if depth == 0:
        return [rows]
    part = z[rows]
    some = part[:: -(-len(part) // AXIS_ROWS)].to(torch.float64)
    some -= some.mean(0)
    axis = torch.linalg.eigh(some.mT @ some).eigenvectors[:, -1].to(z.dtype)
    halves = rows[(part @ axis).argsort()].tensor_split(2)
    return [smaller for half in halves for smaller in _halves(z, half, depth - 1)]


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
    groups = _smallest(values.view(n, GROUPS, size).amin(1), k)  # [n, k]
    members = torch.arange(GROUPS, device=values.device)[None, :, None] * size
    candidates = (groups[:, None, :] + members).reshape(n, -1)  # [n, GROUPS k]
    best = values.gather(1, candidates).topk(k, largest=False).indices
    return candidates.gather(1, best)
