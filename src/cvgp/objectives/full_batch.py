"""Titsias' bound over all data, chunk by chunk: the objective of a full-batch optimizer.

An evaluation makes two passes over the chunks. The first adds up statistics, from which the best pseudo-outputs, the
bound and its M x M derivatives follow. The second sends the data-side derivatives back through the kernel. Memory
holds one chunk's matrices at a time, unless all of them are small enough to keep between the passes.

The chunks may be one process's part of the data. Then each pass ends in a sum over the group: of the statistics, which
are M x (M + Q) numbers, and of the value and the gradient of the parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Protocol

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.kernels import cross_matrix, diagonal, log_density, prior_mean, registered_priors, square_matrix
from cvgp.gp.linalg import backward_from
from cvgp.gp.model import CVGP
from cvgp.gp.vecchia import (
    InducingPosterior,
    expected_log_density,
    inducing_prior,
    local_rows,
    no_points,
    order_rows,
    whiten_points,
)
from cvgp.parallel.group import ALONE, Group, sum_of
from cvgp.runtime import memory_left, threads_for

__all__ = ["Objective"]


class Objective(Protocol):
    """A bound on all data in nats, plus the log density of priors, as a function of some parameters."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """The parameters that receive the gradient."""

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""


class PriorObjective:
    """log p of kernel, mean and noise under the priors that are registered on them; zero without any.

    Parameters
    ----------
    model
        Its kernel, mean and noise receive the gradient.
    """

    def __init__(self, model: CVGP) -> None:
        self._like: Tensor = model.X_c
        self._priors = registered_priors(model.kernel, model.mean, model.likelihood)
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the log density; `scale` times its gradient is added to `grad` of the parameters."""
        if not self._priors:
            return 0.0
        value = scale * log_density(self._priors, self._like)
        if value.requires_grad:  # a prior may be on what is frozen
            value.backward()
        return value.item()


class ExactObjective:
    """log p(y) of some rows, plus the log density of priors, as a function of kernel, mean and noise.

    Parameters
    ----------
    model
        Its kernel, mean and noise receive the gradient; its coreset is not looked at.
    rows
        All rows.
    """

    def __init__(self, model: CVGP, rows: Rows[Tensor]) -> None:
        self.model = model
        self.rows = rows
        self._prior = PriorObjective(model)
        sites = ("X_c", "y_c", "raw_beta")
        self.parameters = [p for name, p in model.named_parameters() if name not in sites and p.requires_grad]

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
        model, rows = self.model, self.rows
        with threads_for(len(rows.x) ** 3):
            value = scale * bounds.log_marginal(
                square_matrix(model.kernel, rows.x),
                rows.y - prior_mean(model.mean, rows.x, rows.y),
                model.total_noise(rows.noise_variance),
                sample_weight=rows.sample_weight,
            )
            value.backward()
        return value.item() + self._prior.value_and_backward(scale)


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
            self.whitened(L_inv), self.k_xx, self.residual, self.weighting.precision, self.weighting.log_normalizer
        )

    @torch.no_grad()
    def tight_gain(self, L_inv: Tensor) -> Tensor:
        """The gain of the tighter bound on this chunk."""
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
        outputs = [self.K_cx, self.k_xx, self.residual, precision, self.weighting.log_normalizer]
        _backward_from_live(outputs, [*gradient, torch.full_like(gain, self.residual.shape[1])])
        return gain, Psi


def _backward_from_live(outputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Continue backward from those outputs that depend on a parameter."""
    live = [(o, g) for o, g in zip(outputs, gradients, strict=True) if o.requires_grad]
    if live:
        backward_from([o for o, _ in live], [g for _, g in live])


CHUNK_ROWS = 2048
"""Rows of one chunk of a full pass: large enough for fast products, small enough for the cache."""

KEEP_BYTES, KEEP_SHARE = 1_000_000_000, 0.25
"""Kernel matrices up to this size, and up to this share of the free memory, are kept between the two passes rather
than computed twice."""

Chunks = Callable[[], Iterable[Rows[Tensor]]]


class TitsiasObjective:
    """Value and gradient of Titsias' bound of a model (or of a relative of it) plus the log density of its priors.

    The sites are at their optimum over y_c and a full covariance. The search is over the kernel, the mean, the noise
    and the pseudo-inputs. The weights are solved for once, at the end (:func:`solve_coreset`): along the way
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
        self._work = chunk_work(len(model.X_c), num_rows)
        self._prior = PriorObjective(model)
        self.keep = 4 * num_rows * len(model.X_c) * 8 <= min(KEEP_BYTES, KEEP_SHARE * memory_left())

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
        with threads_for(self._work):
            return self._value_and_backward(scale)

    def _value_and_backward(self, scale: float) -> float:
        before = [p.grad for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        K_cc = self.model.jittered_covariance()
        L_inv = torch.empty_like(K_cc, requires_grad=False)
        kept: list[ChunkGraph] = []

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
            # Terms that are not sums over data are counted by one process.
            is_first = float(self.group.rank == 0)
            value, d_K_cc = is_first * solution.value, is_first * solution.d_K_cc
            total_Psi = torch.zeros_like(d_K_cc)
            for graph in kept if self.keep else self._graphs():
                gain, Psi = graph.backward(solution, L_inv)
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

    def _graphs(self) -> Iterator[ChunkGraph]:
        return (ChunkGraph(self.model, batch, tight=self.tight) for batch in self.chunks())


def chunk_work(size: int, num_rows: int) -> float:
    """Multiply-adds of an evaluation's products with one chunk of the rows, and of its M x M side."""
    return float(size) ** 2 * (6 * min(num_rows, CHUNK_ROWS) + 4 * size)


def searched_parameters(model: CVGP) -> list[Tensor]:
    """All parameters but those of the sites, which are solved for."""
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
def statistics_and_gain(
    model: CVGP, chunks: Iterable[Rows[Tensor]], group: Group = ALONE
) -> tuple[bounds.Statistics, float]:
    """:func:`statistics`, and the gain of the tighter bound over a bound made of them, from the same pass."""
    L_inv = bounds.whitener(model.jittered_covariance())
    found, gain = _no_statistics(model), torch.zeros((), dtype=torch.float64, device=model.y_c.device)
    for batch in chunks:
        graph = ChunkGraph(model, batch)
        found = found.merge(graph.gather(L_inv))
        gain += graph.tight_gain(L_inv)
    *sums, gain = group.sum([*found, gain])
    return bounds.Statistics(*sums), gain.item()


@torch.no_grad()
def titsias_value(model: CVGP, chunks: Iterable[Rows[Tensor]]) -> float:
    """The value of :class:`TitsiasObjective` without priors and gradient, from one pass."""
    L_inv = bounds.whitener(model.jittered_covariance())
    return bounds.solve_titsias(statistics(model, chunks), L_inv).value.item()


def solve_coreset(model: CVGP, chunks: Iterable[Rows[Tensor]], group: Group = ALONE) -> float:
    """Set the model's y_c and beta to their optimum, from one pass over the data; returns the bound in nats."""
    return model.adopt_optimum(statistics(model, chunks, group)).item()


@torch.no_grad()
def full_bound(
    model: CVGP,
    chunks: Iterable[Rows[Tensor]],
    num_rows: int,
    *,
    tight: bool = False,
    group: Group = ALONE,
) -> float:
    """The bound of the model as it is over all `num_rows` rows, in nats.

    Each chunk gives an estimate of it, scaled to all rows; their mean, weighted by size, counts the KL once.
    """
    bound: Callable[..., Tensor] = model.tight_elbo if tight else model.elbo
    estimates = (
        (len(b.x), bound(b.x, b.y, num_rows, sample_weight=b.sample_weight, noise_variance=b.noise_variance))
        for b in chunks
    )
    mine = sum(size * estimate.item() for size, estimate in estimates) / num_rows
    (total,) = group.sum([torch.tensor(mine, dtype=torch.float64, device=model.X_c.device)])
    return total.item()


def _no_statistics(model: CVGP) -> bounds.Statistics:
    """Statistics of no rows."""
    return bounds.Statistics.zeros(len(model.y_c), model.y_c[0].numel(), model.y_c.device)


class VecchiaObjective:
    """The sum over all rows of E_q log p(y_i | y_N, u), as a function of kernel, mean and noise.

    Parameters
    ----------
    model
        Its kernel, mean and noise receive the gradient. Its pseudo-inputs are used as they are.
    rows
        All rows, in the order that `neighbors` numbers.
    neighbors
        Neighbors of each row `[N, k]`, or -1: rows before it, or any others for a composite likelihood. They are those
        of some earlier kernel: any are valid.
    u
        The posterior of u, held fixed; None for a model without pseudo-inputs, in which neighbors explain all of f.
    """

    batch: Tensor
    """The rows of the present step [n], to be set before each evaluation: a uniform sample of all."""

    def __init__(self, model: CVGP, rows: Rows[Tensor], neighbors: Tensor, u: InducingPosterior | None = None) -> None:
        sites = ("X_c", "y_c", "raw_beta")
        self.parameters = [p for name, p in model.named_parameters() if name not in sites and p.requires_grad]
        self.model = model
        self.rows = rows
        self.neighbors = neighbors
        self.u = u

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the estimate; `scale` times its gradient is added to `grad` of the parameters."""
        model, local = self.model, local_rows(self.batch, self.neighbors[self.batch])
        rows = self.rows.take(local.touched)
        x = rows.x.to(torch.float64)
        data = order_rows(
            x,
            rows.y.to(torch.float64) - prior_mean(model.mean, x, rows.y),
            model.total_noise(rows.noise_variance),
            sample_weight=rows.sample_weight,
        )
        if self.u is None:
            points = no_points(model.kernel, x)
        else:
            points = whiten_points(model.kernel, model.X_c.detach(), model.jittered_covariance())
        u = inducing_prior(points, data.y.shape[1]) if self.u is None else self.u
        weight = scale * len(self.rows.x) / len(self.batch)
        value = weight * expected_log_density(points, data, local, u)
        value.backward()
        return value.item()
