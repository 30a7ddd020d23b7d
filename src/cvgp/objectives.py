"""Objectives of the optimizers: a bound on log p(y) plus the log density of the model's priors, with the gradient.

Over all data Titsias' bound takes two passes over chunks: one adds up statistics, the other sends the data-side
derivatives back through the kernel. With a group of processes, each pass ends in a sum.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple, Protocol

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ZeroMean
from torch import Tensor, nn

from cvgp.data.rows import Rows
from cvgp.errors import DivergenceError
from cvgp.gp import bounds
from cvgp.gp.kernels import (
    cross_matrix,
    diagonal,
    log_density,
    prior_mean,
    registered_priors,
    square_matrix,
    stationary_form,
)
from cvgp.gp.linalg import backward_from
from cvgp.gp.model import CVGP
from cvgp.gp.stationary import Family, StationaryKernel, covariance_at, place, pull_back_both
from cvgp.gp.vecchia import conditional_log_density, local_rows, order_rows
from cvgp.parallel.group import ALONE, Group, sum_of
from cvgp.runtime import memory_left, threads_for


class Objective(Protocol):
    """A bound on all data in nats, plus the log density of priors, as a function of some parameters."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """The parameters that receive the gradient."""

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""


class PriorObjective:
    """log p of kernel, mean and noise under the priors that are registered on them; zero without any."""

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
    """log p(y) of all rows as a function of kernel, mean and noise; the coreset is not looked at."""

    def __init__(self, model: CVGP, rows: Rows[Tensor]) -> None:
        self.model = model
        self.rows = rows
        self._prior = PriorObjective(model)
        self.parameters = _learned(model, "X_c", "y_c", "raw_beta")

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
        """Add this chunk's part of the gradient; returns the gain of the tight bound, and its Psi if there is one."""
        precision, gain, Psi = self.weighting.precision, torch.zeros_like(solution.value), None
        with torch.no_grad():
            rows = self.k_xx, self.residual, precision
            if self.tight:
                gain, gradient, Psi = bounds.tight_data_gradient(solution, L_inv, self.whitened(L_inv), *rows)
            else:
                gradient = bounds.data_gradient(solution.alpha, solution.A, self.K_cx, *rows)
        outputs = [self.K_cx, self.k_xx, self.residual, precision, self.weighting.log_normalizer]
        backward_from(outputs, [*gradient, torch.full_like(gain, self.residual.shape[1])])
        return gain, Psi


CHUNK_ROWS = 2048  # rows of one chunk of a full pass: large enough for fast products, small enough for the cache
KEEP_BYTES, KEEP_SHARE = 1_000_000_000, 0.25  # of kernel matrices kept between passes: most, and share of free memory

Chunks = Callable[[], Iterable[Rows[Tensor]]]


class TitsiasObjective:
    """Titsias' bound of a model, or the tighter one, with the sites at their optimum over y_c and a full covariance.

    `chunks` gives the same chunks of this process's `num_rows` rows each time that it is called.
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
        self.model, self.chunks, self.tight, self.group = model, chunks, tight, group
        self.parameters = searched_parameters(model) if parameters is None else list(parameters)
        self._work = chunk_work(len(model.X_c), num_rows)
        self._prior = PriorObjective(model)
        self.keep = 4 * num_rows * len(model.X_c) * 8 <= min(KEEP_BYTES, KEEP_SHARE * memory_left())

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
        with threads_for(self._work):
            return self._value_and_backward(scale)

    def _value_and_backward(self, scale: float) -> float:
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

        def backward() -> Tensor:
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
            return value + (self._prior.value_and_backward() if self.group.rank == 0 else 0.0)

        return summed_backward(self.group, self.parameters, backward, scale)

    def _graphs(self) -> Iterator[ChunkGraph]:
        return (ChunkGraph(self.model, batch, tight=self.tight) for batch in self.chunks())


def summed_backward(group: Group, parameters: Sequence[Tensor], backward: Callable[[], Tensor], scale: float) -> float:
    """`scale` times the sum over processes of what `backward` returns, and the same of the gradients that it adds."""
    before = [p.grad for p in parameters]
    for p in parameters:
        p.grad = None

    def local() -> list[Tensor]:
        value = backward()
        return [value, *(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters)]

    value, *gradients = sum_of(group, local, [torch.zeros(()), *parameters])
    for p, gradient, old in zip(parameters, gradients, before, strict=True):
        scaled = gradient.to(p.dtype).mul_(scale)
        p.grad = scaled if old is None else old.add_(scaled)
    return scale * value.item()


def chunk_work(size: int, num_rows: int) -> float:
    """Multiply-adds of an evaluation's products with one chunk of the rows, and of its M x M side."""
    return float(size) ** 2 * (6 * min(num_rows, CHUNK_ROWS) + 4 * size)


def searched_parameters(model: CVGP) -> list[Tensor]:
    """All parameters but those of the sites, which are solved for."""
    return _learned(model, "y_c", "raw_beta")


def _learned(model: CVGP, *solved_for: str) -> list[Tensor]:
    return [p for name, p in model.named_parameters() if name not in solved_for and p.requires_grad]


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
    model: CVGP, chunks: Iterable[Rows[Tensor]], num_rows: int, *, tight: bool = False, group: Group = ALONE
) -> float:
    """The bound of the model as it is over all `num_rows` rows, in nats: the mean of its estimates from chunks."""
    bound: Callable[..., Tensor] = model.tight_elbo if tight else model.elbo
    estimates = (
        (len(b.x), bound(b.x, b.y, num_rows, sample_weight=b.sample_weight, noise_variance=b.noise_variance))
        for b in chunks
    )
    mine = sum(size * estimate.item() for size, estimate in estimates) / num_rows
    (total,) = group.sum([torch.tensor(mine, dtype=torch.float64, device=model.X_c.device)])
    return total.item()


def _no_statistics(model: CVGP) -> bounds.Statistics:
    return bounds.Statistics.zeros(len(model.y_c), model.y_c[0].numel(), model.y_c.device)


class VecchiaObjective:
    """The sum over all rows of log p(y_i | y_N), as a function of kernel, mean and noise.

    `neighbors` [N, k] are earlier rows, or any others for a composite likelihood, or -1.
    """

    batch: Tensor  # the rows of the present step [n], to be set before each evaluation

    def __init__(self, model: CVGP, rows: Rows[Tensor], neighbors: Tensor) -> None:
        self.parameters = _learned(model, "X_c", "y_c", "raw_beta")
        self.model, self.rows, self.neighbors = model, rows, neighbors

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
        value = scale * len(self.rows.x) / len(self.batch) * conditional_log_density(model.kernel, data, local)
        value.backward()
        return value.item()


class MinibatchObjective:
    """The bound on `num_data` rows (or on their total weight), estimated from the rows of one step."""

    rows: Rows[Tensor]  # the rows of the present step, to be set before each evaluation

    def __init__(self, model: CVGP, num_data: float, *, tight: bool = False, known_noise: bool = False) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.num_data = num_data
        self._size = len(model.X_c)
        self._prior = PriorObjective(model)
        self._direct = None if tight or known_noise else direct_elbo(model)
        self._bound: Callable[..., Tensor] = model.tight_elbo if tight else model.elbo

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the estimate; `scale` times its gradient is added to `grad` of the parameters."""
        rows, prior = self.rows, self._prior.value_and_backward(scale)
        with threads_for(self._size**2 * (3 * len(rows.x) + 2 * self._size)):
            if self._direct is None:
                bound = scale * self._bound(rows.x, rows.y, self.num_data, noise_variance=rows.noise_variance)
                bound.backward()
                return bound.item() + prior
            value, gradients = self._direct.value_and_gradients(rows, self.num_data)
        with torch.no_grad():
            for parameter, gradient in gradients:
                if parameter.requires_grad:
                    if parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
                    parameter.grad.add_(gradient, alpha=scale)
        return scale * value + prior


class DirectElbo(NamedTuple):
    """The bound as a function of a model's own parameters."""

    family: Family
    log_lengthscale: Tensor  # [1, D] or [1, 1]
    log_outputscale: Tensor  # []
    log_noise: Tensor  # [1], of what is above the floor
    noise_floor: float
    X_c: Tensor  # [M, D]
    y_c: Tensor  # [M]
    log_beta: Tensor  # [M]

    # Tensors that autograd need not know of cost less to make: a seventh of a step with 50 points.
    @torch.inference_mode()
    def value_and_gradients(
        self, batch: Rows[Tensor], num_data: float
    ) -> tuple[float, tuple[tuple[Tensor, Tensor | float], ...]]:
        """``model.elbo`` of plain rows, without weights or noise of their own, and each parameter with its gradient."""
        x, y = batch.x, batch.y
        above_floor = self.log_noise.exp().item()
        noise = above_floor + self.noise_floor
        if not 0.0 < noise < math.inf:
            raise DivergenceError(f"the noise variance has become {noise}")
        inverse_lengthscale = self.log_lengthscale.neg().exp_()[0]  # [D] or [1]
        outputscale = self.log_outputscale.exp()
        w = (self.log_beta - math.log(noise)).exp_()  # [M]
        precision = y.new_full(y.shape, num_data / (len(y) * noise))  # [B]
        log_normalizer = -0.5 * num_data * math.log(2.0 * math.pi * noise)

        kernel = StationaryKernel(self.family, inverse_lengthscale, outputscale, shape=outputscale)
        placed = place(kernel, self.X_c, torch.float64)
        among, across = covariance_at(placed, None), covariance_at(placed.to(x.dtype), x)
        k_xx = outputscale.to(x.dtype).expand(len(x))
        fit_minus_kl, d = bounds.elbo_with_gradient(
            among.K, across.K, k_xx, y[:, None], self.y_c[:, None], w, precision
        )
        d_X_c, d_log_lengthscale = pull_back_both(kernel, among, d.K_cc, across, d.K_cx)
        if len(inverse_lengthscale) == 1:
            d_log_lengthscale = d_log_lengthscale.sum()

        d_all_weights = d.log_w.sum().item()
        # The noise s enters the precisions N / (B s), -N/2 log s and w = beta / s.
        d_log_noise = 0.5 * (precision @ d.misfit).item() - 0.5 * num_data - d_all_weights
        # Multiply the outputscale by c and divide the weights by c: the mean stays as it is, the variances of f are
        # multiplied by c, and the squared norm of the mean is divided by c.
        d_log_outputscale = d_all_weights + 0.5 * (d.squared_norm - (precision @ d.f_var).item())
        return fit_minus_kl + log_normalizer, (
            (self.log_lengthscale, d_log_lengthscale),
            (self.log_outputscale, d_log_outputscale),
            (self.log_noise, d_log_noise * above_floor / noise),
            (self.X_c, d_X_c),
            (self.y_c, d.y_c[:, 0]),
            (self.log_beta, d.log_w),
        )


def direct_elbo(model: CVGP) -> DirectElbo | None:
    """The model's bound in its direct form, or None where it has to go through autograd."""
    kernel = model.kernel
    form = stationary_form(kernel, model.X_c.shape[1])
    noise = model.likelihood.noise_covar
    if form is None or form.family.shape_slope is not None or type(kernel) is not ScaleKernel:
        return None
    base = kernel.base_kernel
    logarithms = (
        _floor_of_logarithm(base, "raw_lengthscale_constraint") == 0.0
        and _floor_of_logarithm(kernel, "raw_outputscale_constraint") == 0.0
        and model.beta_transform == "log"
    )
    floor = _floor_of_logarithm(noise, "raw_noise_constraint")
    tensors = (base.raw_lengthscale, kernel.raw_outputscale, noise.raw_noise, model.X_c, model.y_c, model.raw_beta)
    all_float64 = all(t.dtype == torch.float64 for t in tensors)
    if not (logarithms and all_float64 and type(model.mean) is ZeroMean and model.y_c.ndim == 1) or floor is None:
        return None
    return DirectElbo(form.family, *tensors[:3], floor, *tensors[3:])


def _floor_of_logarithm(module: nn.Module, name: str) -> float | None:
    """The lower bound of a constraint whose raw parameter is a logarithm; None for another constraint."""
    constraint = getattr(module, name, None)
    if not isinstance(constraint, GreaterThan) or constraint._transform is not torch.exp:
        return None
    return float(constraint.lower_bound)
