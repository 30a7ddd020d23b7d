"""The noise of observations: what a GPyTorch likelihood says of it, and one that depends on x."""

from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    Likelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from cvgp.errors import InvalidTypeError
from cvgp.gp.input_noise import InputNoise
from cvgp.gp.kernels import gaussian_likelihood


class InputNoiseLikelihood(GaussianLikelihood):  # type: ignore[misc]
    """A Gaussian likelihood whose noise depends on x, as an estimator has learned it; in the units of its model.

    Parameters
    ----------
    constant
        The constant noise variance by which the model weighs rows.
    input_noise
        The noise at each x, and by what the variance of f is multiplied.
    """

    def __init__(self, constant: float, input_noise: InputNoise) -> None:
        own = gaussian_likelihood(constant)
        super().__init__(noise_constraint=own.noise_covar.raw_noise_constraint)
        self.double().noise = own.noise.detach()
        for name, value in input_noise._asdict().items():
            self.register_buffer(name, value.detach().clone())

    @property
    def input_noise(self) -> InputNoise:
        """The noise as the estimator holds it."""
        return InputNoise(*(getattr(self, name) for name in InputNoise._fields))

    def row_noise(self, x: Tensor) -> Tensor:
        """The noise by which new rows at x [..., n, D] are weighed, as `CVGPRegressor.condition` weighs them."""
        known = self.input_noise
        constant: Tensor = self.noise.to(x.dtype)
        return constant + known.beyond_base(x) if bool(known.base > 0) else constant.expand(x.shape[:-1])

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, noise: Tensor | None = None, **_: Any
    ) -> DiagLinearOperator:
        if noise is None:
            if not params:
                raise InvalidTypeError(
                    "This noise depends on x: call the likelihood with the inputs, likelihood(f, X)."
                )
            (x,) = params[0] if isinstance(params[0], list | tuple) else (params[0],)
            noise = self.input_noise.variance(x)
        return DiagLinearOperator(noise.expand(base_shape))


def check_gaussian(likelihood: Likelihood) -> None:
    """Raise unless the likelihood knows the Gaussian noise of observations at new x."""
    usable = isinstance(likelihood, _GaussianLikelihoodBase)
    if usable and not isinstance(likelihood, FixedNoiseGaussianLikelihood | MultitaskGaussianLikelihood):
        return
    raise InvalidTypeError(
        f"{type(likelihood).__name__} does not say how noisy a new observation is, so there is nothing to fantasise, "
        "condition or predict observations with. Give the model a gpytorch.likelihoods.GaussianLikelihood (with "
        "batch_shape [m] for a noise per output), or pass the noise variances themselves."
    )


def observation_noise(likelihood: Likelihood, x: Tensor) -> Tensor:
    """Noise variances of new observations at x [..., n, D], as [..., Q, n]."""
    check_gaussian(likelihood)
    points = x.unsqueeze(-3)
    zeros = points.new_zeros(points.shape[:-1])
    silent = MultivariateNormal(zeros, DiagLinearOperator(zeros))
    variances: Tensor = likelihood(silent, points).lazy_covariance_matrix.diagonal(dim1=-1, dim2=-2)
    return variances


def row_noise(likelihood: Likelihood, x: Tensor) -> Tensor:
    """Noise variances by which rows at x [..., n, D] join a posterior, as [..., Q, n]."""
    if isinstance(likelihood, InputNoiseLikelihood):
        return likelihood.row_noise(x.unsqueeze(-3))
    return observation_noise(likelihood, x)
