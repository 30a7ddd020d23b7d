r"""The bound at its best pseudo-outputs, from sums over the data that stream, merge and all-reduce.

With :math:`K = L L^T`, whitened features :math:`\psi_i = L^{-1} k_i` and precisions :math:`\rho_i`, the data enter
only through :math:`\Phi = \sum_i \rho_i \psi_i \psi_i^T`, :math:`b = \sum_i \rho_i \psi_i y_i` and three scalars. With
:math:`C = I + \Phi` and :math:`J = T L`,

.. math:: ELBO^* = \tfrac12 [\, -\textstyle\sum_i \log 2\pi s_i - \sum_i \rho_i y_i^2 + b^T C^{-1} b
          - \sum_i \rho_i k_{ii} + tr(J C J^T) - \log|B| \,].

Whitening keeps the eigenvalues of C at one or above; the raw products :math:`\sum_i k_i k_i^T` lose definiteness.
`K_cc` is factorised here, so callers add their jitter to it first (:func:`cvgp.gp.linalg.add_jitter`).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.autograd import first_derivative_only
from cvgp.gp.bounds.weighting import site_precision, weigh
from cvgp.gp.checks import check_matrices
from cvgp.gp.linalg import as_square, inverse_lower, safe_cholesky, symmetric_product
from cvgp.gp.posterior import Factor, factorise

__all__ = [
    "CollapsedSolution",
    "DataGradient",
    "FullSolution",
    "Statistics",
    "collapsed_bound",
    "data_gradient",
    "gather",
    "gather_whitened",
    "solve",
    "solve_full",
    "whitener",
]


class Statistics(NamedTuple):
    """Additive sums over data, whitened by one kernel and one set of pseudo-inputs; all float64."""

    Phi: Tensor  # [M, M], sum of rho psi psi^T
    b: Tensor  # [M, T], sum of rho psi y^T
    yy: Tensor  # [], sum of rho y^2 over points and outputs
    kk: Tensor  # [], sum of rho k_ii
    log_normaliser: Tensor  # [], -1/2 sum of log(2 pi s)

    @classmethod
    def of_nothing(cls, size: int, num_outputs: int, device: torch.device) -> "Statistics":
        """The sums over no data, for so many pseudo-inputs and outputs."""
        shapes: list[tuple[int, ...]] = [(size, size), (size, num_outputs), (), (), ()]
        return cls(*(torch.zeros(shape, dtype=torch.float64, device=device) for shape in shapes))

    def merge(self, other: "Statistics") -> "Statistics":
        """Statistics of the union of two disjoint data sets, exactly."""
        if self.b.shape != other.b.shape:
            raise InvalidInputError(
                "Statistics merge only when they come from the same kernel, pseudo-inputs and outputs; "
                f"got [M, T] of {tuple(self.b.shape)} and {tuple(other.b.shape)}."
            )
        return Statistics(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def whitener(K_cc: Tensor) -> Tensor:
    """L^-1 with K_cc = L L^T [M, M]: turns kernel columns into features with unit prior covariance."""
    return inverse_lower(safe_cholesky(as_square(K_cc), "K_cc"))


def gather(
    L_inv: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor, log_normaliser: Tensor
) -> Statistics:
    """Statistics of one batch: `K_cx` [M, B], `k_xx` [B], `y` [B, T], its precisions [B] and log normaliser."""
    check_matrices(L_inv, K_cx, k_xx, y)
    if y.ndim != 2:
        raise InvalidInputError(f"y must be [B, T]; got {tuple(y.shape)}. Use y[:, None] for one output.")
    return gather_whitened(L_inv.to(K_cx.dtype) @ K_cx, k_xx, y, precision, log_normaliser)


def gather_whitened(psi: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor, log_normaliser: Tensor) -> Statistics:
    """The same from the whitened features psi = L^-1 K_cx `[M, B]`."""
    psi_weighted = psi * precision
    return Statistics(
        Phi=symmetric_product(psi_weighted, psi).to(torch.float64),
        b=(psi_weighted @ y).to(torch.float64),
        yy=(precision[:, None] * y.square()).sum(dtype=torch.float64),
        kk=(precision * k_xx).sum(dtype=torch.float64),
        log_normaliser=log_normaliser,
    )


class CollapsedSolution(NamedTuple):
    """The bound, what attains it, and its derivatives on the M x M side."""

    value: Tensor  # []
    alpha: Tensor  # [M, T], best mean weights: m(x) = k(x, X_c) alpha
    A: Tensor  # [M, M], the posterior variance is k_ii - k_i^T A k_i
    factor: Factor  # of K_cc and w, with the best pseudo-outputs
    d_K_cc: Tensor  # [M, M]
    d_w: Tensor  # [M]


def solve(K_cc: Tensor, w: Tensor, statistics: Statistics, L_inv: Tensor | None = None) -> CollapsedSolution:
    """Maximise over y_c in closed form: alpha* = (K + Phi)^-1 b and y_c* = (K + 1/w) alpha*, in O(M^3)."""
    if K_cc.shape != statistics.Phi.shape or w.shape != statistics.b.shape[:1]:
        M = len(statistics.b)
        raise InvalidInputError(
            f"With statistics of {M} pseudo-inputs, K_cc must be [{M}, {M}] and w [{M}]; "
            f"got {tuple(K_cc.shape)} and {tuple(w.shape)}."
        )
    if len({K_cc.device, w.device, statistics.Phi.device}) > 1:
        raise InvalidInputError(
            f"K_cc, w and the statistics must be on one device; got {K_cc.device}, {w.device} and "
            f"{statistics.Phi.device}. Move them with .to(device)."
        )
    if bool((w == 0).any()):
        raise InvalidInputError(
            "The best pseudo-outputs (K + 1/w) alpha do not exist for a weight of zero; drop such points first."
        )
    K_cc = as_square(K_cc)
    L_inv = whitener(K_cc) if L_inv is None else L_inv
    num_outputs = statistics.b.shape[1]
    C = statistics.Phi + torch.eye(len(w), dtype=torch.float64, device=w.device)
    L_C_inv = inverse_lower(safe_cholesky(C, "C = I + Phi"))
    white_alpha = L_C_inv.mT @ (L_C_inv @ statistics.b)  # [M, T], C^-1 b
    alpha = L_inv.mT @ white_alpha

    factor = factorise(K_cc, w, K_cc @ alpha + alpha / w[:, None])
    # T K L^-T = T L, computed from K so that only L^-1 is needed.
    J = (factor.T @ K_cc) @ L_inv.mT  # [M, M]
    J_C = J @ C
    value = (
        num_outputs * statistics.log_normaliser
        - 0.5 * statistics.yy
        + 0.5 * (statistics.b * white_alpha).sum()
        + 0.5 * num_outputs * ((J_C * J).sum() - statistics.kk - factor.log_det_B)
    )
    T_S_T = J_C @ J.mT  # [M, M], T (K + Phi_raw) T^T
    d_K_cc = -0.5 * (alpha @ alpha.mT + num_outputs * factor.T.mT @ T_S_T @ factor.T)
    # d/dlog w = 1/2 [diag(P R S R P) - (1 - diag P)], every part of it proportional to w.
    P = factor.L_B_inv.mT @ factor.L_B_inv
    root_w = factor.w.sqrt()
    one_minus_P = (root_w[:, None] * K_cc * root_w * P).sum(1)
    PRSRP = ((T_S_T @ factor.L_B_inv) * factor.L_B_inv).sum(0)
    d_w = 0.5 * num_outputs * (PRSRP - one_minus_P) / factor.w
    return CollapsedSolution(value, alpha, factor.T.mT @ factor.T, factor, d_K_cc, d_w)


class FullSolution(NamedTuple):
    """The bound when the sites' covariance may be any matrix (Titsias 2009), and its M x M derivative."""

    value: Tensor  # []
    alpha: Tensor  # [M, T]
    A: Tensor  # [M, M]
    white_alpha: Tensor  # [M, T], alpha and A as the whitened features see them: alpha = L^-T white_alpha
    C_inv: Tensor  # [M, M], A = L^-T (I - C^-1) L^-1
    d_K_cc: Tensor  # [M, M]


def solve_full(statistics: Statistics, L_inv: Tensor) -> FullSolution:
    """Maximise over y_c and a full site covariance: A = K^-1 - (K + Phi)^-1, in O(M^3).

    The bound that a diagonal of weights cannot exceed, and comes close to. It has no weights to search over, which
    makes it the better guide for kernel and pseudo-inputs when every evaluation sees all data.
    """
    num_outputs = statistics.b.shape[1]
    identity = torch.eye(len(L_inv), dtype=torch.float64, device=L_inv.device)
    C = statistics.Phi + identity
    L_C = safe_cholesky(C, "C = I + Phi")
    L_C_inv = inverse_lower(L_C)
    C_inv = L_C_inv.mT @ L_C_inv
    white_alpha = C_inv @ statistics.b
    alpha = L_inv.mT @ white_alpha
    value = (
        num_outputs * statistics.log_normaliser
        - 0.5 * statistics.yy
        + 0.5 * (statistics.b * white_alpha).sum()
        - 0.5 * num_outputs * (statistics.kk - statistics.Phi.trace() + 2.0 * L_C.diagonal().log().sum())
    )
    # A S A with S = K + Phi, in whitened coordinates (I - C^-1) C (I - C^-1).
    A_S_A = L_inv.mT @ (C - 2.0 * identity + C_inv) @ L_inv
    d_K_cc = -0.5 * (alpha @ alpha.mT + num_outputs * A_S_A)
    return FullSolution(value, alpha, L_inv.mT @ (identity - C_inv) @ L_inv, white_alpha, C_inv, d_K_cc)


class DataGradient(NamedTuple):
    """Derivatives of a collapsed bound on the data side of one batch."""

    K_cx: Tensor  # [M, B]
    k_xx: Tensor  # [B]
    y: Tensor  # [B, T]
    precision: Tensor  # [B]


def data_gradient(
    solution: CollapsedSolution | FullSolution, K_cx: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor
) -> DataGradient:
    """The second pass over a batch: by the envelope theorem the ELBO's own derivatives at the best y_c.

    It is computed in float64, where k_ii - k_i^T (A k_i) is accurate enough and saves a product.
    """
    num_outputs, dtype = y.shape[1], K_cx.dtype
    K_cx, k_xx, y, rho = (t.to(torch.float64) for t in (K_cx, k_xx, y, precision))
    A_K = solution.A @ K_cx  # [M, B]
    residual = y - K_cx.mT @ solution.alpha  # [B, T]
    f_var = k_xx - (K_cx * A_K).sum(0)
    weighted_residual = rho[:, None] * residual
    gradient = DataGradient(
        K_cx=torch.addmm(A_K.mul_(num_outputs * rho), solution.alpha, weighted_residual.mT),
        k_xx=-0.5 * num_outputs * rho,
        y=-weighted_residual,
        precision=-0.5 * (residual.square().sum(1) + num_outputs * f_var),
    )
    return DataGradient(*(g.to(dtype) for g in gradient))


def collapsed_bound(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    y: Tensor,
    beta: Tensor,
    noise: Tensor,
    *,
    site_noise: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """The ELBO at the best pseudo-outputs; arguments as for :func:`cvgp.gp.bounds.elbo.elbo`, less y_c."""
    check_matrices(K_cc, K_cx, k_xx, y)
    weighting = weigh(noise, k_xx, sample_weight=sample_weight)
    w = site_precision(beta, noise, site_noise)
    y = y.reshape(y.shape[0], -1)
    value: Tensor = _CollapsedBound.apply(  # type: ignore[no-untyped-call]
        K_cc, K_cx, k_xx, y, w, weighting.precision, weighting.log_normaliser
    )
    return value


class _CollapsedBound(torch.autograd.Function):
    """Both passes over one in-memory batch as an autograd node; the gradient is formed with the value."""

    @staticmethod
    def forward(
        ctx: Any,
        K_cc: Tensor,
        K_cx: Tensor,
        k_xx: Tensor,
        y: Tensor,
        w: Tensor,
        precision: Tensor,
        log_normaliser: Tensor,
    ) -> Tensor:
        L_inv = whitener(K_cc)
        solution = solve(K_cc, w, gather(L_inv, K_cx, k_xx, y, precision, log_normaliser), L_inv)
        data = data_gradient(solution, K_cx, k_xx, y, precision)
        ctx.save_for_backward(solution.d_K_cc, data.K_cx, data.k_xx, data.y, solution.d_w, data.precision)
        ctx.dtypes = [t.dtype for t in (K_cc, K_cx, k_xx, y, w, precision)]
        ctx.num_outputs = y.shape[1]
        return solution.value

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, ...]:
        gradients = ((grad_value * g).to(dtype) for g, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
        return (*gradients, grad_value * ctx.num_outputs)
