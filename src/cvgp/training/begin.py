"""From data and choices to a model that is ready to be trained."""

from copy import deepcopy
from typing import Literal

import numpy as np
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, Mean, ZeroMean

from cvgp.coreset import Coreset
from cvgp.data.memory import MemorySource
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.initialise import InitName, initial_coreset
from cvgp.kernels import make_kernel
from cvgp.likelihoods import gaussian_likelihood
from cvgp.model import CVGP
from cvgp.training.size import choose_size, may_be_exact
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
    source: MemorySource,
    kernel: Kernel,
    mean: Mean,
    rng: np.random.Generator,
    watch: Watch,
    *,
    size: int | None,
    init: InitName | Coreset = "kmeans",
    beta_transform: Literal["log", "softplus"] = "log",
    exact_if_few: bool = False,
) -> CVGP:
    """Search a start for kernel and noise, choose the size of the coreset if it is None, and place its points.

    A coreset that is given as `init` is in the units of the source. With `exact_if_few`, a size that is left open is
    that of the data where they are few enough.
    """
    data = source.data
    start = search_start(kernel, mean, source, rng, watch)
    if isinstance(init, Coreset):
        coreset = init
    else:
        x, y = data.x.cpu().numpy(), data.y.cpu().numpy()
        if size is None and exact_if_few and init == "kmeans" and may_be_exact(len(x), watch.max_time):
            size = len(x)
        elif size is None:
            size = choose_size(start.kernel, start.noise, x, rng, watch.max_time)
        weight = None if data.sample_weight is None else data.sample_weight.cpu().numpy()
        if init == "kmeans" and size >= len(x):
            coreset = Coreset(x, y, np.ones(len(x)) if weight is None else weight)  # nothing to summarise
        else:
            coreset = initial_coreset(init, x, y, size, rng, sample_weight=weight, kernel=start.kernel)
    likelihood = gaussian_likelihood(start.noise)
    model = CVGP(coreset, start.kernel, mean=start.mean, likelihood=likelihood, beta_transform=beta_transform)
    model.to(data.x.device)
    raise_noise(model, source, rng)
    model.site_noise_offset.fill_(site_noise_offset(model.noise.item(), data.noise_variance))
    return model
