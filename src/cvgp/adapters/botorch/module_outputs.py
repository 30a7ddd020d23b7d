"""Kernels, means and likelihoods with one batch dimension for the outputs, and the parts of them for some outputs."""

from collections.abc import Sequence
from copy import deepcopy
from typing import TypeVar

import torch
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def dims_of_outputs(module: nn.Module, num_outputs: int) -> dict[str, int]:
    """By the name of each parameter that outputs do not share: which of its dimensions counts them."""
    found: dict[str, int] = {}
    for prefix, part in module.named_modules():
        batch = getattr(part, "batch_shape", None)
        for name, parameter in part.named_parameters(recurse=False):
            if isinstance(part, HomoskedasticNoise):  # which has no batch_shape: [..., Q, 1]
                dim = parameter.ndim - 2
            else:
                dim = -1 if batch is None else len(batch) - 1
            if dim >= 0 and parameter.shape[dim] == num_outputs:
                found[f"{prefix}.{name}".lstrip(".")] = dim
    return found


@torch.no_grad()
def for_outputs(module: Module, outputs: Sequence[int], num_outputs: int) -> Module:
    """A copy of a module for some of its outputs; one output has no batch dimension."""
    part = deepcopy(module)
    if num_outputs == 1:
        return part
    dims = dims_of_outputs(module, num_outputs)
    parameters = dict(part.named_parameters())
    for name, dim in dims.items():
        parameters[name].data = _selected(parameters[name], outputs, dim)
    for prefix, inner in part.named_modules():
        owned = [name for name in dims if name.rpartition(".")[0] == prefix]
        if owned and getattr(inner, "batch_shape", None):
            tail = [] if len(outputs) == 1 else [len(outputs)]
            inner.batch_shape = torch.Size([*inner.batch_shape[:-1], *tail])
    return part


@torch.no_grad()
def adopt(module: nn.Module, trained: nn.Module, output: int, num_outputs: int) -> None:
    """Write what was learned for one output into a module for all outputs."""
    dims = dims_of_outputs(module, num_outputs) if num_outputs > 1 else {}
    learned = dict(trained.named_parameters())
    for name, parameter in module.named_parameters():
        place = parameter.select(dims[name], output) if name in dims else parameter
        place.copy_(learned[name].reshape(place.shape))


def _selected(values: Tensor, outputs: Sequence[int], dim: int) -> Tensor:
    index = torch.as_tensor(list(outputs), device=values.device)
    chosen = values.index_select(dim, index)
    return chosen.squeeze(dim) if len(outputs) == 1 else chosen
