"""SVGP and PPGPR, through GPyTorch.

All have a free mean and a full Cholesky factor over whitened inducing values, learned inducing inputs, and
``num_data = N`` unless their name says otherwise. GPyTorch needs a jitter on K_zz, which it also adds to predictive
variances: 1e-4 in float32 (its own default), and in float64 the 1e-8 of our own bounds that factorize K_cc.
"""

from copy import deepcopy
from typing import Any, ClassVar

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import PredictiveLogLikelihood, VariationalELBO
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.errors import FactorizationError
from cvgp.gp.kernels import cross_matrix, square_matrix
from cvgp.gp.linalg import safe_cholesky
from experiments.paper.methods.base import CHUNK_ROWS, Array, Inducing, MinibatchBaseline, Start
from experiments.scores import Prediction

JITTER = {torch.float32: 1e-4, torch.float64: 1e-8}


class _InducingGP(ApproximateGP):  # type: ignore[misc]
    def __init__(self, inducing: Tensor, kernel: Kernel, jitter: float) -> None:
        # The variational mean starts at the prior's, zero, without GPyTorch's random disturbance.
        distribution = CholeskyVariationalDistribution(len(inducing), mean_init_std=0.0)
        strategy = VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True, jitter_val=jitter)
        super().__init__(strategy)
        self.mean = ZeroMean()
        self.kernel = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean(x), self.kernel(x))


class SVGP(MinibatchBaseline):
    """Stochastic variational inference with a free Gaussian over inducing values (Hensman et al. 2013)."""

    name = "SVGP"
    objective_class: ClassVar[Any] = VariationalELBO

    def _build(self, start: Start, source: MemorySource, dtype: torch.dtype) -> None:
        inducing = torch.tensor(start.coreset.X)
        self.model = _InducingGP(inducing, start.fresh_kernel(), JITTER[dtype]).to(dtype)
        self.likelihood: GaussianLikelihood = start.fresh_likelihood().to(dtype)
        self.model.kernel.requires_grad_(self.learn_prior)
        self.likelihood.requires_grad_(self.learn_prior)
        self.model.train()
        self.objective = self.objective_class(self.likelihood, self.model, num_data=self._num_data(source.num_rows))

    def _num_data(self, num_rows: int) -> int:
        return num_rows

    def _loss(self, batch: Rows[Tensor], num_rows: int) -> Tensor:
        try:
            loss: Tensor = -self.objective(self.model(batch.x), batch.y)
        except (NotPSDError, NanError) as failure:
            raise FactorizationError(str(failure)) from failure
        return loss

    def _evaluator(self) -> _InducingGP:
        """The model in float64, built anew: the trained one keeps parts of its last graph, which cannot be copied."""
        strategy = self.model.variational_strategy
        inducing = strategy.inducing_points.detach().double()
        copy: _InducingGP = _InducingGP(inducing, deepcopy(self.model.kernel), strategy.jitter_val).double().eval()
        copy.load_state_dict(self.model.state_dict())
        return copy

    @torch.no_grad()
    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """Mean, variance and, if `joint`, covariance of f, in float64."""
        model, points = self._evaluator(), torch.as_tensor(x)
        if joint:
            found = model(points)
            covariance = found.covariance_matrix.numpy()
            return Prediction(found.mean.numpy(), found.variance.numpy(), self.noise, covariance)
        parts = [model(chunk) for chunk in points.split(CHUNK_ROWS)]
        mean = torch.cat([part.mean for part in parts])
        return Prediction(mean.numpy(), torch.cat([part.variance for part in parts]).numpy(), self.noise)

    @torch.no_grad()
    def predict_mean(self, x: Array) -> Array:
        """K_xz L^-T m with L L^T = K_zz, since the inducing values are whitened."""
        strategy, kernel = self.model.variational_strategy, self.model.kernel
        inputs = strategy.inducing_points
        jitter = strategy.jitter_val * torch.eye(len(inputs), dtype=torch.float64)
        L = safe_cholesky(square_matrix(kernel, inputs).double() + jitter, "K_zz")
        m = strategy._variational_distribution.variational_mean.double()
        alpha = torch.linalg.solve_triangular(L.mT, m[:, None], upper=True)[:, 0].to(self.dtype)
        points = torch.as_tensor(x).to(self.dtype)
        parts = [cross_matrix(kernel, inputs, chunk).mT @ alpha for chunk in points.split(CHUNK_ROWS)]
        return torch.cat(parts).double().numpy()

    @torch.no_grad()
    def bound(self) -> float:
        """The objective over all training rows, with the KL counted once."""
        model, likelihood = self._evaluator(), deepcopy(self.likelihood).double()
        total = sum(self._fit_term(likelihood, model(b.x), b.y).item() for b in self.source.chunks(CHUNK_ROWS))
        return float(total) - self.kl()

    def _fit_term(self, likelihood: GaussianLikelihood, f: MultivariateNormal, y: Tensor) -> Tensor:
        value: Tensor = likelihood.expected_log_prob(y, f).sum()
        return value

    def inducing(self) -> Inducing:
        """Inducing inputs and the posterior mean there."""
        inputs = self.model.variational_strategy.inducing_points.detach().double().numpy()
        return Inducing(inputs, self.predict(inputs).mean, None)

    @torch.no_grad()
    def kl(self) -> float:
        """KL(q(f_Z) || p(f_Z))."""
        return float(self._evaluator().variational_strategy.kl_divergence().item())

    @property
    def noise(self) -> float:
        return float(self.likelihood.noise.item())

    @property
    def prior_kernel(self) -> Kernel:
        return self.model.kernel

    def parameters(self) -> list[Tensor]:
        """Inducing inputs, variational mean and factor, and kernel and noise if they are learned."""
        return [p for p in [*self.model.parameters(), *self.likelihood.parameters()] if p.requires_grad]


class SVGPBatchKL(SVGP):
    """SVGP with the batch size as its number of data, which weighs the KL N / B times too much.

    A handicapped baseline. It is our reading of the code published with the paper, and may explain the paper's figure.
    """

    name = "SVGP (KL per batch)"

    def _num_data(self, num_rows: int) -> int:
        return min(self.recipe.batch_size, num_rows)


class PPGPR(SVGP):
    """The parametric predictive GP regressor (Jankowiak et al. 2020), with a full Cholesky factor and a KL weight of 1.

    It maximizes the log density of the observations under the predictive distribution, minus the same KL, which is no
    lower bound on log p(y).
    """

    name = "PPGPR"
    is_bounded = False
    objective_class: ClassVar[Any] = PredictiveLogLikelihood

    def _fit_term(self, likelihood: GaussianLikelihood, f: MultivariateNormal, y: Tensor) -> Tensor:
        value: Tensor = likelihood.log_marginal(y, f).sum()
        return value
