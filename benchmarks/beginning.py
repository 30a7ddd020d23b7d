"""The start of a fit as `CVGPRegressor` makes it, for what the estimator has no parameter for.

Two need it: another transform of the weights, and a peer that is to start where we start. A test keeps it equal to
the estimator's own.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from gpytorch.means import ZeroMean
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from cvgp import CVGP
from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.data.scaling import Scaling, learn_scaling
from cvgp.estimators.inputs import canonical
from cvgp.training.initialise import InitName
from cvgp.training.monitor import Watch
from cvgp.training.start import begin_model, starting_kernel

__all__ = ["Beginning", "BetaTransform", "begin"]

Array = NDArray[np.float64]
BetaTransform = Literal["log", "softplus"]


class Beginning(NamedTuple):
    """A model that is yet to be trained, and the data in its units."""

    model: CVGP
    source: MemorySource
    scaling: Scaling
    batch_seed: int


def begin(
    x: Array,
    y: Array,
    *,
    kernel: str,
    ard: bool,
    size: int,
    seed: int,
    watch: Watch,
    init: InitName = "kmeans",
    beta: BetaTransform = "log",
) -> Beginning:
    """The same steps with the same random numbers as the estimator's with `random_state=seed`."""
    rng = np.random.default_rng(check_random_state(seed).randint(2**31))
    batch_seed = int(rng.integers(2**31))
    rows = canonical(Rows(x, y[:, None], None, None))
    scaling = learn_scaling(rows.x, rows.y, rows.sample_weight)
    scaled_x, scaled_y = scaling.scale_x(rows.x), scaling.scale_y(rows.y)[:, 0]
    weight = None if rows.sample_weight is None else torch.as_tensor(rows.sample_weight)
    source = MemorySource(torch.as_tensor(scaled_x), torch.as_tensor(scaled_y), weight)
    prior = starting_kernel(kernel, x.shape[1], ard=ard)
    model = begin_model(source, prior, ZeroMean(), rng, watch, size=size, init=init, beta_transform=beta)
    return Beginning(model, source, scaling, batch_seed)
