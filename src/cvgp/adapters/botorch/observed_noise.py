"""The noise of observations: what a GPyTorch likelihood says of it."""

from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    Likelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from cvgp.adapters.gpytorch.input_noise_likelihood import InputNoiseLikelihood
from cvgp.errors import InvalidTypeError


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
