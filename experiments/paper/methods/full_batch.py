"""The systems that see all data at once: the exact GP, and SparseGP (Titsias 2009)."""

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import cvgp
from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.gp import bounds
from cvgp.gp.kernels import cross_matrix, diagonal, evaluate, square_matrix
from cvgp.gp.linalg import safe_cholesky
from cvgp.gp.posterior import factorize, kl_divergence
from cvgp.objectives import TitsiasObjective, statistics
from experiments.divergences import kl_gaussian
from experiments.paper.methods.base import CHUNK_ROWS, Array, Baseline, Inducing, Start, train_full
from experiments.scores import Prediction

EXACT_ROWS = 12_000
"""Most training rows: an evaluation costs N^3 operations and holds four N x N matrices, 5 GB at this limit."""


class FullBatchBaseline(Baseline):
    """A system whose objective needs all rows at once, and whose posterior is solved for."""

    stochastic = False

    def _learn_in(self, dtype: torch.dtype, source: MemorySource, start: Start) -> None:
        self.dtype = dtype
        self._build(start, source, dtype)
        self._solved: tuple[list[Tensor], Any] | None = None
        if self.parameters():
            self.num_steps = train_full(
                self.parameters(),
                self._value_and_backward,
                self.recipe,
                num_rows=source.num_rows,
                validation_rmse=None if self._validation is None else self.validation_rmse,
                on_step=self._on_step,
            )
        self._return_to_float64()
        self._solved = None

    @abstractmethod
    def _value_and_backward(self, scale: float) -> float:
        """`scale` times the objective, and its gradient."""

    @abstractmethod
    def _solve(self) -> Any:
        """The posterior at the present parameters."""

    @abstractmethod
    def _return_to_float64(self) -> None:
        """Change to the precision in which everything is evaluated."""

    @torch.no_grad()
    def _solution(self) -> Any:
        """The posterior, solved for again only if a parameter has moved."""
        now = [p.detach().clone() for p in self.parameters()]
        if self._solved is None or not all(map(torch.equal, now, self._solved[0])):
            self._solved = now, self._solve()
        return self._solved[1]


class ExactGP(FullBatchBaseline):
    """Every observation, at O(N^3): the posterior that the others approximate."""

    name = "ExactGP"

    def _build(self, start: Start, source: MemorySource, dtype: torch.dtype) -> None:
        if source.num_rows > EXACT_ROWS:
            raise InvalidInputError(
                f"ExactGP runs up to {EXACT_ROWS} training rows; got {source.num_rows}. Use SparseGP, or fewer rows."
            )
        self._kernel, self._likelihood = start.fresh_kernel().to(dtype), start.fresh_likelihood().to(dtype)
        self._kernel.requires_grad_(self.learn_prior)
        self._likelihood.requires_grad_(self.learn_prior)
        self._rows = source.to(dtype).data

    def _return_to_float64(self) -> None:
        self._kernel, self._likelihood = self._kernel.double(), self._likelihood.double()
        self._rows = self.source.data

    def _value_and_backward(self, scale: float) -> float:
        """`scale` times log p(y), and its gradient without a graph through the factorization.

        The derivative of log p(y) by K is (alpha alpha^T - K^-1) / 2.
        """
        L, alpha = self._solution()
        gradient = 0.5 * scale * (alpha[:, None] * alpha - torch.cholesky_inverse(L))
        value = self._log_density(L, alpha)
        torch.autograd.backward(self._covariance(), gradient)
        return scale * value

    def _covariance(self) -> Tensor:
        x = self._rows.x
        noise: Tensor = self._likelihood.noise
        return cross_matrix(self._kernel, x, x) + noise * torch.eye(len(x), dtype=x.dtype)

    def _log_density(self, L: Tensor, alpha: Tensor) -> float:
        y = self._rows.y
        return -0.5 * (len(y) * math.log(2.0 * math.pi) + (y @ alpha).item()) - L.diagonal().log().sum().item()

    def _solve(self) -> tuple[Tensor, Tensor]:
        """L of K + noise, and alpha."""
        L = safe_cholesky(self._covariance(), "K + noise")
        return L, torch.cholesky_solve(self._rows.y[:, None], L)[:, 0]

    @torch.no_grad()
    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """The textbook equations."""
        L, alpha = self._solution()
        points = torch.as_tensor(x).to(self._rows.x.dtype)
        means, variances, roots = [], [], []
        for chunk in points.split(CHUNK_ROWS):
            K_nx = cross_matrix(self._kernel, self._rows.x, chunk)  # [N, B]
            V: Tensor = torch.linalg.solve_triangular(L, K_nx, upper=False)
            means.append(K_nx.mT @ alpha)
            variances.append(diagonal(self._kernel, chunk) - V.square().sum(0))
            roots.append(V if joint else V[:0])
        mean, f_var = torch.cat(means).numpy(), np.maximum(torch.cat(variances).numpy(), 0.0)
        if not joint:
            return Prediction(mean, f_var, self.noise)
        root = torch.cat(roots, dim=1)
        return Prediction(mean, f_var, self.noise, (evaluate(self._kernel, points, points) - root.mT @ root).numpy())

    @torch.no_grad()
    def predict_mean(self, x: Array) -> Array:
        """K_xn alpha."""
        _, alpha = self._solution()
        points = torch.as_tensor(x).to(self._rows.x.dtype)
        parts = [cross_matrix(self._kernel, self._rows.x, chunk).mT @ alpha for chunk in points.split(CHUNK_ROWS)]
        return torch.cat(parts).double().numpy()

    def bound(self) -> float:
        """Log p(y) itself."""
        L, alpha = self._solution()
        return self._log_density(L, alpha)

    def inducing(self) -> Inducing:
        """The data, each with a weight of one."""
        x, y = self.source.data.x.numpy(), self.source.data.y.numpy()
        return Inducing(x.copy(), y.copy(), np.ones(len(y)))

    @torch.no_grad()
    def kl(self) -> float:
        """KL(p(f | y) || p(f)) at the training inputs: that of the coreset which is the data."""
        x, y = self.source.data.x, self.source.data.y
        w = torch.full((len(y),), 1.0 / self.noise, dtype=torch.float64)
        return kl_divergence(factorize(square_matrix(self._kernel, x), w, y)).item()

    @property
    def noise(self) -> float:
        return float(self._likelihood.noise.item())

    @property
    def prior_kernel(self) -> Kernel:
        return self._kernel

    def parameters(self) -> list[Tensor]:
        """Kernel and noise."""
        return [p for p in [*self._kernel.parameters(), *self._likelihood.parameters()] if p.requires_grad]


class SparseGP(FullBatchBaseline):
    """Titsias' bound and its own predictive distribution.

    GPyTorch's SGPR has the same bound but predicts differently (a correction of the diagonal that moves the mean), so
    both come from cvgp's statistics, at the optimum over a full site covariance. Rows may be float32; M x M is float64.
    """

    name = "SparseGP"

    def _build(self, start: Start, source: MemorySource, dtype: torch.dtype) -> None:
        # Of the coreset model only the inputs, the kernel and the noise are used; the sites are solved for.
        self.model = cvgp.CVGP(start.coreset, start.fresh_kernel(), likelihood=start.fresh_likelihood())
        self.model.kernel.requires_grad_(self.learn_prior)
        self.model.likelihood.requires_grad_(self.learn_prior)
        self._rows = source.to(dtype)
        self.objective = TitsiasObjective(self.model, lambda: self._rows.chunks(CHUNK_ROWS), source.num_rows)

    def _value_and_backward(self, scale: float) -> float:
        return self.objective.value_and_backward(scale)

    def _return_to_float64(self) -> None:
        self._rows = self.source

    def _solve(self) -> bounds.TitsiasSolution:
        L_inv = bounds.whitener(self.model.jittered_covariance())
        return bounds.solve_titsias(statistics(self.model, self._rows.chunks(CHUNK_ROWS)), L_inv)

    @torch.no_grad()
    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """Mean K_zx^T alpha and covariance K - K_zx^T A K_zx with A = K_zz^-1 - (K_zz + Phi)^-1."""
        solution, kernel, points = self._solution(), self.model.kernel, torch.as_tensor(x)
        means, variances = [], []
        for chunk in points.split(CHUNK_ROWS):
            K_zx = cross_matrix(kernel, self.model.X_c, chunk)  # [M, B]
            means.append(K_zx.mT @ solution.alpha[:, 0])
            variances.append(diagonal(kernel, chunk) - (K_zx * (solution.A @ K_zx)).sum(0))
        mean, f_var = torch.cat(means).numpy(), np.maximum(torch.cat(variances).numpy(), 0.0)
        if not joint:
            return Prediction(mean, f_var, self.noise)
        K_zx = cross_matrix(kernel, self.model.X_c, points)
        covariance = evaluate(kernel, points, points) - K_zx.mT @ solution.A @ K_zx
        return Prediction(mean, f_var, self.noise, (0.5 * (covariance + covariance.mT)).numpy())

    @torch.no_grad()
    def predict_mean(self, x: Array) -> Array:
        """K_xz alpha."""
        alpha, points = self._solution().alpha[:, 0].to(self.dtype), torch.as_tensor(x).to(self.dtype)
        parts = [cross_matrix(self.model.kernel, self.model.X_c, c).mT @ alpha for c in points.split(CHUNK_ROWS)]
        return torch.cat(parts).double().numpy()

    def bound(self) -> float:
        """Titsias' bound."""
        value: float = self._solution().value.item()
        return value

    def inducing(self) -> Inducing:
        """Inducing inputs and the posterior mean there."""
        inputs = self.model.X_c.detach().numpy().copy()
        return Inducing(inputs, self.predict(inputs).mean, None)

    @torch.no_grad()
    def kl(self) -> float:
        """KL(q(f_Z) || p(f_Z)), of the whitened values L^-1 f_Z, whose prior is N(0, I)."""
        L_inv = bounds.whitener(self.model.jittered_covariance())
        found = statistics(self.model, self.source.chunks(CHUNK_ROWS))
        C = (found.Phi + torch.eye(len(L_inv), dtype=torch.float64)).numpy()
        S = np.linalg.inv(C)
        mean = S @ found.b[:, 0].numpy()
        return kl_gaussian(mean, 0.5 * (S + S.T), np.zeros_like(mean), np.eye(len(mean)))

    @property
    def noise(self) -> float:
        return self.model.noise.item()

    @property
    def prior_kernel(self) -> Kernel:
        return self.model.kernel

    def parameters(self) -> list[Tensor]:
        """Inducing inputs, and kernel and noise if they are learned."""
        return self.objective.parameters
