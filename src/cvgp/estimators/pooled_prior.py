"""Kernel, mean and noise of a merged model: those of its parts where they agree, and otherwise a mean over rows."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from numpy.typing import NDArray
from torch.nn import Module
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from cvgp.data.rows import Array
from cvgp.data.scaling import TINY, Scaling
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.units import kernel_in_units
from cvgp.gp.kernels import prior_mean, square_matrix
from cvgp.training.merge import Noise

COMPARED_POINTS = 200
"""Priors are the same if they agree at this many points of the union."""
SAME = 1e-6


@torch.no_grad()
def same_prior(models: Sequence[CVGPRegressor]) -> bool:
    """Whether all kernels and means are the same functions in the units of the data, where the union has points."""
    points = np.concatenate([model.coreset_.X for model in models])
    points = points[:: -(-len(points) // COMPARED_POINTS)]

    def prior(model: CVGPRegressor) -> tuple[Array, Array]:
        scaling = model.gp_.scaling
        x = torch.as_tensor(scaling.scale_x(points), device=model.model_.X_c.device)
        K = as_array(square_matrix(model.model_.kernel, x))
        m = as_array(prior_mean(model.model_.mean, x, x.new_zeros(len(x)))).reshape(-1, 1)
        return K[:, :, None] * scaling.y_scale**2, scaling.unscale_y(np.broadcast_to(m, (len(x), 1)))

    K_first, m_first = prior(models[0])
    spread = np.sqrt(np.abs(K_first).max())
    return all(
        np.allclose(K, K_first, rtol=SAME, atol=SAME * spread**2)
        and np.allclose(m, m_first, rtol=0, atol=SAME * spread)
        for K, m in map(prior, models[1:])
    )


def mean_prior(
    models: Sequence[CVGPRegressor], scalings: Sequence[Scaling], rows: Array, scaling: Scaling
) -> tuple[Kernel, Mean]:
    """The largest model's kernel and mean, with the mean of the parameters of all models whose parts are of its kind.

    The mean is over rows. Parameters are averaged as they are learned, most of them as logarithms. `scalings` are those
    of the models, with the warps of `scaling`.
    """
    kernels, means = (
        [kernel_in_units(model.model_.kernel, own, scaling) for model, own in zip(models, scalings, strict=True)],
        [deepcopy(model.model_.mean) for model in models],
    )
    _fill_unlearned(kernels, np.stack([own.varies for own in scalings]), rows)
    return _average(kernels, rows), _average(means, rows)


@torch.no_grad()
def _fill_unlearned(kernels: Sequence[Kernel], varies: NDArray[np.bool_], rows: Array) -> None:
    """Where a column is constant in a shard, its lengthscale is not learned there: give it the mean of the others'."""
    if varies.all():
        return
    largest = kernels[int(rows.argmax())]
    alike = [i for i, kernel in enumerate(kernels) if _kind(kernel) == _kind(largest)]
    learned = torch.as_tensor(varies[alike])  # [K, D]
    share = learned * torch.as_tensor(rows[alike])[:, None]
    share = share / share.sum(0).clamp_min(TINY)
    for parts in zip(*(kernels[i].modules() for i in alike), strict=True):
        if not (isinstance(parts[0], Kernel) and parts[0].has_lengthscale and parts[0].ard_num_dims == varies.shape[1]):
            continue
        logs = torch.stack([part.lengthscale.log().reshape(-1) for part in parts])  # [K, D]
        filled = torch.where(learned | ~learned.any(0), logs, (share * logs).sum(0))
        for part, values in zip(parts, filled, strict=True):
            part.lengthscale = values.exp().reshape(part.lengthscale.shape)


def _average(parts: Sequence[Module], rows: Array) -> Module:
    result = parts[int(rows.argmax())].cpu()
    if not list(result.parameters()):  # such as a mean of zero
        return result
    alike = [i for i, part in enumerate(parts) if _kind(part) == _kind(result)]
    share = rows[alike] / rows[alike].sum()
    vectors = torch.stack([parameters_to_vector(parts[i].cpu().parameters()) for i in alike])  # [K, n]
    with torch.no_grad():
        vector_to_parameters(torch.as_tensor(share, dtype=vectors.dtype) @ vectors, result.parameters())
    return result


def _kind(part: Module) -> tuple[list[Any], list[Any], list[Any]]:
    """What two parts must share for a mean of their raw parameters: classes, shapes and bounds."""
    classes = [(name, type(module)) for name, module in part.named_modules()]
    shapes = [(name, tuple(parameter.shape)) for name, parameter in part.named_parameters()]
    bounds = [(name, bound.tolist()) for name, bound in part.named_buffers() if name.endswith("_bound")]
    return classes, shapes, bounds


def mean_noise(models: Sequence[CVGPRegressor], rows: Array, scaling: Scaling) -> Noise:
    """The mean over rows of the models' noise, which their coresets do not contain."""
    ratios = np.array([np.mean((model.gp_.scaling.y_scale / scaling.y_scale) ** 2) for model in models])
    constants = [model.model_.noise if model.gp_.noise is None else model.gp_.noise.constant for model in models]
    learned = np.array([constant.item() for constant in constants])
    offsets = np.array([model.model_.site_noise.item() for model in models]) - learned
    share = ratios * rows / rows.sum()
    return Noise(float(share @ learned), float(share @ offsets))


def as_array(tensor: torch.Tensor) -> Array:
    """A tensor as a float64 array."""
    return tensor.detach().to("cpu", torch.float64).numpy()
