"""The prior of a GPyTorch model at the pseudo-inputs and at x together, from one call of its forward.

A deep kernel computes features, and batch normalisation or dropout makes these depend on all rows of the call. So the
pseudo-inputs and x go through the model together. What the model returns is mostly a kernel that waits to be evaluated,
with its inputs or their features. From these the matrices are formed by cvgp: among the pseudo-inputs in float64, and
by fused code where the kernel has a stationary form.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.lazy import LazyEvaluatedKernelTensor
from linear_operator.operators import LinearOperator
from torch import Tensor

from cvgp.gp import stationary
from cvgp.gp.bounds.elbo import SHORTCUT_LIMIT
from cvgp.gp.kernels import cross_matrix, diagonal, evaluate, square_matrix, stationary_form
from cvgp.gp.stationary import StationaryKernel
from cvgp.gp.stationary_pair import can_be_paired, square_and_cross_matrix


class JointPrior:
    """Matrices and means of a model's prior at `points` [..., M, D] and `x` [..., B, D], each when it is asked for.

    The points have batch dimensions of the data only where values differ along these.

    Parameters
    ----------
    model
        What has a `forward` that returns a MultivariateNormal.
    points, x
        Where; their batch dimensions broadcast.
    site_batch
        The batch shape of the sites. Other dimensions of x are those of a batch of data.
    dtype
        The precision of K_cx; that of the model's inputs if None.
    kwargs
        For `forward`.
    """

    def __init__(
        self,
        model: Any,
        points: Tensor,
        x: Tensor,
        site_batch: torch.Size,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        M = points.shape[-2]
        inputs = torch.cat(_with_equal_batches(points, x), -2)
        output: MultivariateNormal = model.forward(inputs, **kwargs)
        self._covariance, self._M, self._dtype = output.lazy_covariance_matrix, M, dtype
        self._z: tuple[Tensor, Tensor] | None = None  # what the kernel sees, where the covariance is one kernel
        is_kernel = _is_plain_kernel(self._covariance)
        self.of_data = NO_DATA_DIMENSIONS
        if x.ndim > 2:
            of_kernel = self._covariance.kernel.batch_shape if is_kernel else torch.Size([])
            of_model = torch.broadcast_shapes(site_batch, points.shape[:-2], of_kernel)
            self.of_data = DataDimensions(of_model, x.shape[:-2])
        if is_kernel:
            seen = self._covariance.x1
            if seen is inputs:
                z_c, z_x = points, x
            else:  # features, or some columns
                z_c, z_x = self.of_data.dropped(seen[..., :M, :], 2), seen[..., M:, :]
            self._z = z_c, z_x.to(dtype or z_x.dtype)
        self.mean_c = self.of_data.dropped(output.mean[..., :M], 1)  # [..., M]
        self.mean_x = output.mean[..., M:]  # [..., B]

    @cached_property
    def K_cc(self) -> Tensor:
        """The covariance among the points [..., M, M] in float64."""
        if self._z is None:
            return self.of_data.dropped(self._covariance[..., : self._M, : self._M].to_dense(), 2).to(torch.float64)
        if self._pair is not None:
            return self._pair[0]
        if self._form is not None:
            return stationary.square_matrix(self._form, self._z[0])
        with _all_columns(self._covariance.kernel):
            return _among(self._covariance.kernel, self._z[0])

    @cached_property
    def K_cx(self) -> Tensor:
        """The covariance between points and x [..., M, B]."""
        if self._z is None:
            K_cx: Tensor = self._covariance[..., : self._M, self._M :].to_dense()
            return K_cx.to(self._dtype or K_cx.dtype)
        if self._pair is not None:
            return self._pair[1]
        if self._form is not None:
            return stationary.cross_matrix(self._form, *self._z)
        with _all_columns(self._covariance.kernel):
            return _across(self._covariance.kernel, *self._z)

    @property
    def K_xx(self) -> LinearOperator:
        """The covariance at x [..., B, B], not evaluated yet."""
        return self._covariance[..., self._M :, self._M :]

    @property
    def k_xx(self) -> Tensor:
        """The variances at x [..., B]."""
        if self._z is None:
            variances: Tensor = self.K_xx.diagonal(dim1=-1, dim2=-2)
            return variances.to(self._dtype or variances.dtype)
        if self._form is not None:
            return self._form.outputscale.to(self._z[1].dtype).expand(self._z[1].shape[:-1])
        with _all_columns(self._covariance.kernel):
            return diagonal(self._covariance.kernel, self._z[1])

    @cached_property
    def _form(self) -> StationaryKernel | None:
        """The kernel's fused form, which is for one set of points."""
        if self._z is None or self._z[0].ndim > 2:
            return None
        with _all_columns(self._covariance.kernel):
            return stationary_form(self._covariance.kernel, self._z[0].shape[-1])

    @cached_property
    def _pair(self) -> tuple[Tensor, Tensor] | None:
        """K_cc and K_cx in one node, where both are to be differentiated."""
        if self._z is None or self._form is None or not torch.is_grad_enabled():
            return None
        return square_and_cross_matrix(self._form, *self._z) if can_be_paired(self._form, self._z[1]) else None

    def promote_if_digits_are_lost(self, scaled_precision: Tensor) -> None:
        """Let the matrices with x be float64 where products of float32 would lose too much.

        Parameters
        ----------
        scaled_precision
            Precisions of the sites times prior variances [..., M].
        """
        if self._dtype is None and self._z is not None and scaled_precision.max().item() > SHORTCUT_LIMIT:
            self._dtype, self._z = torch.float64, (self._z[0], self._z[1].to(torch.float64))
            self.__dict__.pop("_pair", None)

    @property
    def points_are_their_own(self) -> bool:
        """Whether what is known of the points is the same whatever batches x has."""
        return not (self.of_data.places(self.mean_c, 1) or self.of_data.places(self.K_cc, 2))


def prior_at_points(model: Any, points: Tensor) -> tuple[Tensor, Tensor]:
    """K_cc [..., M, M] in float64 and the mean [..., M] at the points alone."""
    output: MultivariateNormal = model.forward(points)
    covariance = output.lazy_covariance_matrix
    if not _is_plain_kernel(covariance):
        return covariance.to_dense().to(torch.float64), output.mean
    with _all_columns(covariance.kernel):
        return _among(covariance.kernel, covariance.x1), output.mean


def _is_plain_kernel(covariance: LinearOperator) -> bool:
    """Whether a covariance is a kernel at given inputs, to be evaluated as one matrix."""
    return (
        isinstance(covariance, LazyEvaluatedKernelTensor)
        and covariance.x1 is covariance.x2
        and not covariance.last_dim_is_batch
        and not covariance.params
        and covariance.kernel.num_outputs_per_input(covariance.x1, covariance.x2) == 1
    )


def _among(kernel: Kernel, z_c: Tensor) -> Tensor:
    """K_cc [..., M, M] in float64."""
    points = z_c.to(torch.float64)
    return square_matrix(kernel, z_c) if z_c.ndim == 2 else evaluate(kernel, points, points)


def _across(kernel: Kernel, z_c: Tensor, z_x: Tensor) -> Tensor:
    """K_cx [..., M, B] in the precision of z_x."""
    if z_c.ndim == 2:
        return cross_matrix(kernel, z_c, z_x)
    return evaluate(kernel, *_with_equal_batches(z_c.to(z_x.dtype), z_x))


def _with_equal_batches(points: Tensor, x: Tensor) -> list[Tensor]:
    """Both [..., n, D] for all batches of either."""
    if points.ndim == x.ndim == 2:
        return [points, x]
    batch = torch.broadcast_shapes(points.shape[:-2], x.shape[:-2])
    return [values.expand(*batch, *values.shape[-2:]) for values in (points, x)]


@contextmanager
def _all_columns(kernel: Kernel) -> Iterator[None]:
    """For a while a kernel takes all columns: those of a kernel that waits to be evaluated are chosen already."""
    chosen = kernel.active_dims
    if chosen is None:
        yield
        return
    kernel.active_dims = None
    try:
        yield
    finally:
        kernel.active_dims = chosen


class DataDimensions(NamedTuple):
    """Which batch dimensions come from the data alone."""

    model: torch.Size
    data: torch.Size

    def places(self, values: Tensor, num_event: int) -> list[int]:
        """Those of some values that have `num_event` other dimensions, counted from the end."""
        found: list[int] = []
        for end in range(num_event + 1, values.ndim + 1):
            place = end - num_event
            of_model = self.model[-place] if place <= len(self.model) else 1
            of_data = self.data[-place] if place <= len(self.data) else 1
            if of_model == 1 and of_data > 1 and values.shape[-end] == of_data:
                found.append(-end)
        return found

    def dropped(self, values: Tensor, num_event: int) -> Tensor:
        """Values without the dimensions of the data, as far as they are equal along these.

        One coreset then stays one, however many batches of data it predicts.
        """
        for place in self.places(values, num_event):
            first = values.narrow(place, 0, 1)
            values = first if torch.equal(values, first.expand_as(values)) else values
        return self._without_leading_ones(values, num_event)

    def averaged(self, values: Tensor) -> Tensor:
        """Values [...] as means over the dimensions of the data: a KL counts once, not once per batch of data."""
        for place in self.places(values, 0):
            values = values.mean(place, keepdim=True)
        return self._without_leading_ones(values, 0)

    def _without_leading_ones(self, values: Tensor, num_event: int) -> Tensor:
        while self.data and values.ndim - num_event > len(self.model) and values.shape[0] == 1:
            values = values[0]
        return values


NO_DATA_DIMENSIONS = DataDimensions(torch.Size([]), torch.Size([]))
