"""CVGP as the paper trains it: Adam on the bound of minibatches, from k-means or from white noise."""

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

import cvgp
from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.errors import DivergenceError, InvalidInputError
from cvgp.gp.kernels import diagonal
from cvgp.objectives import full_bound
from experiments.paper.methods.base import CHUNK_ROWS, Array, Inducing, MinibatchBaseline, Start, random_start
from experiments.scores import Prediction

FLOAT32_LIMIT = 1e4
"""Largest max(w) k(x, x) for which float32 minibatches are accurate enough (docs: numerics)."""


class CVGP(MinibatchBaseline):
    """The coreset posterior (Ketenci et al. 2025), started from k-means clusters and their sizes.

    The closed-form coreset that this library can end a fit with is left out: what is compared is the same number of
    the same steps.
    """

    name = "CVGP"

    def _build(self, start: Start, source: MemorySource, dtype: torch.dtype) -> None:
        self.model = cvgp.CVGP(
            self._start(start, source).coreset,
            start.fresh_kernel(),
            likelihood=start.fresh_likelihood(),
            beta_transform="softplus",
        )
        self.model.kernel.requires_grad_(self.learn_prior)
        self.model.likelihood.requires_grad_(self.learn_prior)

    def _start(self, start: Start, source: MemorySource) -> Start:
        return start

    def _loss(self, batch: Rows[Tensor], num_rows: int) -> Tensor:
        try:
            return -self.model.elbo(batch.x, batch.y, num_rows) / num_rows
        except InvalidInputError as error:
            # The data have been checked, so it is parameters beyond the range of numbers that are refused here.
            raise DivergenceError(f"the parameters left the range of numbers: {error}") from error

    @torch.no_grad()
    def _check_precision(self) -> None:
        if self.dtype is torch.float64:
            return
        largest = (self.model.site_precision.max() * diagonal(self.model.kernel, self.model.X_c).max()).item()
        if largest > FLOAT32_LIMIT:
            raise DivergenceError(f"max(w) k(x, x) grew to {largest:.1e}, too much for float32 minibatches")

    @torch.no_grad()
    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """Mean, variance and, if `joint`, covariance of f, in float64."""
        process = self.model.process()
        points = torch.as_tensor(x)
        if joint:
            prediction = process(points)
            covariance = prediction.covariance_matrix.numpy()
            return Prediction(prediction.mean.numpy(), np.maximum(np.diagonal(covariance), 0.0), self.noise, covariance)
        parts = [process(chunk) for chunk in points.split(CHUNK_ROWS)]
        mean = torch.cat([part.mean for part in parts])
        return Prediction(mean.numpy(), torch.cat([part.variance for part in parts]).numpy(), self.noise)

    @torch.no_grad()
    def predict_mean(self, x: Array) -> Array:
        """K_xc alpha."""
        process = self.model.process()
        points = torch.as_tensor(x).to(self.dtype)
        return torch.cat([process(chunk).mean for chunk in points.split(CHUNK_ROWS)]).double().numpy()

    def bound(self) -> float:
        """The paper's lower bound over all training rows."""
        source = self.source
        return full_bound(self.model, source.chunks(CHUNK_ROWS), source.num_rows)

    def inducing(self) -> Inducing:
        """The coreset."""
        coreset = self.model.coreset
        return Inducing(coreset.X, coreset.y, coreset.beta)

    @torch.no_grad()
    def kl(self) -> float:
        """KL(q(f_c) || p(f_c))."""
        return self.model.kl().item()

    @property
    def noise(self) -> float:
        return self.model.noise.item()

    @property
    def prior_kernel(self) -> Kernel:
        return self.model.kernel

    def parameters(self) -> list[Tensor]:
        """X_c, y_c, beta, and kernel and noise if they are learned."""
        return [p for p in self.model.parameters() if p.requires_grad]


class RandomCVGP(CVGP):
    """The same, started from white noise for inputs and outputs and from equal weights."""

    name = "RandomCVGP"

    def _start(self, start: Start, source: MemorySource) -> Start:
        return random_start(start, source.data.x.numpy(), source.data.y.numpy(), self.seed)
