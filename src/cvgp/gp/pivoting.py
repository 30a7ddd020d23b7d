r"""Rows with a large unexplained prior variance: randomly pivoted Cholesky.

With the residual kernel :math:`\tilde k(x, x') = k(x, x') - k(x, Z) K_{ZZ}^{-1} k(Z, x')` of the points Z so far, the
next point is row i with probability :math:`\tilde k(x_i, x_i) / \sum_j \tilde k(x_j, x_j)` (Chen, Epperly, Tropp and
Webber, 2024). In expectation this is close to the best low-rank approximation of the kernel matrix. The row with the
largest residual, which a greedy choice takes, is often at the edge of the data.

Rows are drawn in blocks, since one product with many columns is faster than many with one. The rows of a block are
drawn independently of each other, so each is accepted with the share of its residual that the accepted ones before it
leave. The points then have the same distribution as if they were chosen one by one (Epperly, Tropp and Webber, 2024).
"""

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from cvgp.gp.kernels import cross_matrix, diagonal, square_matrix
from cvgp.gp.linalg import add_jitter, inverse_lower, safe_cholesky
from cvgp.gp.model import JITTER

BLOCK = 200
LEAST_LEFT = 2.0 * JITTER
"""Rows with a smaller share of the largest prior variance left count as explained."""


@torch.no_grad()
def randomly_pivoted(
    kernel: Kernel, x: Tensor, size: int, rng: np.random.Generator, *, present: Tensor | None = None, block: int = BLOCK
) -> NDArray[np.intp]:
    """Indices of up to `size` different rows, in the order of their choice.

    There are fewer if they explain all of the variance. The cost is 2 N size^2 operations and N size numbers of
    memory.

    Parameters
    ----------
    kernel
        The kernel whose variance the rows explain.
    x
        Rows to choose from `[N, D]`.
    size
        How many to choose.
    rng
        Draws the rows.
    present
        Points chosen before `[M, D]`.
    block
        Rows drawn at once.
    """
    x = x.to(torch.float64)  # float32 is too coarse for small residuals
    k_xx = diagonal(kernel, x)
    known = LEAST_LEFT * k_xx.max()
    count = 0 if present is None else len(present)
    factor = torch.empty(count + min(size, len(x)), len(x), dtype=torch.float64, device=x.device)  # F^T F = K - R
    if present is not None:
        L = safe_cholesky(add_jitter(square_matrix(kernel, present), JITTER), "K_cc")
        factor[:count] = inverse_lower(L) @ cross_matrix(kernel, present, x)
    left = k_xx - factor[:count].square().sum(0)  # [N], diag(R)
    chosen: list[int] = []
    while len(chosen) < min(size, len(x)):
        left = torch.where(left > known, left, 0.0)
        total = left.sum()
        if not bool(total > 0):
            break
        drawn = rng.choice(len(x), block, p=(left / total).cpu().numpy())  # [block], some of them more than once
        F = factor[:count, drawn]
        R = square_matrix(kernel, x[drawn]) - F.mT @ F  # [block, block]
        accepted = _accept(R.cpu().numpy(), rng.uniform(size=block), known.item())[: size - len(chosen)]
        pivots = drawn[accepted]
        rows = cross_matrix(kernel, x[pivots], x) - factor[:count, pivots].mT @ factor[:count]
        L = safe_cholesky(R[accepted][:, accepted], "the residual kernel of a block")
        rows = torch.linalg.solve_triangular(L, rows, upper=False)  # [accepted, N]
        factor[count : count + len(pivots)] = rows
        left = left - rows.square().sum(0)
        left[pivots] = 0.0
        count += len(pivots)
        chosen.extend(pivots.tolist())
    return np.array(chosen, dtype=np.intp)


def _accept(R: NDArray[np.float64], uniform: NDArray[np.float64], known: float) -> list[int]:
    """The rows of a block that are accepted, by the share of their residual that those before them leave."""
    R = R.copy()
    drawn_with = R.diagonal().copy()
    kept: list[int] = []
    for i, threshold in enumerate(uniform):
        if R[i, i] > max(threshold * drawn_with[i], known):
            kept.append(i)
            R[i:, i:] -= np.outer(R[i:, i], R[i, i:]) / R[i, i]
    return kept
