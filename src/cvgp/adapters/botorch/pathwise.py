"""Function draws by BoTorch's `draw_matheron_paths`: what it has to know of points with precisions (§2.3).

BoTorch draws from the prior by features of the kernel. The update that makes posterior draws of them is that of
:func:`cvgp.gp.posterior.pathwise_weights`, which divides by no precision.
"""

from types import NoneType
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.sampling.pathwise.features import KernelEvaluationMap
from botorch.sampling.pathwise.paths import GeneralizedLinearPath
from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath
from botorch.sampling.pathwise.prior_samplers import (
    DrawKernelFeaturePaths,
    TPathwisePriorSampler,
    _draw_kernel_feature_paths_fallback,
)
from botorch.sampling.pathwise.update_strategies import GaussianUpdate, TPathwiseUpdate
from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
from botorch.utils.context_managers import delattr_ctx
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.models import ApproximateGP
from torch import Tensor

from cvgp.adapters.botorch.coreset_model import CVGPModel
from cvgp.adapters.botorch.module_outputs import for_outputs
from cvgp.adapters.gpytorch import CoresetVariationalStrategy
from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import square_matrix
from cvgp.gp.posterior import factorise, pathwise_weights


@torch.no_grad()
def update_weights(kernel: Kernel, X_c: Tensor, y_c: Tensor, w: Tensor, f_c: Tensor) -> Tensor:
    """Weights [..., M] of k(., X_c) that turn draws of the prior, with the values f_c [..., M], into posterior ones."""
    factor = factorise(square_matrix(kernel, X_c), w, y_c)
    draws = f_c.reshape(-1, f_c.shape[-1])
    site_noise = torch.randn(draws.shape, dtype=torch.float64, device=draws.device)
    return pathwise_weights(factor, draws, site_noise).reshape(f_c.shape).to(f_c)


def draw_paths(
    model: CVGPModel,
    *,
    sample_shape: torch.Size,
    prior_sampler: TPathwisePriorSampler,
    update_strategy: TPathwiseUpdate,
) -> MatheronPath:
    """Functions of the posterior, in the units of the data."""
    with delattr_ctx(model, "outcome_transform"):
        prior_paths = prior_sampler(model=model, sample_shape=sample_shape)
        sample_values = prior_paths.forward(model.X_c)  # which bypasses the transforms of the path
        update = update_strategy(model=model, sample_values=sample_values)
    return MatheronPath(prior_paths, update, output_transform=get_output_transform(model))


def draw_prior_paths(model: CVGPModel, *, sample_shape: torch.Size, **kwargs: Any) -> GeneralizedLinearPath:
    """Functions of the prior."""
    if model.batch_shape:
        raise InvalidInputError(
            f"Paths are drawn of one model, and this is a batch of {list(model.batch_shape)}, such as fantasies make."
        )
    if model.num_outputs > 1 and not model.covar_module.batch_shape:
        sample_shape = torch.Size([*sample_shape, model.num_outputs])  # outputs that share a kernel are independent
    return _draw_kernel_feature_paths_fallback(
        num_inputs=model.X_c.shape[-1],
        mean_module=model.mean_module,
        covar_module=model.covar_module,
        sample_shape=sample_shape,
        input_transform=get_input_transform(model),
        output_transform=get_output_transform(model),
        **kwargs,
    )


def update_paths(
    model: CVGPModel, likelihood: Likelihood | None, *, sample_values: Tensor, **ignored: Any
) -> GeneralizedLinearPath:
    """What turns functions of the prior, with these values at the points, into functions of the posterior."""
    m = model.num_outputs
    if m == 1:
        columns = (model.y_c[:, 0], model.precision[:, 0])
        weight = update_weights(model.covar_module, model.X_c, *columns, sample_values)
    else:
        parts = []
        for output in range(m):
            kernel = for_outputs(model.covar_module, [output], m)
            w = model.precision[:, min(output, model.precision.shape[-1] - 1)]
            parts.append(update_weights(kernel, model.X_c, model.y_c[:, output], w, sample_values[..., output, :]))
        weight = torch.stack(parts, dim=-2)
    features = KernelEvaluationMap(model.covar_module, model.X_c, input_transform=get_input_transform(model))
    return GeneralizedLinearPath(feature_map=features, weight=weight)


def update_strategy_paths(
    model: ApproximateGP,
    strategy: CoresetVariationalStrategy,
    *,
    sample_values: Tensor,
    input_transform: InputTransform | None = None,
    **ignored: Any,
) -> GeneralizedLinearPath:
    """The same for the strategy inside a variational model, such as BoTorch's `SingleTaskVariationalGP`."""
    strategy.start_sites()
    X_c, y_c = strategy.inducing_points.detach(), strategy._variational_distribution.pseudo_targets.detach()
    if y_c.ndim > 1:
        raise InvalidInputError(f"Paths are drawn of one process, and this is a batch of {list(y_c.shape[:-1])}.")
    weight = update_weights(model.covar_module, X_c, y_c, strategy.site_precision.detach(), sample_values)
    features = KernelEvaluationMap(model.covar_module, X_c, input_transform=input_transform)
    return GeneralizedLinearPath(feature_map=features, weight=weight)


DrawMatheronPaths.register(CVGPModel)(draw_paths)
DrawKernelFeaturePaths.register(CVGPModel)(draw_prior_paths)
GaussianUpdate.register(CVGPModel, (Likelihood, NoneType))(update_paths)
GaussianUpdate.register(ApproximateGP, CoresetVariationalStrategy)(update_strategy_paths)
