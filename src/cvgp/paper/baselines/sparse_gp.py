"""SparseGP (Titsias 2009): the best Gaussian over inducing values in closed form, from one pass over the data."""

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import cvgp
from cvgp.data.arrays import MemorySource
from cvgp.gp import bounds
from cvgp.gp.kernels import cross_matrix, diagonal, evaluate, gaussian_likelihood
from cvgp.metrics import kl_gaussian
from cvgp.objectives.full_batch import TitsiasObjective, statistics
from cvgp.paper.baselines.loops import train_full
from cvgp.paper.baselines.method import CHUNK_ROWS, Array, Baseline, Inducing, Prediction
from cvgp.paper.baselines.shared_start import Start


class SparseGP(Baseline):
    """Titsias' bound and its own predictive distribution.

    GPyTorch's SGPR has the same bound but predicts differently (a correction of the diagonal that moves the mean), so
    both come from cvgp's statistics, at the optimum over a full site covariance.
    """

    name = "SparseGP"
    stochastic = False

    def _learn(self, source: MemorySource, start: Start) -> None:
        self.dtype = torch.float64
        likelihood = gaussian_likelihood(start.noise)
        # Of the coreset model only the inputs, the kernel and the noise are used; the sites are solved for.
        self.model = cvgp.CVGP(start.coreset, start.fresh_kernel(), likelihood=likelihood)
        self.model.kernel.requires_grad_(self.learn_prior)
        self.model.likelihood.requires_grad_(self.learn_prior)
        self.objective = TitsiasObjective(self.model, lambda: source.chunks(CHUNK_ROWS), source.num_rows)
        self._solved: bounds.TitsiasSolution | None = None

        def value_and_backward(scale: float) -> float:
            self._solved = None
            return self.objective.value_and_backward(scale)

        self.num_steps = train_full(
            self.parameters(),
            value_and_backward,
            self.recipe,
            num_rows=source.num_rows,
            validation_rmse=None if self._validation is None else self._fresh_validation_rmse,
            on_step=self._on_step,
        )
        self._solved = None

    def _fresh_validation_rmse(self) -> float:
        self._solved = None  # a step has moved the parameters since
        return self.validation_rmse()

    @torch.no_grad()
    def _solution(self) -> bounds.TitsiasSolution:
        if self._solved is None:
            L_inv = bounds.whitener(self.model.jittered_covariance())
            self._solved = bounds.solve_titsias(statistics(self.model, self.source.chunks(CHUNK_ROWS)), L_inv)
        return self._solved

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

    def bound(self) -> float:
        """Titsias' bound."""
        return self._solution().value.item()

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
        """Noise variance."""
        return self.model.noise.item()

    @property
    def prior_kernel(self) -> Kernel:
        """The kernel as learned."""
        return self.model.kernel

    def parameters(self) -> list[Tensor]:
        """Inducing inputs, and kernel and noise if they are learned."""
        return self.objective.parameters
