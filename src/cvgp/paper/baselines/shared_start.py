"""Where every system starts: the same k-means centres, kernel and noise."""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ZeroMean
from numpy.typing import NDArray

from cvgp.coreset import Coreset
from cvgp.data.arrays import MemorySource
from cvgp.training.initialise import initial_coreset
from cvgp.training.monitor import Watch
from cvgp.training.start import begin_model, starting_kernel

Array = NDArray[np.float64]


class Start(NamedTuple):
    """A kernel, a noise variance and a coreset, of which inducing-point methods use the inputs."""

    kernel: Kernel
    noise: float
    coreset: Coreset

    def fresh_kernel(self) -> Kernel:
        """A copy of the kernel that may be trained."""
        return deepcopy(self.kernel)


def common_start(
    x: Array, y: Array, size: int, *, kernel: str | Kernel = "rbf", ard: bool = False, seed: int = 0
) -> Start:
    """K-means centres, and kernel and noise from a short search on a subset; the same seed gives the same start."""
    source = MemorySource(torch.as_tensor(x), torch.as_tensor(y))
    prior = starting_kernel(kernel, x.shape[1], ard=ard)
    model = begin_model(source, prior, ZeroMean(), np.random.default_rng(seed), Watch(), size=size)
    return Start(model.kernel.requires_grad_(True), model.noise.item(), model.coreset)


def plain_start(x: Array, y: Array, size: int) -> Start:
    """Some of the rows and a typical kernel, at no cost: for measuring steps, not for learning."""
    rows = np.random.default_rng(0).permutation(len(y))[:size]
    coreset = Coreset(x[rows], y[rows], np.full(len(rows), len(y) / len(rows)))
    return Start(starting_kernel("rbf", x.shape[1], ard=False), 0.1, coreset)


def random_start(start: Start, x: Array, y: Array, seed: int) -> Start:
    """The same kernel and noise with white noise in place of the centres and their outputs (the paper's RandomCVGP)."""
    rng = np.random.default_rng([seed, 1])
    return start._replace(coreset=initial_coreset("random", x, y, len(start.coreset), rng))
