"""GPyTorch's SVGP, given every advantage that we give ourselves.

The whitened variational strategy with a full Cholesky factor, num_data = N, inducing inputs that are learned from the
k-means centres of our own coreset, kernel and noise from our own search for a start, and our Adam with its schedule,
batches and recovery. As its users do, it runs in float32, with GPyTorch's own jitter (1e-4 on K_zz and on predictive
variances) and noise floor (1e-4); where that breaks down for good, the whole fit is repeated in float64.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import VariationalELBO
from linear_operator.utils.errors import NanError, NotPSDError
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.beginning import begin
from benchmarks.peers.gpytorch_models import LEAST_START_NOISE, SVGP
from cvgp.data.arrays import MemorySource
from cvgp.errors import DivergenceError, FactorisationError
from cvgp.optim.adam import AdamState, minimise_adam, one_cycle
from cvgp.training.monitor import Watch

__all__ = ["LEARNING_RATES", "FittedSVGP", "svgp"]

Array = NDArray[np.float64]

LEARNING_RATES = (0.01, 0.03, 0.1)
BATCH_SIZE = 512
CHUNK_ROWS = 2048


class FittedSVGP:
    """Predictions of a trained SVGP; its data were standardised beforehand."""

    def __init__(self, model: SVGP, likelihood: GaussianLikelihood, num_iter: int) -> None:
        self.model = model.eval()
        self.likelihood = likelihood.eval()
        self.num_iter = num_iter
        self.noise = float(likelihood.noise.item())

    @torch.no_grad()
    def predict(self, x: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of y."""
        parts = [self.likelihood(self.model(chunk)) for chunk in self._chunks(x)]
        mean = torch.cat([part.mean for part in parts])
        sd = torch.cat([part.stddev for part in parts])
        return mean.double().numpy(), sd.double().numpy()

    def _chunks(self, x: Array) -> Iterator[Tensor]:
        rows = torch.as_tensor(x, dtype=self.likelihood.noise.dtype)
        return iter(rows.split(CHUNK_ROWS))


def svgp(
    size: int, seed: int, *, kernel: str, ard: bool, learning_rate: float, steps: int
) -> Callable[[Array, Array], FittedSVGP]:
    """An SVGP of `size` inducing points on standardised data."""

    def fit(x: Array, y: Array) -> FittedSVGP:
        try:
            return fit_in(torch.float32, x, y)
        except DivergenceError:
            return fit_in(torch.float64, x, y)

    def fit_in(dtype: torch.dtype, x: Array, y: Array) -> FittedSVGP:
        torch.manual_seed(seed)  # GPyTorch draws the first variational mean from torch's own generator
        first = begin(x, y, kernel=kernel, ard=ard, size=size, seed=seed, watch=Watch())
        ours = first.model
        source = MemorySource(torch.as_tensor(x), torch.as_tensor(y)).to(dtype)
        model = SVGP(ours.X_c.detach(), ours.kernel).to(dtype)
        likelihood = GaussianLikelihood().to(dtype)
        likelihood.noise = max(ours.noise.item(), LEAST_START_NOISE)
        objective = VariationalELBO(likelihood, model, num_data=source.num_rows)

        def loss_and_backward(step: int) -> float:
            batch = source.minibatch(step, BATCH_SIZE, first.batch_seed)
            try:
                loss: Tensor = -objective(model(batch.x), batch.y)
            except (NotPSDError, NanError) as failure:
                raise FactorisationError(str(failure)) from failure
            loss.backward()
            return loss.item()

        state = AdamState([*model.parameters(), *likelihood.parameters()], learning_rate)
        result = minimise_adam(state, loss_and_backward, max_steps=steps, schedule=one_cycle)
        return FittedSVGP(model, likelihood, result.num_iter)

    return fit
