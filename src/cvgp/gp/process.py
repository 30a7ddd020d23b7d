"""The posterior over functions: a kernel, a mean and a factorised coreset, to be asked anywhere.

It is a value: it holds no parameters to train and never changes. Conditioning returns a larger one.
"""

from collections.abc import Callable
from functools import cached_property

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp import posterior
from cvgp.gp.kernels import (
    check_finite,
    check_inputs,
    cross_matrix,
    diagonal,
    evaluate,
    prior_mean,
    square_matrix,
    stationary_form,
)
from cvgp.gp.linalg import safe_cholesky
from cvgp.gp.posterior import Factor
from cvgp.gp.stationary import Placed, covariance_at, place

__all__ = ["CoresetProcess", "Prediction"]


class CoresetProcess:
    """An exact GP on weighted pseudo-data.

    Parameters
    ----------
    kernel, mean
        GPyTorch modules; their parameters are used as they are.
    X_c
        Pseudo-inputs `[M, D]`.
    factor
        The factorised posterior, its pseudo-outputs minus the prior mean.
    """

    def __init__(self, kernel: Kernel, mean: Mean, X_c: Tensor, factor: Factor) -> None:
        self.kernel = kernel
        self.mean = mean
        self.X_c = X_c
        self.factor = factor
        # What predictions without gradients need of the kernel, by precision: None where it has no fused form.
        self._placed: dict[torch.dtype, Placed | None] = {}

    def __call__(self, x: Tensor) -> "Prediction":
        """The posterior of f at x `[..., B, D]`."""
        check_inputs(x, self.X_c)
        check_finite("x", x)
        return Prediction(self, x)

    def cross_matrix(self, x: Tensor) -> Tensor:
        """The kernel between the pseudo-inputs and x, `[..., M, B]` in the precision of x."""
        placed = self._placed_for(x)
        return cross_matrix(self.kernel, self.X_c, x) if placed is None else covariance_at(placed, x).K

    def prior_variance(self, x: Tensor) -> Tensor:
        """The prior variance of f `[..., B]`."""
        placed = self._placed_for(x)
        if placed is None:
            return diagonal(self.kernel, x)
        return placed.log_s.exp().to(x.dtype).expand(x.shape[:-1])

    def _placed_for(self, x: Tensor) -> Placed | None:
        if torch.is_grad_enabled() or x.ndim != 2:
            return None  # autograd wants the kernel itself
        if x.dtype not in self._placed:
            form = stationary_form(self.kernel, self.X_c.shape[1])
            self._placed[x.dtype] = None if form is None else place(form, self.X_c, x.dtype)
        return self._placed[x.dtype]

    def kl(self) -> Tensor:
        """KL of the posterior from the prior, in nats."""
        return posterior.kl_divergence(self.factor)

    def condition(self, x: Tensor, y: Tensor, noise: Tensor) -> "CoresetProcess":
        """Add observations in closed form, in O((M + n)^3).

        Parameters
        ----------
        x, y
            Inputs `[n, D]` and outputs `[n]` (or `[n, Q]`, as the pseudo-outputs are).
        noise
            Their noise variances, `[]` or `[n]`.
        """
        check_inputs(x, self.X_c)
        expected = (len(x), *self.factor.y_c.shape[1:])
        if x.ndim != 2 or tuple(y.shape) != expected or tuple(noise.shape) not in ((), (len(x),)):
            raise InvalidInputError(
                f"x must be [n, D], y {list(expected)} and noise [] or [n]; "
                f"got {tuple(x.shape)}, {tuple(y.shape)} and {tuple(noise.shape)}."
            )
        if y.device != x.device or noise.device != x.device:
            raise InvalidInputError(
                f"x, y and noise must be on one device; got {x.device}, {y.device} and {noise.device}. "
                "Move them with .to(device)."
            )
        check_finite("x", x)
        check_finite("y", y)
        x = x.to(self.X_c.dtype)
        points = x.to(torch.float64)  # what is factorised is float64, whatever the model's precision
        factor = posterior.condition(
            self.factor,
            cross_matrix(self.kernel, self.X_c, points),
            square_matrix(self.kernel, points),
            y - prior_mean(self.mean, points, y),
            noise.to(torch.float64).reciprocal().expand(len(x)),
        )
        return CoresetProcess(self.kernel, self.mean, torch.cat([self.X_c, x]), factor)

    def sample_functions(
        self, num_samples: int, *, num_features: int = 1024, generator: torch.Generator
    ) -> Callable[[Tensor], Tensor]:
        """Draw functions that can be evaluated anywhere, again and again: x [B, D] -> values [S, B].

        Matheron's rule turns draws from the prior into draws from the posterior. Prior draws come from the kernel's
        own features where it has finitely many, and from `num_features` random Fourier pairs for a stationary
        kernel, whose error falls as one over the square root of their number.
        """
        from cvgp.gp.features import feature_map, random_features  # only for samples, so no fit or prediction loads it

        num_dims = self.X_c.shape[-1]
        form = stationary_form(self.kernel, num_dims)
        features = (
            feature_map(self.kernel, num_dims) if form is None else random_features(form, num_features, generator)
        )
        phi_c = features(self.X_c).detach().to(torch.float64)  # [M, F]
        weights = self._normal((num_samples, phi_c.shape[-1]), generator)  # [S, F]
        site_noise = self._normal((num_samples, len(self.X_c)), generator)
        update = posterior.pathwise_weights(self.factor, weights @ phi_c.mT, site_noise).detach()  # [S, M]

        def evaluate(x: Tensor) -> Tensor:
            with torch.no_grad():
                prior = weights.to(x.dtype) @ features(x).to(x.dtype).mT
                correction = update.to(x.dtype) @ cross_matrix(self.kernel, self.X_c, x)
                return prior_mean(self.mean, x, self.factor.y_c) + prior + correction

        return evaluate

    def _normal(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        draws = torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device)
        return draws.to(self.X_c.device)


class Prediction:
    """The posterior of f at one set of points; each quantity is computed when it is first asked for."""

    def __init__(self, process: CoresetProcess, x: Tensor) -> None:
        self._process = process
        self._x = x

    @cached_property
    def _cross(self) -> Tensor:
        return self._process.cross_matrix(self._x)

    @cached_property
    def mean(self) -> Tensor:
        """Posterior mean `[..., B]` or `[..., B, Q]`."""
        f_mean = posterior.mean(self._process.factor, self._cross)
        return f_mean + prior_mean(self._process.mean, self._x, f_mean)

    @cached_property
    def variance(self) -> Tensor:
        """Marginal variance of f `[..., B]`; the noise is not in it."""
        return posterior.variance(self._process.factor, self._cross, self._process.prior_variance(self._x))

    @property
    def stddev(self) -> Tensor:
        """Square root of the variance."""
        return self.variance.sqrt()

    @cached_property
    def covariance_matrix(self) -> Tensor:
        """Joint covariance of f `[..., B, B]`."""
        K_xx = evaluate(self._process.kernel, self._x, self._x)
        return posterior.covariance(self._process.factor, self._cross, K_xx)

    def distribution(self) -> MultivariateNormal:
        """The joint posterior as GPyTorch's MultivariateNormal, for one output."""
        if self._process.factor.y_c.ndim != 1:
            raise InvalidInputError("distribution() is for one output; read mean and covariance_matrix instead.")
        return MultivariateNormal(self.mean, self.covariance_matrix)

    def sample(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Exact joint draws of f [S, B] at these points."""
        if self._x.ndim != 2 or self._process.factor.y_c.ndim != 1:
            raise InvalidInputError(f"sample() needs x of [B, D] and one output; got x {tuple(self._x.shape)}.")
        points = self._x.to(torch.float64)
        K = Prediction(self._process, points).covariance_matrix
        # A joint covariance of nearby points is singular to rounding; 1e-10 of its scale is below what is shown.
        identity = torch.eye(len(K), dtype=K.dtype, device=K.device)
        prior_scale = diagonal(self._process.kernel, points).mean()
        L = safe_cholesky(K + 1e-10 * prior_scale * identity, "posterior covariance")
        draws = self._process._normal((num_samples, len(K)), generator)
        return self.mean + (draws @ L.mT).to(self._x.dtype)
