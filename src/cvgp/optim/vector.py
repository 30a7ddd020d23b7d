"""Parameters of a module as one vector, which is what optimisers outside torch expect."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["read_gradient", "read_vector", "write_vector"]


def read_vector(parameters: Sequence[Tensor]) -> NDArray[np.float64]:
    """Concatenate the parameters' values."""
    flat = torch.cat([p.detach().reshape(-1).to(torch.float64) for p in parameters])
    return flat.cpu().numpy()


def read_gradient(parameters: Sequence[Tensor]) -> NDArray[np.float64]:
    """Concatenate the parameters' gradients; a parameter without one counts as zero."""
    parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).to(torch.float64) for p in parameters]
    return torch.cat(parts).cpu().numpy()


@torch.no_grad()
def write_vector(parameters: Sequence[Tensor], vector: NDArray[np.float64]) -> None:
    """Set the parameters from their concatenation."""
    start = 0
    for p in parameters:
        stop = start + p.numel()
        p.copy_(torch.from_numpy(vector[start:stop]).view_as(p))
        start = stop
