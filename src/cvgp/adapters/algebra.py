"""What both hosts share: the prior at points and x, the posterior there, and rows that join it later (§2.1, §2.3).

GPyTorch's models are known by their `forward` alone (:class:`JointPrior`), BoTorch's by a kernel and a mean.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import DiagLinearOperator, LinearOperator, MatmulLinearOperator, SumLinearOperator
from torch import Tensor, nn

from cvgp.errors import InvalidInputError
from cvgp.gp import posterior
from cvgp.gp.bounds.elbo import SHORTCUT_LIMIT
from cvgp.gp.kernels import cross_matrix, diagonal, evaluate, square_matrix
from cvgp.gp.posterior import Factor

ROUNDING_STEPS = 10.0  # a float32 covariance gets this many rounding errors on its diagonal, to stay positive definite
MOST_POINTS_AT_ONCE = 500  # the covariance of more points is evaluated on demand


class Snapshot:
    """Copies of tensors, to tell by value whether they changed: torch's version counters do not notice `.data`."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._values = [tensor.detach().clone() for tensor in tensors]

    def holds(self, tensors: Iterable[Tensor]) -> bool:
        """Whether the tensors still have the same values."""
        now = list(tensors)
        return len(now) == len(self._values) and all(
            a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
            for a, b in zip(now, self._values, strict=True)
        )


def common_batch(*shapes: Sequence[int]) -> torch.Size:
    """The batch shape that several broadcast to."""
    try:
        common: torch.Size = torch.broadcast_shapes(*shapes)
    except RuntimeError as error:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise InvalidInputError(f"Batch shapes must broadcast with each other; got {listed}.") from error
    return common


def module_tensors(*modules: nn.Module) -> list[Tensor]:
    """All parameters and buffers."""
    return [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]


class JointPrior:
    """The prior of a GPyTorch model at the pseudo-inputs and at x together, from one call of its forward.

    Batch normalization or dropout in a deep kernel makes features depend on all rows of the call, so both go together.
    Batch dimensions of x that neither points, kernel nor sites (`site_batch`) have belong to the data. K_cx has the
    precision `dtype`, or that of the model's inputs.
    """

    def __init__(
        self,
        model: Any,
        points: Tensor,
        x: Tensor | None = None,
        site_batch: torch.Size = torch.Size([]),  # noqa: B008
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        M = points.shape[-2]
        inputs = points if x is None else torch.cat(_with_equal_batches(points, x), -2)
        x = points[..., :0, :] if x is None else x
        output: MultivariateNormal = model.forward(inputs, **kwargs)
        covariance = output.lazy_covariance_matrix
        kernel = _plain_kernel(covariance)
        self._covariance, self._kernel, self._M, self._dtype = covariance, kernel, M, dtype
        of_kernel = torch.Size([]) if kernel is None else kernel.batch_shape
        self._batch, self._data_batch = common_batch(site_batch, points.shape[:-2], of_kernel), x.shape[:-2]
        self.mean_c: Tensor = output.mean[..., :M]  # [..., M]
        self.mean_x: Tensor = output.mean[..., M:]  # [..., B]
        if kernel is not None and covariance.x1 is inputs:
            # The prior at the points is then the same for all batches of data: one coreset predicts them all.
            self._z_c, z_x, self.mean_c = points, x, self.averaged(self.mean_c, 1)
        elif kernel is not None:  # of features, or of some of the columns
            self._z_c, z_x = covariance.x1[..., :M, :], covariance.x1[..., M:, :]
        if kernel is not None:
            self._z_x = z_x.to(dtype or z_x.dtype)

    @cached_property
    def K_cc(self) -> Tensor:
        """The covariance among the points [..., M, M] in float64."""
        if self._kernel is None:
            K_cc: Tensor = self._covariance[..., : self._M, : self._M].to_dense()
            return K_cc.to(torch.float64)
        with _all_columns(self._kernel):
            return square_at(self._kernel, self._z_c)

    @cached_property
    def K_cx(self) -> Tensor:
        """The covariance between points and x [..., M, B]."""
        if self._kernel is None:
            K_cx: Tensor = self._covariance[..., : self._M, self._M :].to_dense()
            return K_cx.to(self._dtype or K_cx.dtype)
        with _all_columns(self._kernel):
            return cross_at(self._kernel, self._z_c, self._z_x)

    @property
    def K_xx(self) -> LinearOperator:
        """The covariance at x [..., B, B], not evaluated yet."""
        return self._covariance[..., self._M :, self._M :]

    @property
    def k_xx(self) -> Tensor:
        """The variances at x [..., B]."""
        if self._kernel is None:
            variances: Tensor = self.K_xx.diagonal(dim1=-1, dim2=-2)
            return variances.to(self._dtype or variances.dtype)
        with _all_columns(self._kernel):
            return diagonal(self._kernel, self._z_x)

    def use_float64_if_needed(self, w: Tensor) -> None:
        """Form K_cx in float64 if products of float32 would lose too many digits at site precisions w [..., M]."""
        scaled = w.detach() * self.K_cc.detach().diagonal(dim1=-2, dim2=-1)
        if self._dtype is None and self._kernel is not None and scaled.max().item() > SHORTCUT_LIMIT:
            self._z_x = self._z_x.to(torch.float64)

    @property
    def is_independent_of_data(self) -> bool:
        """Whether the prior at the points has no batch dimensions from the data."""
        return common_batch(self.mean_c.shape[:-1], self.K_cc.shape[:-2], self._batch) == self._batch

    def averaged(self, values: Tensor, num_event: int = 0) -> Tensor:
        """The mean over batch dimensions that come from the data alone: a KL counts once, not once per batch."""

        def size(batch: torch.Size, place: int) -> int:
            return batch[-place] if place <= len(batch) else 1

        places = range(1, values.ndim - num_event + 1)
        dims = [p + num_event for p in places if size(self._batch, p) == 1 < size(self._data_batch, p)]
        values = values.mean([-dim for dim in dims], keepdim=True) if dims else values
        while values.ndim - num_event > len(self._batch) and len(values) == 1:
            values = values[0]
        return values


def _plain_kernel(covariance: LinearOperator) -> Kernel | None:
    """The kernel of a lazily evaluated covariance of one set of inputs; None for any other covariance."""
    is_plain = (
        isinstance(covariance, LazyEvaluatedKernelTensor)
        and covariance.x1 is covariance.x2
        and not getattr(covariance, "last_dim_is_batch", False)  # which GPyTorch will remove
        and not covariance.params
        and covariance.kernel.num_outputs_per_input(covariance.x1, covariance.x2) == 1
    )
    return covariance.kernel if is_plain else None


def _with_equal_batches(points: Tensor, x: Tensor) -> list[Tensor]:
    """Both [..., n, D] for all batches of either."""
    batch = torch.broadcast_shapes(points.shape[:-2], x.shape[:-2])
    return [values.expand(*batch, *values.shape[-2:]) for values in (points, x)]


@contextmanager
def _all_columns(kernel: Kernel) -> Iterator[None]:
    """Let a kernel take all columns: a lazily evaluated kernel has already chosen those of its inputs."""
    chosen = kernel.active_dims
    if chosen is None:
        yield
        return
    kernel.active_dims = None
    try:
        yield
    finally:
        kernel.active_dims = chosen


def posterior_at(factor: Factor, at: JointPrior, jitter: float | None = None) -> MultivariateNormal:
    """The joint posterior of f at x; to a float32 covariance a rounding error, or `jitter`, is added."""
    dtype = at.mean_x.dtype
    at.use_float64_if_needed(factor.w)
    mean = at.mean_x + posterior.mean(factor, at.K_cx)[..., 0].to(dtype)
    TK = (factor.T.to(at.K_cx.dtype) @ at.K_cx).to(dtype)  # [..., M, B]
    K_xx = at.K_xx
    if dtype != torch.float64:
        k_xx = at.k_xx.to(dtype)
        added = ROUNDING_STEPS * torch.finfo(dtype).eps * k_xx if jitter is None else torch.full_like(k_xx, jitter)
        K_xx = SumLinearOperator(K_xx, DiagLinearOperator(added))
    return MultivariateNormal(mean, SumLinearOperator(K_xx, MatmulLinearOperator(-TK.mT, TK)))


class Layer(NamedTuple):
    """Points with their factor, given the layers before them; float64, and one covariance for all outputs.

    New rows see the posterior as their prior, so no earlier layer is factorized again. Batches of layers may differ,
    which makes fantasies cheap: the coreset is one layer without a batch, and the fantasies are a small one with it.
    """

    X: Tensor  # [..., n, D]
    above: tuple[Tensor, ...]  # [..., n_j, n] for each earlier layer j: its features of these points
    factor: Factor  # K_cc [..., n, n], w [..., n] and y_c [..., n, m], minus the mean given earlier layers


def condition(layers: Sequence[Layer], kernel: Kernel, X: Tensor, residual: Tensor, w: Tensor) -> tuple[Layer, ...]:
    """Layers that also hold points X [..., n, D], with residuals y - m(X) [..., n, m] and precisions w [..., n]."""
    K_nn = square_at(kernel, X)
    is_single = len(layers) == 1 and layers[0].X.ndim == X.ndim == residual.ndim == w.ndim + 1 == 2
    if is_single and not (X.requires_grad or residual.requires_grad):
        (old,) = layers
        joined = posterior.condition(old.factor, cross_at(kernel, old.X, X), K_nn, residual, w)
        return (Layer(torch.cat([old.X, X]), (), joined),)
    known, features = _features(layers, kernel, X)
    factor = posterior.factorize(_minus_products(K_nn, features, features), w, residual - known)
    return (*layers, Layer(X, tuple(features), factor))


def moments(layers: Sequence[Layer], kernel: Kernel, x: Tensor) -> tuple[Tensor, Tensor | LinearOperator]:
    """Mean [..., n, m], minus the prior mean, and joint covariance [..., n, n] of f at x [..., n, D]."""
    known, features = _features(layers, kernel, x)
    if x.shape[-2] <= MOST_POINTS_AT_ONCE or any(p.dtype != x.dtype for p in kernel.parameters()):
        return known, _minus_products(evaluate(kernel, x, x), features, features)
    return known, SumLinearOperator(kernel(x), *(MatmulLinearOperator(-psi.mT, psi) for psi in features))


def _features(layers: Sequence[Layer], kernel: Kernel, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The mean of f at x given all layers [..., n, m], and the features of x in each layer [..., n_j, n]."""
    known: Tensor = torch.zeros((), dtype=x.dtype, device=x.device)
    features: list[Tensor] = []
    for layer in layers:
        K = _minus_products(cross_at(kernel, layer.X, x), layer.above, features)  # [..., n_j, n]
        known = known + posterior.mean(layer.factor, K)
        features.append(_times(layer.factor.T, K))
    return known, features


def _minus_products(K: Tensor, left: Sequence[Tensor], right: Sequence[Tensor]) -> Tensor:
    """K minus the sum over layers of left_j^T right_j."""
    for first, second in zip(left, right, strict=True):
        K = K - first.mT @ second
    return K


def _times(T: Tensor, K: Tensor) -> Tensor:
    """T K; without a batch T is multiplied once with all columns, where torch would copy it for each batch of K."""
    if T.ndim > 2:
        return T @ K
    columns = K.movedim(-2, 0)
    flat: Tensor = T @ columns.reshape(len(columns), -1)
    return flat.reshape(columns.shape).movedim(0, -2)


def square_at(kernel: Kernel, X: Tensor) -> Tensor:
    """The kernel among points X [..., n, D] in float64: [..., n, n]."""
    if X.ndim == 2:
        return square_matrix(kernel, X)
    points = X.to(torch.float64)
    return evaluate(kernel, points, points)


def cross_at(kernel: Kernel, X: Tensor, x: Tensor) -> Tensor:
    """The kernel between points X [..., n, D] and x [..., B, D] in the precision of x: [..., n, B]."""
    if X.ndim == 2:
        return cross_matrix(kernel, X, x)
    return evaluate(kernel, *_with_equal_batches(X.to(x.dtype), x))
