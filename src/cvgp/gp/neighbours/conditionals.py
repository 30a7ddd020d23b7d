r"""One row given its neighbours: the weights of their outputs, and the variance that is left (§9.1).

With the covariance C of the process at some neighbours and at the row itself, and the precisions :math:`\rho` of the
neighbours' outputs,

.. math:: b = (C_{NN} + 1/\rho)^{-1} C_{Ni}, \qquad v = C_{ii} - C_{iN} b.

With :math:`R = diag(\sqrt\rho)` the inverse is :math:`R (I + R C_{NN} R)^{-1} R`. The matrix that is factorised has
eigenvalues of at least one, whatever copies there are among the neighbours. Nothing is divided by a precision, so a
precision of zero takes a neighbour out exactly: rows with fewer neighbours than others, and rows of weight zero.
"""

from typing import Any

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.linalg import cholesky_above_identity, first_derivative_only, plus_identity


def condition_on_neighbours(C: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """The weights b `[n, k]` and the variance v `[n]` of f at n rows, differentiable once in both arguments (§9.1).

    Parameters
    ----------
    C
        Covariance of each row's k neighbours and, last, of the row itself `[n, k + 1, k + 1]`, in float64.
    precision
        Precisions of the neighbours' outputs `[n, k]`; zero where there is no neighbour.
    """
    n, k = precision.shape
    if C.shape != (n, k + 1, k + 1):
        raise InvalidInputError(
            f"With precisions of {n} rows and {k} neighbours, C must be [{n}, {k + 1}, {k + 1}]; got {tuple(C.shape)}."
        )
    b, v = _Conditional.apply(C, precision)  # type: ignore[no-untyped-call]
    return b, v


class _Conditional(torch.autograd.Function):
    """From S = C_NN + 1/rho follow db = S^-1 (dC_Ni - dS b) and dv = dC_ii - 2 b^T dC_Ni + b^T dS b."""

    @staticmethod
    def forward(ctx: Any, C: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        C_NN, C_Ni, C_ii = C[:, :-1, :-1], C[:, :-1, -1:], C[:, -1, -1]
        R = precision.sqrt()[..., None]  # [n, k, 1], the diagonal of R as a column
        L = cholesky_above_identity(plus_identity(R * C_NN * R.mT), "I + R C_NN R of the neighbours")
        half = torch.linalg.solve_triangular(L, R * C_Ni, upper=False)  # [n, k, 1]
        a = torch.linalg.solve_triangular(L.mT, half, upper=True)  # [n, k, 1], b = R a
        ctx.save_for_backward(L, R, a)
        return (R * a)[..., 0], (C_ii - half.square().sum((-2, -1))).clamp_min(0.0)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, d_b: Tensor, d_v: Tensor) -> tuple[Tensor, Tensor]:
        L, R, a = ctx.saved_tensors
        n, k = d_b.shape
        t = torch.cholesky_solve(R * d_b[..., None], L)  # [n, k, 1], S^-1 d_b = R t
        b, Rt, d_v = R * a, R * t, d_v[:, None, None]
        d_C = torch.empty(n, k + 1, k + 1, dtype=a.dtype, device=a.device)
        outer = b @ (d_v * b - Rt).mT  # [n, k, k]
        d_C[:, :-1, :-1] = 0.5 * (outer + outer.mT)
        d_C[:, :-1, -1:] = d_C[:, -1:, :-1].mT.copy_(0.5 * Rt - d_v * b)
        d_C[:, -1:, -1:] = d_v
        # d(1/rho) = -d rho / rho^2, of which R takes one rho; who is no neighbour has no derivative.
        rho = R.square()
        d_precision = torch.where(rho > 0, (t * a - d_v * a.square()) / torch.where(rho > 0, rho, 1.0), 0.0)
        return d_C, d_precision[..., 0]
