"""Candidates for a start, and the race among them."""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from torch import Tensor

from cvgp.errors import FactorisationError
from cvgp.gp.hyperparameters import hold_noise
from cvgp.gp.kernels import NOISE_FLOOR, gaussian_likelihood
from cvgp.host import kept_warnings
from cvgp.training.monitor import Watch


class Start(NamedTuple):
    """Kernel, mean and noise to begin with."""

    kernel: Kernel
    mean: Mean
    noise: float
    density: float
    """Mean log density of rows that the start has not seen, in nats per row."""
    densities: Tensor | None = None
    """Of each of these rows."""
    evidence: float = -math.inf
    """The exact log marginal likelihood of the rows that the start has learned from, in nats."""
    for_all_rows: bool = False
    """Whether every row is to be a point."""
    noise_floor: float = NOISE_FLOOR
    """The smallest noise variance that may be learned."""
    noise_is_known: bool = False
    """Whether the noise is given rather than learned."""
    typical_noise: float | None = None
    """The noise variance that it is held around, where rows are few for so many columns."""
    by_rows: "Start | None" = None
    """What the exact likelihood of some rows learned, where it is another start."""

    def likelihood(self) -> GaussianLikelihood:
        """The noise as a part of a model."""
        likelihood = gaussian_likelihood(self.noise, self.noise_floor)
        likelihood.raw_noise.requires_grad_(not self.noise_is_known)
        if self.typical_noise is not None:
            hold_noise(likelihood, torch.tensor(self.typical_noise, dtype=torch.float64).sqrt())
        return likelihood


def best_of(attempts: Iterable[Callable[[], Start]], watch: Watch) -> Start | None:
    """The start with the best density; after the first, none is tried for which there is no time."""
    found: list[Start] = []
    for attempt in attempts:
        if found and not watch.has_time:
            break
        # A start that cannot be evaluated loses to the others; what it had to say of its factorisations is not kept.
        with kept_warnings(), suppress(FactorisationError, FloatingPointError):
            found.append(attempt())
    return max(found, key=lambda start: start.density, default=None)
