r"""Rows given their neighbours (Vecchia): features, outputs and noise that are independent given u (§9.1).

The coreset's features :math:`\psi = L_K^{-1} k_c(x)` carry the global trend :math:`\psi^T u` of f, with
:math:`u \sim N(0, I)`. The rest of f has the covariance :math:`\tilde K = k - \psi^T \psi`. With :math:`\tilde K` at
the neighbours of row i and at the row itself, and with the precisions :math:`\rho` of the neighbours' outputs,

.. math:: \eta_i = (\tilde K_{NN} + 1/\rho)^{-1} \tilde K_{Ni}, \quad v_i = \tilde K_{ii} - \tilde K_{iN} \eta_i, \quad
          y_i - \eta_i^T y_N \sim N(\phi_i^T u, \; v_i + 1 / \rho_i), \quad \phi_i = \psi_i - \Psi_N^T \eta_i.

So row i is a row with features :math:`\phi_i` and more noise. The sums over such rows are
:class:`~cvgp.gp.bounds.statistics.Statistics`, from which the best coreset follows as usual. They leave no variance
unexplained: `kk` is the trace of `Phi`, and the bound with a full covariance (:func:`cvgp.gp.bounds.solve_titsias`) is
the model's log marginal likelihood.

With :math:`R = diag(\sqrt\rho)` the inverse is :math:`R (I + R \tilde K_{NN} R)^{-1} R`. The matrix in the middle has
eigenvalues of at least one, even if neighbours are copies of each other. Nothing is divided by a precision, so a
precision of zero removes a neighbour exactly: rows with fewer neighbours than others, and rows of weight zero.
"""

from collections.abc import Iterator
from functools import cached_property, reduce
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.statistics import Statistics, gather_whitened, weigh, whitener
from cvgp.gp.kernels import cross_matrix, evaluate, stationary_form
from cvgp.gp.linalg import cholesky_above_identity, first_derivative_only, plus_identity
from cvgp.gp.stationary import Placed, covariance_at, local_matrices, place


class WhitenedPoints:
    """A kernel at its present parameters, with the whitened features of M pseudo-inputs (§5.1).

    It is valid as long as the parameters do not change.

    Parameters
    ----------
    kernel
        Any kernel.
    X_c
        Pseudo-inputs `[M, D]`; without any, the neighbours explain all of f.
    L_K_inv
        The inverse Cholesky factor of the kernel matrix among them `[M, M]`, in float64.
    """

    def __init__(self, kernel: Kernel, X_c: Tensor, L_K_inv: Tensor) -> None:
        self.kernel = kernel
        self.X_c = X_c
        self.L_K_inv = L_K_inv

    @property
    def size(self) -> int:
        """M."""
        return len(self.X_c)

    def features(self, x: Tensor) -> Tensor:
        """Psi [B, M] at x [B, D] in float64, differentiable where gradients are on."""
        if self.size == 0:
            return x.new_zeros(len(x), 0)
        placed = None if torch.is_grad_enabled() else self._placed
        K_cx = cross_matrix(self.kernel, self.X_c, x) if placed is None else covariance_at(placed, x).K  # [M, B]
        return K_cx.mT @ self.L_K_inv.mT

    def among(self, x: Tensor) -> Tensor:
        """Kernel matrices [n, m, m] of the sets of points x [n, m, D], differentiable where gradients are on."""
        return _among(self.kernel, x)

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


def whiten_points(kernel: Kernel, X_c: Tensor, K_cc: Tensor) -> WhitenedPoints:
    """Pseudo-inputs with their kernel matrix, to which the caller has added its jitter; differentiable."""
    return WhitenedPoints(kernel, X_c, whitener(K_cc))


def no_points(kernel: Kernel, x: Tensor) -> WhitenedPoints:
    """No pseudo-inputs, for rows like x `[N, D]`: the neighbours explain all of f."""
    return WhitenedPoints(kernel, x[:0], torch.zeros(0, 0, dtype=torch.float64, device=x.device))


def condition_on_neighbours(K: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """The weights eta `[n, k]` and the variance v `[n]` of f at n rows, differentiable once in both arguments (§9.1).

    Parameters
    ----------
    K
        Covariance of each row's k neighbours and, last, of the row itself `[n, k + 1, k + 1]`, in float64.
    precision
        Precisions of the neighbours' outputs `[n, k]`; zero where there is no neighbour.
    """
    n, k = precision.shape
    if K.shape != (n, k + 1, k + 1):
        raise InvalidInputError(
            f"With precisions of {n} rows and {k} neighbours, K must be [{n}, {k + 1}, {k + 1}]; got {tuple(K.shape)}."
        )
    eta, v = _Conditional.apply(K, precision)  # type: ignore[no-untyped-call]
    return eta, v


class _Conditional(torch.autograd.Function):
    """From S = K_NN + 1/rho follow d eta = S^-1 (dK_Ni - dS eta) and dv = dK_ii - 2 eta^T dK_Ni + eta^T dS eta."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        K_NN, K_Ni, K_ii = K[:, :-1, :-1], K[:, :-1, -1:], K[:, -1, -1]
        R = precision.sqrt()[..., None]  # [n, k, 1], the diagonal of R as a column
        L = cholesky_above_identity(plus_identity(R * K_NN * R.mT), "I + R K_NN R of the neighbours")
        half = torch.linalg.solve_triangular(L, R * K_Ni, upper=False)  # [n, k, 1]
        a = torch.linalg.solve_triangular(L.mT, half, upper=True)  # [n, k, 1], eta = R a
        ctx.save_for_backward(L, R, a)
        return (R * a)[..., 0], (K_ii - half.square().sum((-2, -1))).clamp_min(0.0)

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
        # d(1/rho) = -d rho / rho^2, of which R takes one rho; non-neighbours have zero derivative.
        rho = R.square()
        d_precision = torch.where(rho > 0, (t * a - d_v * a.square()) / torch.where(rho > 0, rho, 1.0), 0.0)
        return d_K, d_precision[..., 0]


TABLE_BYTES = 1_000_000_000
"""Largest table of the features of a block of rows and of their neighbours."""

BATCH_BYTES = 16_000_000
"""Size of the features gathered at a time. On one thread, 4 to 32 million made no measurable difference."""


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
    """Rows as the conditionals need them; they stay in the order in which they come.

    A row that counts c times is one row with the noise s / c: N(y | f, s)^c is N(y | f, s / c) times a constant, which
    goes into the log normalizer.

    Parameters
    ----------
    x, y
        Inputs `[N, D]`, and outputs `[N]` or `[N, Q]` with the prior mean subtracted.
    noise
        Noise variance, `[]` or `[N]`.
    sample_weight
        How often each row counts `[N]`; once if it is None.
    """
    if x.ndim != 2 or y.ndim not in (1, 2) or len(y) != len(x):
        raise InvalidInputError(f"x must be [N, D] and y [N] or [N, Q]; got {tuple(x.shape)} and {tuple(y.shape)}.")
    x, y, noise = (t.to(torch.float64) for t in (x, y.reshape(len(y), -1), noise))
    precision = weigh(noise, x[:, 0], sample_weight=sample_weight).precision  # which checks both
    count = torch.ones_like(precision) if sample_weight is None else sample_weight.to(torch.float64)
    return OrderedRows(x, y, precision, -0.5 * count * (2.0 * torch.pi * noise).log())


class LocalRows(NamedTuple):
    """Some rows with their neighbours, as indices into the list of all rows involved."""

    touched: Tensor  # [T], rows of the data
    rows: Tensor  # [n], indices into `touched`
    neighbours: Tensor  # [n, k], indices into `touched`, or -1


def local_rows(rows: Tensor, neighbours: Tensor) -> LocalRows:
    """The distinct rows among rows `[n]` and their neighbours `[n, k]` (-1: none), and where each is among them."""
    absent = neighbours < 0
    together = torch.cat([neighbours, rows[:, None]], 1)  # [n, k + 1]
    # A missing neighbour is replaced by the row itself, so that no further row is involved.
    touched, places = torch.unique(torch.where(together < 0, rows[:, None], together), return_inverse=True)
    return LocalRows(touched, places[:, -1], places[:, :-1].masked_fill(absent, -1))


class VecchiaRows(NamedTuple):
    """f at some rows given u and the outputs of their neighbours: N(phi^T u + eta^T y_N, v)."""

    eta: Tensor  # [n, k]
    eta_y: Tensor  # [n, Q], eta^T y_N
    phi: Tensor  # [n, M]
    v: Tensor  # [n]


def vecchia_rows(points: WhitenedPoints, data: OrderedRows, Psi: Tensor, local: LocalRows) -> VecchiaRows:
    """Condition some rows on their neighbours, differentiably (§9.1).

    Parameters
    ----------
    points
        The kernel.
    data, Psi
        All rows involved, and their features `[T, M]`.
    local
        The rows to condition and their neighbours, as indices into these.
    """
    together = torch.cat([local.neighbours.clamp_min(0), local.rows[:, None]], 1)  # [n, k + 1]
    Psi_N = _take(Psi, together)  # [n, k + 1, M]
    K = points.among(_take(data.x, together)) - Psi_N @ Psi_N.mT  # [n, k + 1, k + 1]
    present = local.neighbours >= 0
    eta, v = condition_on_neighbours(K, torch.where(present, data.precision[together[:, :-1]], 0.0))
    eta_Psi = (eta[:, None, :] @ Psi_N[:, :-1])[:, 0]  # [n, M]
    eta_y = (eta[:, None, :] @ _take(data.y, together[:, :-1]))[:, 0]  # [n, Q]
    return VecchiaRows(eta, eta_y, Psi_N[:, -1] - eta_Psi, v)


def vecchia_blocks(
    points: WhitenedPoints, data: OrderedRows, rows: Tensor, neighbours: Tensor
) -> Iterator[tuple[Tensor, VecchiaRows]]:
    """Condition rows on their neighbours block by block, in the order of `rows`; yields each block and its rows.

    Features are computed once for all rows that a block involves, and gathered in batches.
    """
    width = _row_bytes(points, data)
    all_fit = len(data.x) * width <= TABLE_BYTES
    block = max(1, len(rows) if all_fit else TABLE_BYTES // ((neighbours.shape[1] + 1) * width))
    for block_rows, block_neighbours in zip(rows.split(block), neighbours.split(block), strict=True):
        local = local_rows(block_rows, block_neighbours)
        touched = data.take(local.touched)
        Psi = points.features(touched.x)  # [T, M]
        for places, part in in_batches(points, touched, Psi, local):
            yield local.touched[places], part


def in_batches(
    points: WhitenedPoints, data: OrderedRows, Psi: Tensor, local: LocalRows
) -> Iterator[tuple[Tensor, VecchiaRows]]:
    """:func:`vecchia_rows` in batches; yields the indices of the rows with the result."""
    members = local.neighbours.shape[1] + 1
    size = max(1, BATCH_BYTES // (8 * members * max(members, Psi.shape[1], data.x.shape[1])))
    for rows, neighbours in zip(local.rows.split(size), local.neighbours.split(size), strict=True):
        yield rows, vecchia_rows(points, data, Psi, LocalRows(local.touched, rows, neighbours))


@torch.no_grad()
def vecchia_statistics(points: WhitenedPoints, data: OrderedRows, neighbours: Tensor, start: int = 0) -> Statistics:
    """Statistics of the rows from `start` on, each given its neighbours `[N - start, k]`: rows before it, or -1 (§9.3).

    Those of the rows before `start` can be merged with them.
    """
    check_neighbours(neighbours, len(data.x), start)
    rows = torch.arange(start, len(data.x), device=data.x.device)
    if len(rows) * _row_bytes(points, data) > TABLE_BYTES:
        # Rows of one region share their neighbours, so that each block touches few other rows.
        rows = rows[_region(points, data.x[start:]).argsort(stable=True)]
    parts = vecchia_blocks(points, data, rows, neighbours[rows - start])
    sums = (block_statistics(data.take(of), part) for of, part in parts)
    return reduce(Statistics.merge, sums, Statistics.zeros(points.size, data.y.shape[1], data.x.device))


def block_statistics(data: OrderedRows, part: VecchiaRows) -> Statistics:
    """Statistics of a block of Vecchia rows."""
    rho_v = data.precision * part.v
    precision = data.precision / (1.0 + rho_v)  # one over v + 1 / rho
    log_normalizer = (data.log_normalizer - 0.5 * rho_v.log1p()).sum()
    explained = part.phi.square().sum(1)
    return gather_whitened(part.phi.mT, explained, data.y - part.eta_y, precision, log_normalizer)


def check_neighbours(neighbours: Tensor, num_rows: int, start: int = 0) -> None:
    """Raise unless there is one line of neighbours per row from `start` on, each of them before it."""
    rows = torch.arange(start, num_rows, device=neighbours.device)
    if neighbours.ndim != 2 or len(neighbours) != len(rows) or bool((neighbours >= rows[:, None]).any()):
        raise InvalidInputError(
            f"neighbours must be [{len(rows)}, k], each of them a row before its own, or -1; "
            f"got {tuple(neighbours.shape)}. cvgp.gp.neighbours.search.RowIndex.earlier finds them."
        )


def _row_bytes(points: WhitenedPoints, data: OrderedRows) -> int:
    return 8 * max(points.size, data.x.shape[1])


def _take(values: Tensor, places: Tensor) -> Tensor:
    """values[places] [n, m, ...]; torch gathers whole rows faster by this name."""
    return values.index_select(0, places.reshape(-1)).reshape(*places.shape, *values.shape[1:])


def _region(points: WhitenedPoints, x: Tensor) -> Tensor:
    """The pseudo-input most correlated with each row [n], in parts that fit the memory."""
    if points.size == 0:
        return torch.zeros(len(x), dtype=torch.int64, device=x.device)
    size = max(1, BATCH_BYTES // (8 * points.size))
    return torch.cat([cross_matrix(points.kernel, points.X_c, part).argmax(0) for part in x.split(size)])
