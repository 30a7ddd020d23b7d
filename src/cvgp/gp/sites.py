"""The best coreset at a fixed kernel: its points, pseudo-outputs, weights and size (§5).

The mean part of the bound does not depend on the weights, and the covariance part does not depend on y_c. So the two
are solved one after the other, from the same :class:`~cvgp.gp.bounds.statistics.Statistics`.
"""

from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.statistics import Statistics, check_sizes
from cvgp.gp.kernels import cross_matrix, diagonal, square_matrix
from cvgp.gp.linalg import (
    JITTER,
    add_jitter,
    as_square,
    inverse_from_factor,
    inverse_lower,
    plus_identity,
    safe_cholesky,
    symmetric_product,
)

SMALLEST_WEIGHT = 1e-8  # the floor of a weight, in units of the largest starting weight
MOST_STEPS = 50
LEAST_GAIN = 1e-7  # steps end when they gain fewer nats than this per pseudo-point
SHORTEST_STEP = 1e-4


class BestCoreset(NamedTuple):
    """The pseudo-outputs and site precisions that maximize the bound."""

    y_c: Tensor  # [M, Q]
    w: Tensor  # [M]
    value: Tensor  # []


def best_coreset(K_cc: Tensor, statistics: Statistics, w_start: Tensor) -> BestCoreset:
    """y_c* in closed form, and the best diagonal w* by :func:`best_weights` (§5.3).

    As w falls to zero, y_c* = (K + 1/w) alpha grows without limit while the bound no longer changes: so w has a floor.
    """
    K_cc, w_start = as_square(K_cc.detach()), w_start.detach().to(torch.float64)
    if not bool(((w_start >= 0) & torch.isfinite(w_start)).all()) or not bool((w_start > 0).any()):
        raise InvalidInputError("Starting weights must be finite and not negative, and at least one must be positive.")
    Phi, b, yy, kk, log_normalizer = statistics
    check_sizes(statistics, K_cc, w_start)
    L_K = safe_cholesky(K_cc, "K_cc")
    best = best_weights(L_K, Phi, w_start, SMALLEST_WEIGHT * w_start.max())
    C_inv_b = torch.cholesky_solve(b, safe_cholesky(plus_identity(Phi), "C = I + Phi"))  # [M, Q]
    alpha = torch.linalg.solve_triangular(L_K.mT, C_inv_b, upper=True)  # [M, Q], (K + Phi_raw)^-1 b_raw
    y_c = K_cc @ alpha + alpha / best.w[:, None]  # [M, Q]
    num_outputs = b.shape[1]
    covariance_part = best.value + 0.5 * (len(b) + Phi.trace() - kk)
    value = num_outputs * (log_normalizer + covariance_part) + 0.5 * ((b * C_inv_b).sum() - yy)
    return BestCoreset(y_c, best.w, value)


class WeightPoint(NamedTuple):
    """The part of the bound that depends on the weights, at given weights."""

    w: Tensor  # [M]
    value: Tensor  # [], -1/2 [log|G| + tr(G^-1 (I + Phi))] with G = I + L^T W L
    G_inv: Tensor  # [M, M]


def best_weights(L_K: Tensor, Phi: Tensor, w_start: Tensor, floor: Tensor, most_steps: int = MOST_STEPS) -> WeightPoint:
    """The site precisions w >= floor that maximize the covariance part of the bound (§5.3), from `w_start` [M] on."""
    here = _at(w_start.clamp_min(floor), L_K, Phi)
    for _ in range(most_steps):
        direction = _solve_for_weights(here, L_K, Phi, floor) - here.w
        step, there = 1.0, _at(here.w + direction, L_K, Phi)
        while there.value < here.value and step > SHORTEST_STEP:
            step *= 0.5
            there = _at(here.w + step * direction, L_K, Phi)
        gain = there.value - here.value
        if gain > 0:
            here = there
        if gain < LEAST_GAIN * len(L_K):
            break
    return here


def _at(w: Tensor, L_K: Tensor, Phi: Tensor) -> WeightPoint:
    """The value at w, by G, whose eigenvalues are at least 1."""
    root = L_K.mT * w.sqrt()
    L_G = safe_cholesky(plus_identity(symmetric_product(root, root)), "G = I + L^T W L")
    G_inv = inverse_from_factor(L_G)
    value = -L_G.diagonal().log().sum() - 0.5 * (G_inv.trace() + (G_inv * Phi).sum())
    return WeightPoint(w, value, G_inv)


def _solve_for_weights(here: WeightPoint, L_K: Tensor, Phi: Tensor, floor: Tensor) -> Tensor:
    """Solve (V * V) w = diag(V Lambda V) for w >= floor: weights that come out below it are held there."""
    J = here.G_inv @ L_K.mT  # [M, M]
    V = L_K @ J  # [M, M]
    VLV = (J * (Phi @ J)).sum(0)  # [M], the diagonal of V Lambda V
    H = V.square()  # [M, M], positive semi-definite (Schur)
    scale = H.diagonal().rsqrt()
    H, target = scale[:, None] * H * scale, scale * VLV  # unit diagonal; unknowns w / scale
    lowest = floor / scale
    free = torch.ones_like(here.w, dtype=torch.bool)
    x = lowest.clone()
    while bool(free.any()):
        among = H[free][:, free]
        L = safe_cholesky(among + 1e-12 * torch.eye(len(among), dtype=H.dtype, device=H.device), "V * V")
        right = target[free] - H[free][:, ~free] @ lowest[~free]
        x[free] = torch.cholesky_solve(right[:, None], L)[:, 0]
        below = free & (x < lowest)
        x = x.maximum(lowest)
        if not bool(below.any()):
            break
        free &= ~below
    return scale * x


def nested_prediction(statistics: Statistics, psi: Tensor, k_xx: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Means [S, n, Q] and variances [S, n] of f at rows by the best coreset on the first m points, for m in `sizes`.

    L is lower triangular, so one factorization gives the posterior for every m by partial sums over whitened features.
    """
    L_C = safe_cholesky(plus_identity(statistics.Phi), "C = I + Phi")
    a = torch.linalg.solve_triangular(L_C, psi, upper=False)  # [M, n]
    c = torch.linalg.solve_triangular(L_C, statistics.b, upper=False)  # [M, Q]
    last = sizes - 1
    left = (k_xx - psi.square().cumsum(0)[last]).clamp_min(0.0)  # [S, n]
    f_mean = torch.stack([(a * c[:, q, None]).cumsum(0)[last] for q in range(c.shape[1])], -1)  # [S, n, Q]
    return f_mean, left + a.square().cumsum(0)[last]


BLOCK = 200
LEAST_LEFT = 2.0 * JITTER  # rows with a smaller share of the largest prior variance left count as explained


@torch.no_grad()
def randomly_pivoted(
    kernel: Kernel, x: Tensor, size: int, rng: np.random.Generator, *, present: Tensor | None = None, block: int = BLOCK
) -> NDArray[np.intp]:
    """Indices of up to `size` different rows of x `[N, D]`, in the order of their choice: randomly pivoted Cholesky.

    A row is drawn in proportion to the prior variance that the points so far leave unexplained (Chen, Epperly, Tropp
    and Webber, 2024), in blocks with rejection (Epperly, Tropp and Webber, 2024). A greedy choice often takes rows at
    the edge.
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
