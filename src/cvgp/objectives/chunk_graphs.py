"""One chunk of rows as a full pass sees it: its matrices, its sums, and its part of a gradient."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean
from cvgp.gp.linalg import backward_from
from cvgp.gp.model import CVGP


class ChunkGraph:
    """One chunk's matrices with their autograd graph, and its part of Titsias' bound or of the tighter one."""

    def __init__(self, model: CVGP, batch: Rows[Tensor], *, tight: bool = False) -> None:
        self.tight = tight
        self.K_cx = cross_matrix(model.kernel, model.X_c, batch.x)  # [M, B]
        self.k_xx = diagonal(model.kernel, batch.x)  # [B]
        self.residual = (batch.y - prior_mean(model.mean, batch.x, batch.y)).reshape(len(batch.x), -1)  # [B, Q]
        self.noise, self.sample_weight = model.total_noise(batch.noise_variance), batch.sample_weight
        self.weighting = bounds.weigh(self.noise, self.k_xx, sample_weight=self.sample_weight)
        self._psi: Tensor | None = None

    @torch.no_grad()
    def gather(self, L_inv: Tensor) -> bounds.Statistics:
        """The chunk's sums, whitened by L_inv [M, M]."""
        return bounds.gather_whitened(
            self.whitened(L_inv), self.k_xx, self.residual, self.weighting.precision, self.weighting.log_normaliser
        )

    @torch.no_grad()
    def tight_gain(self, L_inv: Tensor) -> Tensor:
        """What the tighter bound gains on this chunk."""
        return bounds.tight_gain(self.whitened(L_inv), self.k_xx, self.weighting.precision, self.residual.shape[1])

    def whitened(self, L_inv: Tensor) -> Tensor:
        """The features psi [M, B], computed once."""
        if self._psi is None:
            self._psi = L_inv.to(self.K_cx.dtype) @ self.K_cx.detach()
        return self._psi

    def backward(self, solution: bounds.TitsiasSolution, L_inv: Tensor) -> tuple[Tensor, Tensor | None]:
        """Add this chunk's part of the gradient to the parameters.

        Returns what the tight bound gains here, and Psi, the chunk's part of the derivative in K_cc, if there is one.
        """
        precision, gain, Psi = self.weighting.precision, torch.zeros_like(solution.value), None
        with torch.no_grad():
            if self.tight:
                psi = self.whitened(L_inv)
                gain, gradient, Psi = bounds.tight_data_gradient(
                    solution, L_inv, psi, self.k_xx, self.residual, precision
                )
            else:
                gradient = bounds.data_gradient(
                    solution.alpha, solution.A, self.K_cx, self.k_xx, self.residual, precision
                )
        outputs = [self.K_cx, self.k_xx, self.residual, precision, self.weighting.log_normaliser]
        _backward_from_live(outputs, [*gradient, torch.full_like(gain, self.residual.shape[1])])
        return gain, Psi


class _PowerGraph(ChunkGraph):
    """One chunk's part of the estimate by power EP, whose precisions hold the kernel."""

    def __init__(self, model: CVGP, batch: Rows[Tensor], power: float) -> None:
        super().__init__(model, batch)
        self.noise, self.power = self.noise.expand(len(batch.x)), power

    @torch.no_grad()
    def gather(self, L_inv: Tensor) -> bounds.Statistics:
        return bounds.gather_power(
            self.whitened(L_inv), self.k_xx, self.residual, self.noise, self.power, sample_weight=self.sample_weight
        )

    def tight_gain(self, L_inv: Tensor) -> Tensor:
        return L_inv.new_zeros(())

    def backward(self, solution: bounds.TitsiasSolution, L_inv: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.whitened(L_inv), self.k_xx, self.residual, self.noise
        with torch.no_grad():
            *gradients, Psi = bounds.power_data_gradient(
                solution, L_inv, *rows, self.power, sample_weight=self.sample_weight
            )
        _backward_from_live([self.K_cx, self.k_xx, self.residual, self.noise], gradients)
        return torch.zeros_like(solution.value), Psi


def graph_of(model: CVGP, batch: Rows[Tensor], *, tight: bool = False, power: float | None = None) -> ChunkGraph:
    """The chunk as the bound, the tighter bound or power EP needs it."""
    return ChunkGraph(model, batch, tight=tight) if power is None else _PowerGraph(model, batch, power)


def _backward_from_live(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Continue backward from those outputs that depend on a parameter."""
    live = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if live:
        backward_from([o for o, _ in live], [g for _, g in live])
