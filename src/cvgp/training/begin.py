"""From data and choices to a model that is ready to be trained."""

from copy import deepcopy
from typing import Literal

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean, ZeroMean

from cvgp.coreset import Coreset
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.initialise import InitName, initial_coreset, rows_to_see
from cvgp.kernels import make_kernel
from cvgp.likelihoods import gaussian_likelihood
from cvgp.model import CVGP
from cvgp.training.size import choose_size
from cvgp.training.start import raise_noise, search_start, site_noise_offset, typical_lengthscale
from cvgp.training.watch import Watch

__all__ = ["DEFAULT_KERNEL", "begin_model", "starting_kernel", "starting_mean"]

DEFAULT_KERNEL = "matern32"


def starting_kernel(kernel: str | Kernel | None, num_dims: int, *, ard: bool) -> Kernel:
    """A kernel by name at a typical lengthscale, or a copy of the given one; float64."""
    if isinstance(kernel, Kernel):
        return deepcopy(kernel).double()
    if kernel is not None and not isinstance(kernel, str):
        raise InvalidTypeError(f"kernel must be a name, a GPyTorch kernel or None; got {type(kernel).__name__}.")
    made = make_kernel(kernel or DEFAULT_KERNEL, num_dims, ard=ard)
    for part in made.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = typical_lengthscale(num_dims)
    return made


def starting_mean(mean: str | Mean) -> Mean:
    """A mean by name, or a copy of the given one; float64."""
    if isinstance(mean, Mean):
        return deepcopy(mean).double()
    if mean not in ("zero", "constant"):
        raise InvalidInputError(f"mean must be 'zero', 'constant' or a GPyTorch mean; got {mean!r}.")
    return ConstantMean().double() if mean == "constant" else ZeroMean()


def begin_model(
    source: DataSource,
    kernel: Kernel,
    mean: Mean,
    rng: np.random.Generator,
    watch: Watch,
    *,
    size: int | None,
    init: InitName | Coreset = "kmeans",
    beta_transform: Literal["log", "softplus"] = "log",
) -> CVGP:
    """Search a start for kernel and noise, choose the size of the coreset if it is None, and place its points.

    A coreset that is given as `init` is in the units of the source.
    """
    start = search_start(kernel, mean, source, rng, watch)
    if isinstance(init, Coreset):
        coreset = init
    else:
        if size is None:
            size = choose_size(start.kernel, start.noise, source, rng, watch.max_time)
        coreset = _place_coreset(init, source, size, start.kernel, rng)
    likelihood = gaussian_likelihood(start.noise)
    model = CVGP(coreset, start.kernel, mean=start.mean, likelihood=likelihood, beta_transform=beta_transform)
    model.to(source.device)
    raise_noise(model, source, rng)
    model.site_noise_offset.fill_(site_noise_offset(model.noise.item(), source))
    return model


def _place_coreset(
    method: InitName, source: DataSource, size: int, kernel: Kernel, rng: np.random.Generator
) -> Coreset:
    # White noise asks the data only for the number of their columns, which any rows tell.
    rows = next(iter(source.chunks(size))) if method == "random" else source.sample(rows_to_see(size), rng)
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().numpy()
    x, y = rows.x.cpu().numpy(), rows.y.cpu().numpy()
    return initial_coreset(
        method, x, y, size, rng, sample_weight=weight, total_weight=source.total_weight, kernel=kernel
    )
