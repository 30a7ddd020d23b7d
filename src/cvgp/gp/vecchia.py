"""Rows given their neighbors (Vecchia): features, outputs and noise that are independent given u (§9.1).

Given the trend psi^T u of the coreset and its neighbors' outputs, row i is a row with features phi_i and more noise. So
sums over rows are :class:`~cvgp.gp.bounds.statistics.Statistics`. A precision of zero removes a neighbor exactly.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor
from torch.nn.functional import pad

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.statistics import Statistics, gather_whitened, weigh
from cvgp.gp.kernels import check_finite, check_inputs, cross_matrix, evaluate, square_matrix, stationary_form
from cvgp.gp.linalg import (
    cholesky_above_identity,
    first_derivative_only,
    inverse_lower,
    plus_identity,
    safe_cholesky,
    symmetrize,
    triangular_product,
    triangular_squares,
)
from cvgp.gp.neighbors import RowIndex
from cvgp.gp.stationary import Placed, covariance_at, local_covariance, local_matrices, place

FEATURE_ROWS = 1024  # whose features are computed at a time, in the processor's cache


class WhitenedPoints:
    """A kernel with the whitened features of M pseudo-inputs (§5.1), or of none: neighbors then explain all of f."""

    def __init__(self, kernel: Kernel, X_c: Tensor, L_K_inv: Tensor) -> None:
        self.kernel = kernel
        self.X_c = X_c
        self.L_K_inv = L_K_inv

    @property
    def size(self) -> int:
        """The number of pseudo-inputs M."""
        return len(self.X_c)

    def features(self, x: Tensor) -> Tensor:
        """Psi [B, M] at x [B, D] in float64, without gradients."""
        if self.size == 0:
            return x.new_zeros(len(x), 0)
        if len(x) > FEATURE_ROWS:
            Psi = x.new_empty(len(x), self.size)
            for start in range(0, len(x), FEATURE_ROWS):
                Psi[start : start + FEATURE_ROWS] = self.features(x[start : start + FEATURE_ROWS])
            return Psi
        placed = self._placed
        K_cx = cross_matrix(self.kernel, self.X_c, x) if placed is None else covariance_at(placed, x).K  # [M, B]
        return triangular_product(self.L_K_inv, K_cx).mT.contiguous()

    def among(self, x: Tensor) -> Tensor:
        """Kernel matrices [n, m, m] of the sets of points x [n, m, D], differentiable where gradients are on."""
        placed = None if torch.is_grad_enabled() else self._placed
        if placed is None:
            return _among(self.kernel, x)
        return local_covariance(placed.family, placed.scale, placed.log_s, placed.shape, x).K

    def between(self, x: Tensor, others: Tensor) -> Tensor:
        """The kernel between each of x `[n, D]` and points of its own `[n, k, D]`: `[n, k]`, without gradients."""
        placed = self._placed
        if placed is None:
            return evaluate(self.kernel, x[:, None], others)[:, 0]
        u2 = ((others - x[:, None]) * placed.scale).square_().sum(-1)  # [n, k]
        return placed.family.evaluate(u2, placed.log_s, placed.shape)[0]

    # Only for evaluations without gradients: it keeps no graph.
    @cached_property
    def _placed(self) -> Placed | None:
        form = stationary_form(self.kernel, self.X_c.shape[-1])
        return None if form is None else place(form, self.X_c, torch.float64)


def _among(kernel: Kernel, x: Tensor) -> Tensor:
    form = stationary_form(kernel, x.shape[-1])
    if form is not None:
        return local_matrices(form, x)
    if type(kernel) is AdditiveKernel:  # whose terms may have fused forms
        return reduce(torch.add, (_among(term, x) for term in kernel.kernels))
    return evaluate(kernel, x, x)


def no_points(kernel: Kernel, x: Tensor) -> WhitenedPoints:
    """No pseudo-inputs, for rows like x `[N, D]`: the neighbors explain all of f."""
    return WhitenedPoints(kernel, x[:0], torch.zeros(0, 0, dtype=torch.float64, device=x.device))


def condition_on_neighbors(K: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """Weights eta `[n, k]` and variances v `[n]` of f; K has the neighbors of each row and, last, the row (§9.1)."""
    n, k = precision.shape
    if K.shape != (n, k + 1, k + 1):
        raise InvalidInputError(
            f"With precisions of {n} rows and {k} neighbors, K must be [{n}, {k + 1}, {k + 1}]; got {tuple(K.shape)}."
        )
    if not torch.is_grad_enabled():
        return _conditional(K, precision)[:2]
    eta, v = _Conditional.apply(K, precision)  # type: ignore[no-untyped-call]
    return eta, v


def _conditional(K: Tensor, precision: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Eta, v, and for their derivatives L, R and a of eta = R a, where L L^T = I + R K_NN R."""
    R = pad(precision.sqrt(), (0, 1), value=1.0)[..., None]  # [n, k + 1, 1], the diagonal of R as a column
    B = R * K * R.mT
    B_NN, R = B[:, :-1, :-1], R[:, :-1]
    B_NN.diagonal(dim1=-2, dim2=-1).add_(1.0)
    L = cholesky_above_identity(B_NN, "I + R K_NN R of the neighbors")
    half = torch.linalg.solve_triangular(L, B[:, :-1, -1:], upper=False)  # [n, k, 1]
    a = torch.linalg.solve_triangular(L.mT, half, upper=True)  # [n, k, 1]
    return (R * a)[..., 0], (K[:, -1, -1] - half.square().sum((-2, -1))).clamp_min(0.0), L, R, a


class _Conditional(torch.autograd.Function):
    """From S = K_NN + 1/rho follow d eta = S^-1 (dK_Ni - dS eta) and dv = dK_ii - 2 eta^T dK_Ni + eta^T dS eta."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        eta, v, *saved = _conditional(K, precision)
        ctx.save_for_backward(*saved)
        return eta, v

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, d_eta: Tensor, d_v: Tensor) -> tuple[Tensor, Tensor]:
        L, R, a = ctx.saved_tensors
        n, k = d_eta.shape
        t = torch.cholesky_solve(R * d_eta[..., None], L)  # [n, k, 1], S^-1 d_eta = R t
        eta, Rt, d_v = R * a, R * t, d_v[:, None, None]
        d_K = torch.empty(n, k + 1, k + 1, dtype=a.dtype, device=a.device)
        outer = eta @ (d_v * eta - Rt).mT  # [n, k, k]
        d_K[:, :-1, :-1] = 0.5 * (outer + outer.mT)
        d_K[:, :-1, -1:] = d_K[:, -1:, :-1].mT.copy_(0.5 * Rt - d_v * eta)
        d_K[:, -1:, -1:] = d_v
        # d(1/rho) = -d rho / rho^2, of which R takes one rho; non-neighbors have zero derivative.
        rho = R.square()
        d_precision = torch.where(rho > 0, (t * a - d_v * a.square()) / torch.where(rho > 0, rho, 1.0), 0.0)
        return d_K, d_precision[..., 0]


TABLE_BYTES = 1_000_000_000  # largest table of the features of rows and of their neighbors
BATCH_BYTES = 4_000_000  # features gathered at a time, which should stay in the cache: 32 million took a tenth longer


class OrderedRows(NamedTuple):
    """Rows in the order in which each is conditioned on earlier ones; all float64."""

    x: Tensor  # [N, D]
    y: Tensor  # [N, Q], the prior mean subtracted
    precision: Tensor  # [N], sample weight over noise variance
    log_normalizer: Tensor  # [N], -1/2 sample weight times log(2 pi noise)

    def take(self, rows: Tensor) -> "OrderedRows":
        """Some of the rows."""
        return OrderedRows(*(values[rows] for values in self))


def order_rows(x: Tensor, y: Tensor, noise: Tensor, *, sample_weight: Tensor | None = None) -> OrderedRows:
    """Rows as the conditionals need them: one that counts c times is one row with the noise s / c, and a constant."""
    if x.ndim != 2 or y.ndim not in (1, 2) or len(y) != len(x):
        raise InvalidInputError(f"x must be [N, D] and y [N] or [N, Q]; got {tuple(x.shape)} and {tuple(y.shape)}.")
    x, y, noise = (t.to(torch.float64) for t in (x, y.reshape(len(y), -1), noise))
    precision = weigh(noise, x[:, 0], sample_weight=sample_weight).precision  # which checks both
    count = torch.ones_like(precision) if sample_weight is None else sample_weight.to(torch.float64)
    return OrderedRows(x, y, precision, -0.5 * count * (2.0 * torch.pi * noise).log())


class LocalRows(NamedTuple):
    """Some rows with their neighbors, as indices into the list of all rows involved."""

    touched: Tensor  # [T], rows of the data
    rows: Tensor  # [n], indices into `touched`
    neighbors: Tensor  # [n, k], indices into `touched`, or -1


def local_rows(rows: Tensor, neighbors: Tensor) -> LocalRows:
    """The distinct rows among rows `[n]` and their neighbors `[n, k]` (-1: none), and where each is among them."""
    absent = neighbors < 0
    together = torch.cat([neighbors, rows[:, None]], 1)  # [n, k + 1]
    # A missing neighbor is replaced by the row itself, so that no further row is involved.
    touched, places = torch.unique(torch.where(together < 0, rows[:, None], together), return_inverse=True)
    return LocalRows(touched, places[:, -1], places[:, :-1].masked_fill(absent, -1))


class VecchiaRows(NamedTuple):
    """f at some rows given u and the outputs of their neighbors: N(phi^T u + eta^T y_N, v)."""

    eta: Tensor  # [n, k]
    eta_y: Tensor  # [n, Q], eta^T y_N
    phi: Tensor  # [n, M]
    v: Tensor  # [n]


def vecchia_rows(points: WhitenedPoints, data: OrderedRows, Psi: Tensor, local: LocalRows) -> VecchiaRows:
    """Condition some rows on their neighbors, differentiably (§9.1); Psi `[T, M]` holds the features of `data`."""
    together = torch.cat([local.neighbors.clamp_min(0), local.rows[:, None]], 1)  # [n, k + 1]
    near = together[:, :-1]
    precision = torch.where(local.neighbors >= 0, data.precision[near], 0.0)
    return _given(points, _take(data.x, together), _take(Psi, together), _take(data.y, near), precision)


def _given(points: WhitenedPoints, x: Tensor, Psi: Tensor, y: Tensor, precision: Tensor) -> VecchiaRows:
    """Rows given their neighbors: x `[n, k + 1, D]` and Psi `[n, k + 1, M]` have the row itself last."""
    K = torch.baddbmm(points.among(x), Psi, Psi.mT, alpha=-1.0)  # [n, k + 1, k + 1]
    eta, v = condition_on_neighbors(K, precision)
    eta_Psi, eta_y = (eta[:, None, :] @ values for values in (Psi[:, :-1], y))  # [n, 1, M] and [n, 1, Q]
    return VecchiaRows(eta, eta_y[:, 0], Psi[:, -1] - eta_Psi[:, 0], v)


def vecchia_blocks(
    points: WhitenedPoints, data: OrderedRows, rows: Tensor, neighbors: Tensor
) -> Iterator[tuple[Tensor, VecchiaRows]]:
    """Condition rows on their neighbors in blocks that share features; yields each block's rows and conditionals."""
    width = _row_bytes(points, data)
    all_fit = len(data.x) * width <= TABLE_BYTES
    block = max(1, len(rows) if all_fit else TABLE_BYTES // ((neighbors.shape[1] + 1) * width))
    for block_rows, block_neighbors in zip(rows.split(block), neighbors.split(block), strict=True):
        local = local_rows(block_rows, block_neighbors)
        touched = data.take(local.touched)
        Psi = points.features(touched.x)  # [T, M]
        members = neighbors.shape[1] + 1
        size = max(1, BATCH_BYTES // (8 * members * max(members, points.size, data.x.shape[1])))
        for some, near in zip(local.rows.split(size), local.neighbors.split(size), strict=True):
            yield local.touched[some], vecchia_rows(points, touched, Psi, LocalRows(local.touched, some, near))


@torch.no_grad()
def vecchia_statistics(points: WhitenedPoints, data: OrderedRows, neighbors: Tensor, start: int = 0) -> Statistics:
    """Statistics of the rows from `start` on, each given its neighbors `[N - start, k]`: earlier rows, or -1 (§9.3)."""
    check_neighbors(neighbors, len(data.x), start)
    rows = torch.arange(start, len(data.x), device=data.x.device)
    if len(rows) * _row_bytes(points, data) > TABLE_BYTES:
        # Rows of one region share their neighbors, so that each block touches few other rows.
        rows = rows[_region(points, data.x[start:]).argsort(stable=True)]
    parts = vecchia_blocks(points, data, rows, neighbors[rows - start])
    sums = (block_statistics(data.take(of), part) for of, part in parts)
    return reduce(Statistics.merge, sums, Statistics.zeros(points.size, data.y.shape[1], data.x.device))


def block_statistics(data: OrderedRows, part: VecchiaRows) -> Statistics:
    """Statistics of a block of Vecchia rows."""
    rho_v = data.precision * part.v
    precision = data.precision / (1.0 + rho_v)  # one over v + 1 / rho
    log_normalizer = (data.log_normalizer - 0.5 * rho_v.log1p()).sum()
    explained = part.phi.square().sum(1)
    return gather_whitened(part.phi.mT, explained, data.y - part.eta_y, precision, log_normalizer)


def check_neighbors(neighbors: Tensor, num_rows: int, start: int = 0) -> None:
    """Raise unless there is one line of neighbors per row from `start` on, each of them before it."""
    rows = torch.arange(start, num_rows, device=neighbors.device)
    if neighbors.ndim != 2 or len(neighbors) != len(rows) or bool((neighbors >= rows[:, None]).any()):
        raise InvalidInputError(
            f"neighbors must be [{len(rows)}, k], each of them a row before its own, or -1; "
            f"got {tuple(neighbors.shape)}. cvgp.gp.neighbors.RowIndex.earlier finds them."
        )


def _row_bytes(points: WhitenedPoints, data: OrderedRows) -> int:
    return 8 * max(points.size, data.x.shape[1])


def _take(values: Tensor, places: Tensor) -> Tensor:
    """values[places] [n, m, C] of values [N, C]; torch gathers whole rows faster by this name."""
    return torch.embedding(values, places)


def _region(points: WhitenedPoints, x: Tensor) -> Tensor:
    """The pseudo-input most correlated with each row [n], in parts that fit the memory."""
    if points.size == 0:
        return torch.zeros(len(x), dtype=torch.int64, device=x.device)
    size = max(1, BATCH_BYTES // (8 * points.size))
    return torch.cat([cross_matrix(points.kernel, points.X_c, part).argmax(0) for part in x.split(size)])


class InducingPosterior(NamedTuple):
    """q(u) = N(mean, root root^T); all float64."""

    mean: Tensor  # [M, Q]
    root: Tensor  # [M, M], upper triangular


def inducing_posterior(statistics: Statistics) -> InducingPosterior:
    """The posterior of u under the model, from the statistics of Vecchia rows."""
    root = inverse_lower(safe_cholesky(plus_identity(statistics.Phi), "C = I + Phi")).mT
    return InducingPosterior(root @ (root.mT @ statistics.b), root)


def moments(part: VecchiaRows, u: InducingPosterior) -> tuple[Tensor, Tensor]:
    """Mean phi^T m + eta^T y_N `[n, Q]` and variance v + phi^T S phi `[n]` of f, with u integrated out (§9.3)."""
    return part.eta_y + part.phi @ u.mean, part.v + triangular_squares(u.root.mT, part.phi.mT)


PART_BYTES = 8_000_000  # of a kernel matrix of the rows near new points that is held at a time, in the cache


class NeighborProcess:
    """The posterior of f at new points: the coreset's trend, corrected by the nearest rows (§9.3); zero prior mean."""

    def __init__(self, points: WhitenedPoints, data: OrderedRows, u: InducingPosterior, num_neighbors: int) -> None:
        if num_neighbors < 0:
            raise InvalidInputError(f"num_neighbors must be at least 0; got {num_neighbors}.")
        self.points, self.data, self.u = points, data, u
        self.num_neighbors = num_neighbors
        self.index = RowIndex(points.kernel, data.x)

    @torch.inference_mode()
    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean `[n, Q]` and variance `[n]` of f at x `[n, D]`, each point given its nearest rows and u alone."""
        x = self._checked(x)
        return moments(self._given_nearest(x, self.index.nearest(x, self.num_neighbors)), self.u)

    @torch.inference_mode()
    def mean(self, x: Tensor) -> Tensor:
        """The mean of :meth:`moments` alone `[n, Q]`; points with the same neighbors share a factorization (§9.3)."""
        x = self._checked(x)
        near = self.index.nearest(x, self.num_neighbors)
        sets, of = self._sets(near)
        if 2 * len(sets) > len(x):  # too few of them share
            part = self._given_nearest(x, near)
            return part.eta_y + part.phi @ self.u.mean
        Psi_x, f_mean = self.points.features(x), x.new_empty(len(x), self.data.y.shape[1])
        width = max(sets.shape[1], self.points.size, 1)
        at_once = max(1, BATCH_BYTES // (8 * sets.shape[1] * width + 1))
        parts = of.argsort(stable=True).split(torch.bincount(of // at_once).tolist())
        for members, rows in zip(sets.split(at_once), parts, strict=True):
            x_N, alpha, trend = self._weights(members)
            for some in rows.split(max(1, BATCH_BYTES // (8 * width * x.shape[1]))):
                place = of[some] % at_once
                K_xN = self.points.between(x[some], _take(x_N.flatten(1), place).view(len(some), -1, x.shape[1]))
                f_mean[some] = torch.einsum("nm,nmq->nq", Psi_x[some], trend[place])
                f_mean[some] += torch.einsum("nk,nkq->nq", K_xN, alpha[place])
        return f_mean

    @torch.inference_mode()
    def weights(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The nearest rows `[n, k]` of x `[n, D]`, and the weights of their y `[n, k]` and of u `[n, M]` (§9.3)."""
        near = self.index.nearest(self._checked(x), self.num_neighbors)
        part = self._given_nearest(x, near)
        return near, part.eta, part.phi

    def _sets(self, near: Tensor) -> tuple[Tensor, Tensor]:
        """The distinct sets `[s, k]` of neighbors `[n, k]`, and the set of each line `[n]`."""
        # Each row has a random number of 64 bits, and the sum of these is that of one set alone.
        codes = torch.randint(-(2**62), 2**62, (len(self.data.x),), generator=torch.Generator().manual_seed(0))
        keys, of = torch.unique(codes.to(near)[near].sum(1), return_inverse=True)
        first = torch.full_like(keys, len(near)).scatter_reduce_(0, of, torch.arange(len(near)).to(of), "amin")
        return near[first].sort(1).values, of

    def _weights(self, sets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs `[s, k, D]` of sets of rows `[s, k]`, and the weights of K_xN `[s, k, Q]` and Psi_x `[s, M, Q]`."""
        x_N, Psi_N, R = _take(self.data.x, sets), self._row_features(sets), self.data.precision[sets].sqrt()[..., None]
        B = R * torch.baddbmm(self.points.among(x_N), Psi_N, Psi_N.mT, alpha=-1.0) * R.mT  # [s, k, k]
        B.diagonal(dim1=-2, dim2=-1).add_(1.0)
        L = cholesky_above_identity(B, "I + R K_NN R of the neighbors")
        residual = _take(self.data.y, sets) - Psi_N @ self.u.mean
        alpha = R * torch.cholesky_solve(R * residual, L)  # [s, k, Q]
        return x_N, alpha, self.u.mean - Psi_N.mT @ alpha

    def _given_nearest(self, x: Tensor, near: Tensor) -> VecchiaRows:
        """The points x `[n, D]` given their nearest rows `[n, k]`."""
        Psi_x, members = self.points.features(x), near.shape[1] + 1  # [n, M]
        at_once = max(1, BATCH_BYTES // (8 * members * max(members, self.points.size, x.shape[1])))
        parts = []
        for start in range(0, len(x), at_once):
            here, rows, psi = (values[start : start + at_once] for values in (x, near, Psi_x))
            places = pad(rows, (0, 1))  # [n, k + 1]; the last place is for the point itself
            x_N, Psi_N = _take(self.data.x, places), self._row_features(places)
            x_N[:, -1], Psi_N[:, -1] = here, psi
            parts.append(_given(self.points, x_N, Psi_N, _take(self.data.y, rows), self.data.precision[rows]))
        return parts[0] if len(parts) == 1 else VecchiaRows(*map(torch.cat, zip(*parts, strict=True)))

    def _row_features(self, rows: Tensor) -> Tensor:
        """Features `[n, m, M]` of rows `[n, m]`."""
        if self._table is not None:
            return _take(self._table, rows)
        touched, places = torch.unique(rows, return_inverse=True)
        return _take(self.points.features(self.data.x[touched]), places)

    @cached_property
    def _table(self) -> Tensor | None:
        """Features of all rows `[N, M]`, if they fit in the memory."""
        fits = len(self.data.x) * _row_bytes(self.points, self.data) <= TABLE_BYTES
        return self.points.features(self.data.x) if fits else None

    @torch.inference_mode()
    def covariance(self, x: Tensor) -> Tensor:
        """Joint covariance of f `[n, n]` at x `[n, D]`, whose diagonal is the variance of :meth:`moments` (§9.6)."""
        x = self._checked(x)
        near = self.index.nearest(x, self.num_neighbors)
        touched, places = torch.unique(near, return_inverse=True)
        eta, _, phi, v = self._given_nearest(x, near)
        K = square_matrix(self.points.kernel, x) + self._from_rows(x, eta, touched, places)
        F = phi @ self.u.root  # [n, M]
        f_cov = K - phi @ phi.mT + F @ F.mT
        f_cov.diagonal().copy_(v + F.square().sum(1))
        return f_cov

    def _from_rows(self, x: Tensor, eta: Tensor, touched: Tensor, places: Tensor) -> Tensor:
        """The nearest rows' part of the covariance of f: W (K_NN + 1 / rho) W^T - W K_Nx - K_xN W^T [n, n]."""
        n, T = len(x), len(touched)
        data, points = self.data.take(touched), torch.arange(n, device=x.device)[:, None].expand_as(places)
        noise = torch.where(data.precision > 0, data.precision.reciprocal(), 0.0)  # a row without weight has eta = 0
        entries = torch.stack([points.reshape(-1), places.reshape(-1)])
        W = torch.sparse_coo_tensor(entries, eta.reshape(-1), (n, T), check_invariants=False)
        total = x.new_zeros(n, n)
        size = max(1, PART_BYTES // (8 * max(T, 1)))
        for start in range(0, T, size):
            later = torch.arange(start, T, device=x.device)  # this block of rows, and those after it
            block = later[:size]
            K = cross_matrix(self.points.kernel, torch.cat([data.x[later], x]), data.x[block])
            K[len(block) :] *= 2.0  # each block below the diagonal counts for its mirror image too
            W_block, W_later = W.index_select(1, block).to_dense(), W.index_select(1, later)
            total += (torch.sparse.mm(W_later, K[:-n]) - K[-n:] + noise[block] * W_block) @ W_block.mT
        return symmetrize(total)

    def _checked(self, x: Tensor) -> Tensor:
        check_inputs(x, self.data.x)
        check_finite("x", x)
        if x.ndim != 2 or len(x) == 0:
            raise InvalidInputError(f"x must be [n, D] with at least one row; got {tuple(x.shape)}.")
        return x.to(torch.float64)


BLOCK_ROWS = 256  # fewest rows between two updates of the posterior of u


class RowMoments(NamedTuple):
    """Mean and variance of f at each row, in the order of the rows."""

    f_mean: Tensor  # [N, Q]
    f_var: Tensor  # [N]


@torch.no_grad()
def sequential_moments(
    points: WhitenedPoints,
    data: OrderedRows,
    neighbors: Tensor,
    before: Statistics | None = None,
    clusters: Sequence[int] | None = None,
) -> tuple[RowMoments, Statistics]:
    """Moments of f at the last n rows given *all* rows before each, and the statistics of all rows (§9.5).

    With the sizes of `clusters` that follow each other in these rows, each is given what comes before its cluster.
    """
    start = len(data.x) - len(neighbors)
    check_neighbors(neighbors, len(data.x), start)
    total = Statistics.zeros(points.size, data.y.shape[1], data.x.device) if before is None else before
    found = []
    for rows, part in _in_blocks(points, data, neighbors, start, clusters):
        here = data.take(rows)
        if clusters is None:
            found.append(_within_block(total, part, here))
        else:
            found.append(RowMoments(*moments(part, inducing_posterior(total))))
        total = total.merge(block_statistics(here, part))
    f_mean, f_var = (torch.cat(values) for values in zip(*found, strict=True))
    return RowMoments(f_mean, f_var), total


def _within_block(before: Statistics, part: VecchiaRows, here: OrderedRows) -> RowMoments:
    """Each row of a block given u as it is known before the block, N(C^-1 b, C^-1), and given the rows before it."""
    L_C = safe_cholesky(plus_identity(before.Phi), "C = I + Phi")
    root = (here.precision / (1.0 + here.precision * part.v)).sqrt()  # [n], one over the remaining noise
    F = torch.linalg.solve_triangular(L_C, part.phi.mT, upper=False)  # [M, n]
    F_weighted, target = F * root, (here.y - part.eta_y) * root[:, None]  # [M, n] and [n, Q]
    m = torch.linalg.solve_triangular(L_C, before.b, upper=False)  # [M, Q], whitened mean
    L_H = safe_cholesky(plus_identity(F_weighted.mT @ F_weighted), "H = I + Phi C^-1 Phi^T")
    innovations = torch.linalg.solve_triangular(L_H, target - F_weighted.mT @ m, upper=False)  # [n, Q]
    Z = torch.linalg.solve_triangular(L_H, F_weighted.mT @ F, upper=False).triu(1)  # [n, n], rows j before columns i
    f_mean = part.eta_y + F.mT @ m + Z.mT @ innovations
    f_var = part.v + (F.square().sum(0) - Z.square().sum(0)).clamp_min(0.0)
    return RowMoments(f_mean, f_var)


def _in_blocks(
    points: WhitenedPoints, data: OrderedRows, neighbors: Tensor, start: int, clusters: Sequence[int] | None
) -> Iterator[tuple[Tensor, VecchiaRows]]:
    """The Vecchia rows in order, in blocks of about M rows, so that updates cost no more than rows, or of clusters."""
    size = max(BLOCK_ROWS, points.size)
    if clusters is not None:
        for rows, near in _by_cluster(torch.arange(start, len(data.x)), neighbors, clusters, size):
            parts = list(vecchia_blocks(points, data, rows, near))
            columns = zip(*(part for _, part in parts), strict=True)
            yield torch.cat([of for of, _ in parts]), VecchiaRows(*(torch.cat(column) for column in columns))
        return
    held: list[tuple[Tensor, VecchiaRows]] = []
    for rows, part in vecchia_blocks(points, data, torch.arange(start, len(data.x), device=data.x.device), neighbors):
        held.append((rows, part))
        if sum(len(rows) for rows, _ in held) >= size:
            yield from _evenly(held, size)
            held = []
    if held:
        yield from _evenly(held, size)


def _by_cluster(rows: Tensor, neighbors: Tensor, clusters: Sequence[int], size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and their neighbors in blocks of whole clusters, of at least `size` rows where possible."""
    begin = end = 0
    for number, length in enumerate(clusters):
        end += length
        if end - begin >= size or number == len(clusters) - 1:
            yield rows[begin:end], neighbors[begin:end]
            begin = end


def _evenly(held: list[tuple[Tensor, VecchiaRows]], size: int) -> Iterator[tuple[Tensor, VecchiaRows]]:
    """Join parts, and split them into blocks of at least `size` rows where possible."""
    rows = torch.cat([rows for rows, _ in held])
    columns = [torch.cat(column) for column in zip(*(part for _, part in held), strict=True)]
    count = max(1, len(rows) // size)
    pieces = zip(rows.tensor_split(count), *(column.tensor_split(count) for column in columns), strict=True)
    return ((rows, VecchiaRows(*piece)) for rows, *piece in pieces)


def conditional_log_density(kernel: Kernel, data: OrderedRows, local: LocalRows) -> Tensor:
    """Sum of log p(y_i | y_N) over some rows, in nats; differentiable in kernel and noise (§9.7)."""
    points = no_points(kernel, data.x)
    part = vecchia_rows(points, data, points.features(data.x), local)
    here = data.take(local.rows)
    num_outputs = here.y.shape[1]
    rho_v = here.precision * part.v
    squares = (here.y - part.eta_y).square().sum(1)
    normalizer = num_outputs * (here.log_normalizer - 0.5 * rho_v.log1p())
    return (normalizer - 0.5 * here.precision / (1.0 + rho_v) * squares).sum()
