r"""The same posterior over the weights of explicit features (paper, eq. coreset_posterior_wc).

For :math:`k(x, x') = \phi(x)^T \phi(x')` the GP is Bayesian linear regression with weights :math:`v \sim N(0, I)`, and

.. math:: q(v) = N(\Phi_c^T A y_c,\; I - \Phi_c^T A \Phi_c)

gives the predictions and the KL of function space. It tells which features matter.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, PolynomialKernel, RFFKernel, ScaleKernel
from torch import Tensor

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp.kernels import evaluate, stationary_form
from cvgp.gp.posterior import factorize
from cvgp.gp.stationary import FAMILIES, StationaryKernel


class FeatureMap(NamedTuple):
    """phi(x) = scale * raw(x), so that a kernel is the inner product of features [B, F]."""

    raw: Callable[[Tensor], Tensor]  # [..., B, D] -> [..., B, F]
    scale: Tensor  # [F]

    def __call__(self, x: Tensor) -> Tensor:
        """Features with a standard normal prior on their weights."""
        return self.raw(x) * self.scale


class WeightPosterior(NamedTuple):
    """q(v) for weights v with prior N(0, I)."""

    mean: Tensor  # [F]
    covariance: Tensor  # [F, F]
    kl: Tensor  # []


def weight_posterior(Phi_c: Tensor, w: Tensor, y_c: Tensor) -> WeightPosterior:
    """Posterior over feature weights from features at the pseudo-inputs `[M, F]`, precisions and outputs `[M]`."""
    if y_c.ndim != 1:
        raise InvalidInputError(
            f"The weights of one output come from y_c of shape [M]; got {tuple(y_c.shape)}. Take each output by itself."
        )
    Phi_c = Phi_c.to(torch.float64)
    factor = factorize(Phi_c @ Phi_c.mT, w, y_c)
    T_Phi = factor.T @ Phi_c  # [M, F]
    mean = Phi_c.mT @ factor.alpha
    identity = torch.eye(Phi_c.shape[1], dtype=torch.float64, device=Phi_c.device)
    # log|S| = -log|B| by Sylvester's determinant identity, and tr(S) - F = -|T Phi_c|^2.
    kl = 0.5 * (mean.square().sum() - T_Phi.square().sum() + factor.log_det_B)
    return WeightPosterior(mean, identity - T_Phi.mT @ T_Phi, kl)


def feature_map(kernel: Kernel, num_dims: int) -> FeatureMap:
    """Explicit features of a linear, polynomial or random-feature kernel, scaled or summed."""
    if kernel.active_dims is None:
        return _features(kernel, num_dims)
    columns = kernel.active_dims
    seen = _features(kernel, len(columns))
    return seen._replace(raw=lambda x: seen.raw(x[..., columns]))


def _features(kernel: Kernel, num_dims: int) -> FeatureMap:
    """Features of a kernel's forward, which sees its active dimensions only."""
    if isinstance(kernel, ScaleKernel):
        base = _features(kernel.base_kernel, num_dims)  # it has taken over the base's active dimensions
        return base._replace(scale=base.scale * kernel.outputscale.sqrt())
    if isinstance(kernel, AdditiveKernel):
        return _concatenate([feature_map(part, num_dims) for part in kernel.kernels])
    if isinstance(kernel, LinearKernel):
        return FeatureMap(lambda x: x, kernel.variance.reshape(-1).sqrt().expand(num_dims))
    if isinstance(kernel, PolynomialKernel):
        return _polynomial_features(kernel, num_dims)
    if isinstance(kernel, RFFKernel):
        return _gpytorch_random_features(kernel, num_dims)
    raise InvalidTypeError(
        f"{type(kernel).__name__} has no finite feature map. Weight space is for LinearKernel, PolynomialKernel and "
        "RFFKernel, scaled or summed; for a stationary kernel use random_features to approximate it."
    )


def prior_features(kernel: Kernel, num_dims: int, num_features: int, generator: torch.Generator) -> FeatureMap:
    """Features to draw functions of the prior with: random ones for each stationary term, exact ones for the others."""
    form = stationary_form(kernel, num_dims)
    if form is not None:
        return random_features(form, num_features, generator)
    if type(kernel) is AdditiveKernel and kernel.active_dims is None:
        return _concatenate([prior_features(term, num_dims, num_features, generator) for term in kernel.kernels])
    return feature_map(kernel, num_dims)


def random_features(kernel: StationaryKernel, num_features: int, generator: torch.Generator) -> FeatureMap:
    """Random Fourier features of a stationary kernel: num_features cosines and as many sines.

    Frequencies follow the kernel's spectral density: normal for the RBF, Student t with 2 nu degrees of freedom for
    a Matern kernel, and a gamma scale mixture of normals for the rational quadratic.
    """
    precision_shape = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    scale = kernel.inverse_lengthscale.detach().to(torch.float64)
    frequencies = torch.randn(
        num_features, len(scale), generator=generator, dtype=torch.float64, device=generator.device
    )
    name = next(name for name, family in FAMILIES.items() if family is kernel.family)
    if name in precision_shape:
        frequencies = frequencies / _gamma(precision_shape[name], num_features, generator).sqrt()[:, None]
    elif name == "rq":
        frequencies = frequencies * _gamma(kernel.shape.item(), num_features, generator).sqrt()[:, None]
    return _fourier(frequencies.to(scale.device) * scale, kernel.outputscale.detach().to(torch.float64))


def _gamma(shape: float, count: int, generator: torch.Generator) -> Tensor:
    """Gamma draws with mean one; torch draws them without a generator only, so NumPy is seeded from it."""
    seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
    return torch.from_numpy(np.random.default_rng(seed).gamma(shape, 1.0 / shape, count)).to(generator.device)


def _fourier(frequencies: Tensor, outputscale: Tensor) -> FeatureMap:
    count = len(frequencies)

    def raw(x: Tensor) -> Tensor:
        phase = x.to(frequencies.dtype) @ frequencies.mT
        return torch.cat([phase.cos(), phase.sin()], dim=-1)

    return FeatureMap(raw, (outputscale / count).sqrt().expand(2 * count))


def _gpytorch_random_features(kernel: RFFKernel, num_dims: int) -> FeatureMap:
    if not hasattr(kernel, "randn_weights"):
        # Without num_dims, GPyTorch draws the frequencies when the kernel is first evaluated.
        evaluate(kernel, torch.zeros(1, num_dims, dtype=kernel.dtype, device=kernel.device))
    frequencies = (kernel.randn_weights / kernel.lengthscale.mT).mT  # [F, D]
    return _fourier(frequencies, torch.ones((), dtype=frequencies.dtype, device=frequencies.device))


def _polynomial_features(kernel: PolynomialKernel, num_dims: int) -> FeatureMap:
    """(x . x' + c)^p as monomials with square-root multinomial coefficients."""
    power, offset = int(kernel.power), kernel.offset.reshape(())
    exponents = _compositions(power, num_dims + 1)  # the last part is the constant's power
    counts = torch.tensor(
        [math.factorial(power) / math.prod(math.factorial(part) for part in e) for e in exponents],
        dtype=offset.dtype,
        device=offset.device,
    )
    constant_power = torch.tensor([float(e[-1]) for e in exponents], dtype=offset.dtype, device=offset.device)
    powers = torch.tensor([e[:-1] for e in exponents], device=offset.device)  # [F, D]

    def raw(x: Tensor) -> Tensor:
        return (x.unsqueeze(-2) ** powers).prod(-1)

    return FeatureMap(raw, (counts * offset**constant_power).sqrt())


def _compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """All ways to write `total` as an ordered sum of `parts` whole numbers."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(total, -1, -1) for rest in _compositions(total - first, parts - 1)]


def _concatenate(parts: list[FeatureMap]) -> FeatureMap:
    return FeatureMap(
        lambda x: torch.cat([part.raw(x) for part in parts], dim=-1),
        torch.cat([part.scale for part in parts]),
    )
