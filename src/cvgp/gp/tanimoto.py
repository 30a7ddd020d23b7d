"""The Tanimoto kernel: the share of features that two sets or two vectors of counts have in common (§7.4)."""

from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class TanimotoKernel(Kernel):  # type: ignore[misc]
    """k(x, y) = <x, y> / (|x|^2 + |y|^2 - <x, y>), and 1 for two rows of zeros; it has no parameters.

    Of bits it is the size of the intersection over that of the union. It is positive definite for all real vectors, so
    pseudo-inputs may move between the rows.
    """

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **settings: Any) -> Tensor:
        """The matrix `[..., B1, B2]`, or its diagonal `[..., B1]`."""
        first, second = x1.square().sum(-1), x2.square().sum(-1)
        if diag:
            shared = (x1 * x2).sum(-1)
        else:
            shared = x1 @ x2.mT
            first, second = first[..., :, None], second[..., None, :]
        either = first + second - shared
        is_empty = either <= 0.0
        # Division by one there, since the unused branch of `where` has a gradient too.
        return torch.where(is_empty, 1.0, shared / torch.where(is_empty, 1.0, either))
