r"""The posterior of a coreset in batches, and rows that join it later, as layers of whitened features (§2.1, §2.3).

With :math:`T = L_B^{-1} R` the posterior of :mod:`cvgp.gp.posterior` is a linear model on the features
:math:`\psi(x) = T k(X_c, x)`:

.. math:: E f(x) = m(x) + \psi(x)^T u, \qquad cov(f(x), f(z)) = k(x, z) - \psi(x)^T \psi(z), \qquad u = T (y_c - m_c).

New rows :math:`(X_n, y_n)` of precision :math:`w_n` see this posterior as their prior. So they make another layer of
the same form, with the covariance of what the layers before them leave in the place of the kernel. Nothing of the
earlier layers is factorised again: n rows cost :math:`O(M^2 n)`. Layers may have different batches. That is what makes
fantasies cheap: the coreset is one layer without a batch, and the fantasies are a small one with it.

Inputs are `[..., n, D]`. Matrices have one more batch dimension before the last two, for outputs that differ in kernel
or precision: `[..., Q, n, n]`, with a Q of one where they do not. Everything is float64.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from linear_operator.operators import LinearOperator, MatmulLinearOperator, SumLinearOperator
from torch import Tensor
from torch.func import functional_call

from cvgp.gp import kernels
from cvgp.gp.kernels import evaluate, parameters_as
from cvgp.gp.linalg import inverse_lower, plus_identity, safe_cholesky, symmetrise

MOST_POINTS_AT_ONCE = 500
"""Up to so many points their covariance is formed at once; of more, perhaps only means or variances are wanted."""


class Layer(NamedTuple):
    """Some points, with what their features are made of."""

    X: Tensor  # [..., n, D]
    above: tuple[Tensor, ...]  # [..., Q, n_j, n] for each earlier layer j: its features of these points
    T: Tensor  # [..., Q, n, n], L^-1 R
    u: Tensor  # [..., Q, n]


class Moments(NamedTuple):
    """Mean and joint covariance of f at some points; that of many points waits to be evaluated."""

    mean: Tensor  # [..., Q, n]
    covariance: Tensor | LinearOperator  # [..., Q, n, n]


def prior_mean(mean: Mean, x: Tensor) -> Tensor:
    """The mean function at x [..., n, D] for each output [..., Q, n]."""
    values: Tensor = functional_call(mean, parameters_as(x.dtype, mean), (x.unsqueeze(-3),))
    return values


def add_layer(layers: Sequence[Layer], kernel: Kernel, X: Tensor, residual: Tensor, w: Tensor) -> Layer:
    """The layer of points X [..., n, D] with residuals y - m(X) and precisions w, both [..., Q, n]."""
    features = features_at(layers, kernel, X)
    left = symmetrise(_minus_products(_square_matrix(kernel, X), features, features))  # [..., Q, n, n]
    root = w.sqrt()
    L = safe_cholesky(plus_identity(root[..., :, None] * left * root[..., None, :]), "B = I + R K_cc R")
    T = inverse_lower(L) * root[..., None, :]
    unexplained = residual - sum(_weighted(psi, layer.u) for psi, layer in zip(features, layers, strict=True))
    return Layer(X, tuple(features), T, (T @ unexplained.unsqueeze(-1)).squeeze(-1))


def join(first: Layer, second: Layer) -> Layer:
    """Two layers without batch dimensions as one: T = [[T_1, 0], [-T_2 above^T T_1, T_2]]."""
    (above,) = second.above
    lower = torch.cat([-(second.T @ above.mT) @ first.T, second.T.expand(*above.shape[:-2], -1, -1)], -1)
    upper = torch.cat([first.T, first.T.new_zeros(*first.T.shape[:-1], above.shape[-1])], -1)
    batch = torch.broadcast_shapes(lower.shape[:-2], upper.shape[:-2])
    T = torch.cat([upper.expand(*batch, -1, -1), lower.expand(*batch, -1, -1)], -2)
    batch = torch.broadcast_shapes(first.u.shape[:-1], second.u.shape[:-1])
    u = torch.cat([first.u.expand(*batch, -1), second.u.expand(*batch, -1)], -1)
    return Layer(torch.cat([first.X, second.X], -2), (), T, u)


def features_at(layers: Sequence[Layer], kernel: Kernel, x: Tensor) -> list[Tensor]:
    """The features [..., Q, n_j, n] of points x [..., n, D] in each layer j."""
    features: list[Tensor] = []
    for layer in layers:
        K = _minus_products(_cross_matrix(kernel, layer.X, x), layer.above, features)
        features.append(_times(layer.T, K))
    return features


def moments(layers: Sequence[Layer], kernel: Kernel, mean: Mean, x: Tensor) -> Moments:
    """The posterior of f at points x [..., n, D], jointly."""
    features = features_at(layers, kernel, x)
    f_mean = prior_mean(mean, x) + sum(_weighted(psi, layer.u) for psi, layer in zip(features, layers, strict=True))
    points = x.unsqueeze(-3)
    if x.shape[-2] <= MOST_POINTS_AT_ONCE or any(p.dtype != x.dtype for p in kernel.parameters()):
        return Moments(f_mean, _minus_products(evaluate(kernel, points, points), features, features))
    explained = (MatmulLinearOperator(-psi.mT, psi) for psi in features)
    return Moments(f_mean, SumLinearOperator(kernel(points), *explained))


def _minus_products(K: Tensor, left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """K minus the sum over layers of left_j^T right_j."""
    for first, second in zip(left, right, strict=True):
        K = K - first.mT @ second
    return K


def _times(T: Tensor, K: Tensor) -> Tensor:
    """T K; a matrix that has no batch is multiplied once with all columns, where torch would copy it for each batch."""
    if T.shape[:-2].numel() > 1:
        return T @ K
    columns = K.movedim(-2, 0)
    flat: Tensor = T.reshape(T.shape[-2:]) @ columns.reshape(len(columns), -1)
    return flat.reshape(columns.shape).movedim(0, -2)


def _weighted(psi: Tensor, u: Tensor) -> Tensor:
    """psi^T u [..., Q, n]."""
    if u.shape[:-1].numel() > 1:
        return (psi.mT @ u.unsqueeze(-1)).squeeze(-1)
    columns = psi.movedim(-2, 0)
    flat: Tensor = u.reshape(-1) @ columns.reshape(len(columns), -1)
    return flat.reshape(columns.shape[1:])


def _square_matrix(kernel: Kernel, X: Tensor) -> Tensor:
    if X.ndim == 2 and not kernel.batch_shape:
        return kernels.square_matrix(kernel, X).unsqueeze(0)
    points = X.unsqueeze(-3)
    return evaluate(kernel, points, points)


def _cross_matrix(kernel: Kernel, X: Tensor, x: Tensor) -> Tensor:
    points = x.unsqueeze(-3)
    if X.ndim == 2:
        return kernels.cross_matrix(kernel, X, points)
    batch = torch.broadcast_shapes(X.shape[:-2], x.shape[:-2])
    expanded = (part.expand(*batch, *part.shape[-2:]).unsqueeze(-3) for part in (X, x))
    return evaluate(kernel, *expanded)
