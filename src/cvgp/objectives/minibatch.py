"""One minibatch's bound with its gradient, without autograd: the training step of the common models.

A training step is a few products between many small operations, and autograd's bookkeeping for these costs more than
the products do. The matrices are differentiated by hand in any case (:mod:`cvgp.gp.bounds`,
:mod:`cvgp.gp.stationary`). Every model that is built by kernel name has logarithms as its parameters, and their
derivatives are written by hand here.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import ScaleKernel
from gpytorch.means import ZeroMean
from torch import Tensor, nn

from cvgp.data.rows import Rows
from cvgp.errors import DivergenceError
from cvgp.gp import bounds
from cvgp.gp.kernels import stationary_form
from cvgp.gp.model import CVGP
from cvgp.gp.stationary import Family, StationaryKernel, covariance_at, place, pull_back_both
from cvgp.objectives.full_batch import PriorObjective
from cvgp.runtime import threads_for


class MinibatchObjective:
    """The bound on all data, estimated from the rows of one step, plus the log density of the model's priors.

    Parameters
    ----------
    model
        Its parameters receive the gradient.
    num_data
        N, or the total weight, of which the rows of each step are a uniform sample.
    tight
        Whether to use the tighter bound.
    known_noise
        Whether rows come with noise variances of their own.
    """

    rows: Rows[Tensor]
    """The rows of the present step, to be set before each evaluation."""

    def __init__(
        self,
        model: CVGP,
        num_data: float,
        *,
        tight: bool = False,
        known_noise: bool = False,
    ) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.num_data = num_data
        self._size = len(model.X_c)
        self._prior = PriorObjective(model)
        self._direct = None if tight or known_noise else direct_elbo(model)
        self._bound: Callable[..., Tensor] = model.tight_elbo if tight else model.elbo

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the estimate; `scale` times its gradient is added to `grad` of the parameters."""
        with threads_for(self._size**2 * (3 * len(self.rows.x) + 2 * self._size)):
            return self._value_and_backward(self.rows, scale)

    def _value_and_backward(self, rows: Rows[Tensor], scale: float) -> float:
        prior = self._prior.value_and_backward(scale)
        if self._direct is None:
            bound = scale * self._bound(rows.x, rows.y, self.num_data, noise_variance=rows.noise_variance)
            bound.backward()
            return bound.item() + prior
        value, gradients = self._direct.value_and_gradients(rows, self.num_data)
        with torch.no_grad():
            for parameter, gradient in gradients:
                if parameter.requires_grad:
                    if parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
                    parameter.grad.add_(gradient, alpha=scale)
        return scale * value + prior


class DirectElbo(NamedTuple):
    """The bound as a function of a model's own parameters."""

    family: Family
    log_lengthscale: Tensor  # [1, D] or [1, 1]
    log_outputscale: Tensor  # []
    log_noise: Tensor  # [1], of what is above the floor
    noise_floor: float
    X_c: Tensor  # [M, D]
    y_c: Tensor  # [M]
    log_beta: Tensor  # [M]

    # Tensors that autograd need not know of cost less to make: a seventh of a step with 50 points.
    @torch.inference_mode()
    def value_and_gradients(
        self, batch: Rows[Tensor], num_data: float
    ) -> tuple[float, tuple[tuple[Tensor, Tensor | float], ...]]:
        """``model.elbo`` of plain rows, without weights or noise of their own, and each parameter with its gradient."""
        x, y = batch.x, batch.y
        above_floor = self.log_noise.exp().item()
        noise = above_floor + self.noise_floor
        if not 0.0 < noise < math.inf:
            raise DivergenceError(f"the noise variance has become {noise}")
        inverse_lengthscale = self.log_lengthscale.neg().exp_()[0]  # [D] or [1]
        outputscale = self.log_outputscale.exp()
        w = (self.log_beta - math.log(noise)).exp_()  # [M]
        precision = y.new_full(y.shape, num_data / (len(y) * noise))  # [B]
        log_normalizer = -0.5 * num_data * math.log(2.0 * math.pi * noise)

        kernel = StationaryKernel(self.family, inverse_lengthscale, outputscale, shape=outputscale)
        placed = place(kernel, self.X_c, torch.float64)
        among, across = covariance_at(placed, None), covariance_at(placed.to(x.dtype), x)
        k_xx = outputscale.to(x.dtype).expand(len(x))
        fit_minus_kl, d = bounds.elbo_with_gradient(
            among.K, across.K, k_xx, y[:, None], self.y_c[:, None], w, precision
        )
        d_X_c, d_log_lengthscale = pull_back_both(kernel, among, d.K_cc, across, d.K_cx)
        if len(inverse_lengthscale) == 1:
            d_log_lengthscale = d_log_lengthscale.sum()

        d_all_weights = d.log_w.sum().item()
        # The noise s enters the precisions N / (B s), -N/2 log s and w = beta / s.
        d_log_noise = 0.5 * (precision @ d.misfit).item() - 0.5 * num_data - d_all_weights
        # Multiply the outputscale by c and divide the weights by c: the mean stays as it is, the variances of f are
        # multiplied by c, and the squared norm of the mean is divided by c.
        d_log_outputscale = d_all_weights + 0.5 * (d.squared_norm - (precision @ d.f_var).item())
        return fit_minus_kl + log_normalizer, (
            (self.log_lengthscale, d_log_lengthscale),
            (self.log_outputscale, d_log_outputscale),
            (self.log_noise, d_log_noise * above_floor / noise),
            (self.X_c, d_X_c),
            (self.y_c, d.y_c[:, 0]),
            (self.log_beta, d.log_w),
        )


def direct_elbo(model: CVGP) -> DirectElbo | None:
    """The model's bound in its direct form, or None where it has to go through autograd."""
    kernel = model.kernel
    form = stationary_form(kernel, model.X_c.shape[1])
    noise = model.likelihood.noise_covar
    if form is None or form.family.shape_slope is not None or type(kernel) is not ScaleKernel:
        return None
    base = kernel.base_kernel
    logarithms = (
        _floor_of_logarithm(base, "raw_lengthscale_constraint") == 0.0
        and _floor_of_logarithm(kernel, "raw_outputscale_constraint") == 0.0
        and model.beta_transform == "log"
    )
    floor = _floor_of_logarithm(noise, "raw_noise_constraint")
    tensors = (base.raw_lengthscale, kernel.raw_outputscale, noise.raw_noise, model.X_c, model.y_c, model.raw_beta)
    all_float64 = all(t.dtype == torch.float64 for t in tensors)
    if not (logarithms and all_float64 and type(model.mean) is ZeroMean and model.y_c.ndim == 1) or floor is None:
        return None
    return DirectElbo(
        family=form.family,
        log_lengthscale=base.raw_lengthscale,
        log_outputscale=kernel.raw_outputscale,
        log_noise=noise.raw_noise,
        noise_floor=floor,
        X_c=model.X_c,
        y_c=model.y_c,
        log_beta=model.raw_beta,
    )


def _floor_of_logarithm(module: nn.Module, name: str) -> float | None:
    """The lower bound of a constraint whose raw parameter is a logarithm; None for another constraint."""
    constraint = getattr(module, name, None)
    if not isinstance(constraint, GreaterThan) or constraint._transform is not torch.exp:
        return None
    return float(constraint.lower_bound)
