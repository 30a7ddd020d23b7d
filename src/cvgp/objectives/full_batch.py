"""Titsias' bound over all data, chunk by chunk: what a full-batch optimiser evaluates.

Two passes over the chunks make one evaluation. The first adds up statistics; from them the best pseudo-outputs, the
bound and its M x M derivatives follow; the second sends the data-side derivatives back through the kernel. Memory
holds one chunk's matrices at a time, unless all of them are small enough to keep between the passes.

The chunks may be one process's part of the data. Then each pass ends in a sum over the group: of the statistics, which
are M x (M + Q) numbers, and of the value and the gradient of the parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean
from cvgp.gp.linalg import backward_from
from cvgp.gp.model import CVGP
from cvgp.objectives.prior import PriorObjective
from cvgp.parallel.group import ALONE, Group, sum_of

__all__ = [
    "CHUNK_ROWS",
    "TitsiasObjective",
    "full_bound",
    "searched_parameters",
    "solve_coreset",
    "statistics",
    "titsias_value",
]

CHUNK_ROWS = 2048
"""Rows of one chunk of a full pass: large enough for fast products, small enough for the cache."""

KEEP_BYTES = 1_000_000_000
"""Kernel matrices up to this size stay in memory between the two passes, which saves computing them twice."""

Chunks = Callable[[], Iterable[Rows[Tensor]]]


class _ChunkGraph:
    """One chunk's matrices with their autograd graph."""

    def __init__(self, model: CVGP, batch: Rows[Tensor]) -> None:
        self.K_cx = cross_matrix(model.kernel, model.X_c, batch.x)  # [M, B]
        self.k_xx = diagonal(model.kernel, batch.x)  # [B]
        self.residual = (batch.y - prior_mean(model.mean, batch.x, batch.y)).reshape(len(batch.x), -1)  # [B, Q]
        self.weighting = bounds.weigh(
            model.total_noise(batch.noise_variance), self.k_xx, sample_weight=batch.sample_weight
        )
        self._psi: Tensor | None = None

    @torch.no_grad()
    def gather(self, L_inv: Tensor) -> bounds.Statistics:
        return bounds.gather_whitened(
            self.whitened(L_inv), self.k_xx, self.residual, self.weighting.precision, self.weighting.log_normaliser
        )

    def whitened(self, L_inv: Tensor) -> Tensor:
        if self._psi is None:
            self._psi = L_inv.to(self.K_cx.dtype) @ self.K_cx.detach()
        return self._psi

    def backward(self, solution: bounds.TitsiasSolution, L_inv: Tensor, *, tight: bool) -> tuple[Tensor, Tensor | None]:
        """Add this chunk's part of the gradient to the parameters.

        Returns what the tight bound gains here, and the chunk's part of its derivative in K_cc.
        """
        precision, gain, Psi = self.weighting.precision, torch.zeros_like(solution.value), None
        with torch.no_grad():
            if tight:
                psi = self.whitened(L_inv)
                gain, gradient, Psi = bounds.tight_data_gradient(
                    solution, L_inv, psi, self.k_xx, self.residual, precision
                )
            else:
                gradient = bounds.data_gradient(
                    solution.alpha, solution.A, self.K_cx, self.k_xx, self.residual, precision
                )
        outputs = [self.K_cx, self.k_xx, self.residual, precision, self.weighting.log_normaliser]
        gradients = [*gradient, torch.full_like(gain, self.residual.shape[1])]
        live = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
        if live:
            backward_from([o for o, _ in live], [g for _, g in live])
        return gain, Psi


class TitsiasObjective:
    """Value and gradient of Titsias' bound of a model over chunks of data, plus the log density of its priors.

    The sites are at their optimum over y_c and a full covariance. What is left to search over is the kernel, the mean,
    the noise and the pseudo-inputs. The weights are solved for once, at the end (:func:`solve_coreset`): along the way
    they would slow the search, and a diagonal costs little against the full covariance.

    Parameters
    ----------
    model
        All its parameters but y_c and the weights receive the gradient, unless `parameters` says which.
    chunks
        Gives the same chunks each time that it is called.
    num_rows
        How many rows the chunks hold, to decide what to keep in memory.
    tight
        Whether to use the tighter bound.
    group
        The processes over which the data are spread; each computes on its own chunks.
    parameters
        Some of the model's parameters.
    """

    def __init__(
        self,
        model: CVGP,
        chunks: Chunks,
        num_rows: int,
        *,
        tight: bool = False,
        group: Group = ALONE,
        parameters: Sequence[Tensor] | None = None,
    ) -> None:
        self.model = model
        self.chunks = chunks
        self.tight = tight
        self.group = group
        self.parameters = searched_parameters(model) if parameters is None else list(parameters)
        self._prior = PriorObjective(model)
        self.keep = 4 * num_rows * len(model.X_c) * 8 <= KEEP_BYTES

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
        before = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        K_cc = self.model.jittered_covariance()
        L_inv = torch.empty_like(K_cc, requires_grad=False)
        kept: list[_ChunkGraph] = []

        def gather() -> bounds.Statistics:
            L_inv.copy_(bounds.whitener(K_cc.detach()))
            total = _no_statistics(self.model)
            for graph in self._graphs():
                total = total.merge(graph.gather(L_inv))
                if self.keep:
                    kept.append(graph)
            return total

        sums = sum_of(self.group, gather, _no_statistics(self.model))
        with torch.no_grad():
            solution = bounds.solve_titsias(bounds.Statistics(*sums), L_inv)

        def backward() -> list[Tensor]:
            # What is not a sum over data is counted by one process.
            is_first = float(self.group.rank == 0)
            value, d_K_cc = is_first * solution.value, is_first * solution.d_K_cc
            total_Psi = torch.zeros_like(d_K_cc)
            for graph in kept if self.keep else self._graphs():
                gain, Psi = graph.backward(solution, L_inv, tight=self.tight)
                value = value + gain
                if Psi is not None:
                    total_Psi += Psi
            if self.tight:
                d_K_cc = d_K_cc - L_inv.mT @ total_Psi @ L_inv
            backward_from([K_cc], [d_K_cc])
            if self.group.rank == 0:
                value = value + self._prior.value_and_backward()
            return [value, *(torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters)]

        value, *gradients = sum_of(self.group, backward, [solution.value, *self.parameters])
        for p, gradient, old in zip(self.parameters, gradients, before, strict=True):
            scaled = gradient.to(p.dtype).mul_(scale)
            p.grad = scaled if old is None else old.add_(scaled)
        return scale * value.item()

    def _graphs(self) -> Iterator[_ChunkGraph]:
        return (_ChunkGraph(self.model, batch) for batch in self.chunks())


def searched_parameters(model: CVGP) -> list[Tensor]:
    """What is left to search over where the sites are solved for."""
    sites = ("y_c", "raw_beta")
    return [p for name, p in model.named_parameters() if name not in sites and p.requires_grad]


@torch.no_grad()
def statistics(model: CVGP, chunks: Iterable[Rows[Tensor]], group: Group = ALONE) -> bounds.Statistics:
    """Whitened statistics of all chunks of all processes at the model's kernel and pseudo-inputs: one pass."""
    L_inv = bounds.whitener(model.jittered_covariance())
    parts = (
        model.gather(L_inv, b.x, b.y, sample_weight=b.sample_weight, noise_variance=b.noise_variance) for b in chunks
    )
    mine = reduce(bounds.Statistics.merge, parts, _no_statistics(model))
    return bounds.Statistics(*group.sum(mine))


@torch.no_grad()
def titsias_value(model: CVGP, chunks: Iterable[Rows[Tensor]]) -> float:
    """The bound that :class:`TitsiasObjective` maximises, without priors and gradient, from one pass."""
    L_inv = bounds.whitener(model.jittered_covariance())
    return bounds.solve_titsias(statistics(model, chunks), L_inv).value.item()


def solve_coreset(model: CVGP, chunks: Iterable[Rows[Tensor]], group: Group = ALONE) -> float:
    """Set the model's y_c and beta to their optimum, from one pass over the data; returns the bound in nats."""
    return model.adopt_optimum(statistics(model, chunks, group)).item()


@torch.no_grad()
def full_bound(
    model: CVGP, chunks: Iterable[Rows[Tensor]], num_rows: int, *, tight: bool = False, group: Group = ALONE
) -> float:
    """The bound of the model as it is over all `num_rows` rows of all processes, in nats.

    Each chunk gives an estimate of it, scaled to all rows; their mean, weighted by size, counts the KL once.
    """
    bound = model.tight_elbo if tight else model.elbo
    estimates = (
        (len(b.x), bound(b.x, b.y, num_rows, sample_weight=b.sample_weight, noise_variance=b.noise_variance))
        for b in chunks
    )
    mine = sum(size * estimate.item() for size, estimate in estimates) / num_rows
    (total,) = group.sum([torch.tensor(mine, dtype=torch.float64, device=model.X_c.device)])
    return total.item()


def _no_statistics(model: CVGP) -> bounds.Statistics:
    """What no rows add up to."""
    return bounds.Statistics.of_nothing(len(model.y_c), model.y_c[0].numel(), model.y_c.device)
