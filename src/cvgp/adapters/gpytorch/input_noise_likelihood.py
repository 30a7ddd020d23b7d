"""A Gaussian likelihood whose noise depends on x, as an estimator has learned it."""

from typing import Any

import torch
from gpytorch.distributions import Distribution, MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from torch import Tensor
from torch.distributions import Independent, Normal

from cvgp.adapters.gpytorch.standardised_inputs import Standardise
from cvgp.errors import InvalidTypeError
from cvgp.gp.input_noise import InputNoise
from cvgp.gp.kernels import NOISE_FLOOR, gaussian_likelihood


class InputNoiseLikelihood(GaussianLikelihood):  # type: ignore[misc]
    """The noise at each x, and by what the variance of f is multiplied.

    The inputs are those of the call, ``likelihood(model(x), x)``. Where there are none, they are those that the
    distribution of f came from, if a model of this package made it.

    Parameters
    ----------
    constant
        The constant noise variance by which the model weighs rows, in the estimator's units.
    input_noise
        The noise in the estimator's units.
    standardise
        From the inputs of the model to the estimator's units; None if these are the same.
    y_scale
        One unit of the estimator's outputs in those of the model: [], or [Q] for tasks.
    """

    y_scale: Tensor

    def __init__(
        self,
        constant: float,
        input_noise: InputNoise,
        standardise: Standardise | None = None,
        y_scale: Tensor | None = None,
    ) -> None:
        scale = torch.ones((), dtype=torch.float64) if y_scale is None else y_scale
        unit = scale.square().mean().item()
        own = gaussian_likelihood(constant * unit, NOISE_FLOOR * unit)
        super().__init__(noise_constraint=own.noise_covar.raw_noise_constraint)
        self.double().noise = own.noise.detach()
        self.standardise = standardise
        self.register_buffer("y_scale", scale.clone())
        for name, value in input_noise._asdict().items():
            self.register_buffer(name, value.detach().cpu().clone())

    @property
    def input_noise(self) -> InputNoise:
        """The noise as the estimator holds it."""
        return InputNoise(*(getattr(self, name) for name in InputNoise._fields))

    def variance(self, x: Tensor) -> Tensor:
        """The noise of observations at x [..., n, D]: [..., n], or [..., n, Q] for tasks."""
        return self._in_units(self.input_noise.variance(self._standardised(x)))

    def row_noise(self, x: Tensor) -> Tensor:
        """The noise by which new rows at x [..., n, D] are weighed, as `CVGPRegressor.condition` weighs them."""
        known = self.input_noise
        constant: Tensor = self.noise.to(x.dtype)
        if not bool(known.base > 0):
            return constant.expand(x.shape[:-1])
        return constant + self._in_units(known.beyond_base(self._standardised(x)))

    def f_factor(self, f_var: Tensor) -> Tensor:
        """What variances of f, [..., n] or [..., n, Q] for tasks, are to be multiplied by."""
        return self.input_noise.f_factor(f_var / self.y_scale.to(f_var).square())

    def marginal(self, function_dist: MultivariateNormal, *params: Any, **kwargs: Any) -> MultivariateNormal:
        """Observations of f."""
        return super().marginal(function_dist, *_params(function_dist, params), **kwargs)

    def expected_log_prob(self, target: Tensor, input: MultivariateNormal, *params: Any, **kwargs: Any) -> Tensor:
        """The expected log density of each row."""
        expected: Tensor = super().expected_log_prob(target, input, *_params(input, params), **kwargs)
        return expected

    def forward(self, function_samples: Tensor, *params: Any, **kwargs: Any) -> Distribution:
        """Observations given values of f."""
        noise = self._shaped_noise_covar(function_samples.shape, *params, **kwargs).diagonal(dim1=-1, dim2=-2)
        given = Normal(function_samples, noise.reshape(function_samples.shape).sqrt())
        return Independent(given, 1) if self.y_scale.ndim else given

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, noise: Tensor | None = None, **_: Any
    ) -> DiagLinearOperator:
        if noise is None:
            if not params:
                raise InvalidTypeError(
                    "This noise depends on x, and values of f do not say where they are: call the likelihood with the "
                    "inputs, likelihood(model(x), x)."
                )
            (x,) = params[0] if isinstance(params[0], list | tuple) else (params[0],)
            noise = self.variance(x)
        noise = noise.expand(base_shape)
        return DiagLinearOperator(noise.flatten(-2) if self.y_scale.ndim else noise)

    def _standardised(self, x: Tensor) -> Tensor:
        return x if self.standardise is None else self.standardise(x)

    def _in_units(self, variance: Tensor) -> Tensor:
        unit = self.y_scale.to(variance).square()
        return variance[..., None] * unit if unit.ndim else variance * unit


def as_predicted(f: MultivariateNormal, x: Tensor, likelihood: Any) -> MultivariateNormal:
    """The posterior of f at x as the estimator predicts it, where the likelihood has learned how to correct it."""
    if not isinstance(likelihood, InputNoiseLikelihood):
        return f
    covariance = f.lazy_covariance_matrix
    variance = covariance.diagonal(dim1=-1, dim2=-2).clamp_min(0.0).reshape(f.mean.shape)
    root = likelihood.f_factor(variance).sqrt()
    diagonal = DiagLinearOperator(root.flatten(-len(f.event_shape)))
    return at_inputs(type(f)(f.mean, diagonal @ covariance @ diagonal), x)


def at_inputs(f: MultivariateNormal, x: Tensor) -> MultivariateNormal:
    """The same distribution, which knows the inputs that it is of."""
    f.inputs = x
    return f


def _params(f: MultivariateNormal, params: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the likelihood was called with, or the inputs of the distribution."""
    return params or tuple(known for known in [getattr(f, "inputs", None)] if known is not None)
