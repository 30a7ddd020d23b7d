"""Pseudo-inputs as features of unit prior covariance, with the kernel that makes them so (§5.1)."""

from functools import cached_property, reduce

import torch
from gpytorch.kernels import AdditiveKernel, Kernel
from torch import Tensor

from cvgp.gp.bounds.statistics import whitener
from cvgp.gp.kernels import cross_matrix, evaluate, stationary_form
from cvgp.gp.neighbours.local_kernel import local_matrices
from cvgp.gp.stationary import Placed, covariance_at, place


class WhitenedPoints:
    """A kernel at its present parameters, and the features that M pseudo-inputs make of it.

    Once the parameters change, it has to be made anew.

    Parameters
    ----------
    kernel
        Any kernel.
    X_c
        Pseudo-inputs `[M, D]`. Without any, all is left to the neighbours.
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

    # What is kept holds no graph: derivatives need the kernel's parameters each time.
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
    """No pseudo-inputs, for rows like x `[N, D]`: all is left to the neighbours."""
    return WhitenedPoints(kernel, x[:0], torch.zeros(0, 0, dtype=torch.float64, device=x.device))
