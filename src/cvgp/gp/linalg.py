"""Dense linear algebra with a precision policy: M x M matrices in float64, data-side matrices as they come.

A factorization that fails is tried again with a growing jitter, which a :class:`~cvgp.errors.JitterWarning` reports.
"""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from cvgp.errors import FactorizationError, InvalidInputError, JitterWarning
from cvgp.runtime import warn_or_keep

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

JITTER = 1e-8  # share of the mean diagonal added to K_cc in the bounds that factorize it
JITTER_LADDER = (1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # jitters to try in turn, as multiples of the mean diagonal
INVERSE_BY_LAPACK = 400  # size from which LAPACK computes a symmetric inverse
SYMMETRIC_BY_BLOCKS = 500  # size from which a symmetric product in blocks is faster than a whole one


TRIANGLE_BY_BLOCKS = 64  # size of both sides from which it pays to leave out the upper blocks of a triangular matrix


def symmetrize(A: Tensor) -> Tensor:
    """Return (A + A^T) / 2, so that a gradient with respect to A is the symmetric one."""
    return 0.5 * (A + A.mT)


def as_square(K: Tensor) -> Tensor:
    """Return an M x M kernel matrix as the algebra needs it: float64 and symmetric."""
    return symmetrize(K.to(torch.float64))


def add_jitter(K: Tensor, relative: float) -> Tensor:
    """Add `relative` times the mean diagonal, as a differentiable part of the matrix: value and gradient must agree."""
    shift = relative * K.diagonal(dim1=-2, dim2=-1).mean()
    return K + shift * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)


def plus_identity(A: Tensor) -> Tensor:
    """I + A, without a matrix I."""
    result = A.clone()
    result.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return result


def safe_cholesky(A: Tensor, name: str = "matrix") -> Tensor:
    """Lower Cholesky factor of a symmetric positive definite matrix, climbing the jitter ladder if it must."""
    L: Tensor
    L, info = torch.linalg.cholesky_ex(A)
    # LAPACK takes the square root of an infinite diagonal without complaint; a sum shows it in one go.
    if not (info.item() if info.ndim == 0 else info.any()) and math.isfinite(L.diagonal(dim1=-2, dim2=-1).sum().item()):
        return L
    if not torch.isfinite(A).all():
        raise FactorizationError(
            f"{name} ({_size(A)}) holds NaN or infinite values, so it has no Cholesky factor. "
            "Check the inputs, lengthscales, weights and noise for overflow."
        )
    mean_diagonal = A.diagonal(dim1=-2, dim2=-1).mean()
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    for relative in JITTER_LADDER:
        jitter = relative * mean_diagonal.item()
        L, info = torch.linalg.cholesky_ex(A + jitter * identity)
        if not info.any():
            added = f"{jitter:.1e} was added to its diagonal"
            warn_or_keep(JitterWarning(f"{name} ({_size(A)}) was not positive definite in {A.dtype}; {added}."))
            return L
    raise FactorizationError(
        f"{name} ({_size(A)}) is not positive definite, even with {jitter:.1e} added to its diagonal. "
        "The kernel may not be positive definite, or its inputs differ in scale by many orders of magnitude: "
        "standardize the inputs, or bound the lengthscales."
    )


def cholesky_above_identity(A: Tensor, name: str = "matrices") -> Tensor:
    """Cholesky factors of matrices `[n, k, k]`; eigenvalues that rounding has made less than one are raised to one."""
    L: Tensor
    L, info = torch.linalg.cholesky_ex(A)
    if not info.any() or not torch.isfinite(A).all():
        return L if math.isfinite(L.diagonal(dim1=-2, dim2=-1).sum().item()) else safe_cholesky(A, name)
    failed = info > 0
    values, V = torch.linalg.eigh(A[failed])
    raised = (V * values.clamp_min(1.0)[..., None, :]) @ V.mT
    L[failed] = safe_cholesky(0.5 * (raised + raised.mT), name)
    lost = f"{int(failed.sum())} of {len(A)} were not positive definite in {A.dtype}"
    warn_or_keep(JitterWarning(f"{name} ({_size(A)}): {lost}; eigenvalues below one were raised to one."))
    return L


def inverse_lower(L: Tensor) -> Tensor:
    """Explicit inverse of a well-conditioned lower triangular matrix: products are four times as fast as solves."""
    identity = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    inverse: Tensor = torch.linalg.solve_triangular(L, identity, upper=False)
    return inverse


def inverse_from_factor(L: Tensor) -> Tensor:
    """(L L^T)^-1 from a lower triangular L; LAPACK's own routine is faster for large matrices alone."""
    if L.shape[-1] >= INVERSE_BY_LAPACK:
        return torch.cholesky_inverse(L).mT  # which LAPACK stores by columns, and the rest of the algebra by rows
    L_inv = inverse_lower(L)
    return L_inv.mT @ L_inv


def one_minus_inverse(P: Tensor, A: Tensor) -> Tensor:
    """I - P [..., M, M] for P = (I + A)^-1. It is A P: its diagonal comes from there, for 1 - P_mm cancels (§3.1)."""
    E = P.neg()
    E.diagonal(dim1=-2, dim2=-1).copy_((A * P).sum(-1))
    return E


def symmetric_product(A: Tensor, B: Tensor) -> Tensor:
    """A B^T [M, M] where it is known to be symmetric: blocks above the diagonal are copied, not multiplied."""
    M = A.shape[0]
    if M < SYMMETRIC_BY_BLOCKS:
        return A @ B.mT
    C = A.new_empty(M, M)
    edges = [M * i // 4 for i in range(5)]
    for top, bottom in pairwise(edges):
        torch.mm(A[top:bottom], B[:bottom].mT, out=C[top:bottom, :bottom])
        C[:top, top:bottom] = C[top:bottom, :top].mT
    return C


def triangular_squares(L: Tensor, K: Tensor) -> Tensor:
    """Column sums of (L K)^2 [..., B] for a lower triangular L [..., M, M], in blocks that skip most of its zeros."""
    M, B = K.shape[-2:]
    if min(M, B) < TRIANGLE_BY_BLOCKS:
        return (L @ K).square().sum(-2)
    edges = [M * i // 4 for i in range(5)]
    parts = [(L[..., top:bottom, :bottom] @ K[..., :bottom, :]).square().sum(-2) for top, bottom in pairwise(edges)]
    return torch.stack(parts).sum(0)


def triangular_product(L: Tensor, K: Tensor) -> Tensor:
    """L K [M, B] for a lower triangular L [M, M], in blocks that skip most of its zeros; not differentiable."""
    M, B = K.shape
    if min(M, B) < TRIANGLE_BY_BLOCKS:
        return L @ K
    product, edges = torch.empty_like(K), [M * i // 4 for i in range(5)]
    for top, bottom in pairwise(edges):
        torch.mm(L[top:bottom, :bottom], K[:bottom], out=product[top:bottom])
    return product


def _size(A: Tensor) -> str:
    return " x ".join(str(n) for n in A.shape)


def first_derivative_only(backward: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Make an analytic backward raise on a second derivative, which autograd would silently get wrong."""

    @wraps(backward)
    def wrapped(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if torch.is_grad_enabled():
            raise InvalidInputError(
                "Bounds and fused kernels have first derivatives only: call backward without create_graph=True, "
                "and take second derivatives by differences of gradients."
            )
        return backward(*args, **kwargs)

    return wrapped


class _WithGradients(torch.autograd.Function):
    """A function whose value is zero, and whose gradient in each tensor is a gradient that the caller supplies."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.saved_tensors, *(None for _ in ctx.saved_tensors)


def backward_from(tensors: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Continue backward from tensors whose gradients are known; unlike torch's own function, it does not load SymPy."""
    live = [(tensor, gradient) for tensor, gradient in zip(tensors, gradients, strict=True) if tensor.requires_grad]
    if live:
        outputs, known = zip(*live, strict=True)
        value: Tensor = _WithGradients.apply(len(live), *outputs, *known)  # type: ignore[no-untyped-call]
        torch.autograd.backward(value)
