"""The posterior of f at one set of points."""

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp import posterior
from cvgp.gp.kernels import diagonal, evaluate, prior_mean
from cvgp.gp.linalg import safe_cholesky

if TYPE_CHECKING:
    from cvgp.gp.process import CoresetProcess


def normal(shape: tuple[int, int], generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal numbers in float64 from the generator's device, on the device of `like`."""
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=generator.device).to(like.device)


class Prediction:
    """The posterior of f at one set of points; each quantity is computed when it is first asked for.

    Calling a `CoresetProcess` makes one.

    Examples
    --------
    >>> import cvgp, torch
    >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0]))
    >>> prediction = model.posterior(torch.linspace(0, 1, 5, dtype=torch.float64)[:, None])
    >>> prediction.mean.shape, prediction.covariance_matrix.shape
    (torch.Size([5]), torch.Size([5, 5]))
    """

    def __init__(self, process: "CoresetProcess", x: Tensor) -> None:
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
        """Return the joint posterior as GPyTorch's MultivariateNormal, for one output.

        Returns
        -------
        gpytorch.distributions.MultivariateNormal
            Of the mean and the joint covariance of f.

        Raises
        ------
        InvalidInputError
            If there are several outputs.

        Examples
        --------
        >>> import cvgp, torch
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0]))
        >>> x = torch.tensor([[0.0], [0.5]], dtype=torch.float64)
        >>> model.posterior(x).distribution().event_shape
        torch.Size([2])
        """
        if self._process.factor.y_c.ndim != 1:
            raise InvalidInputError("distribution() is for one output; read mean and covariance_matrix instead.")
        return MultivariateNormal(self.mean, self.covariance_matrix)

    def sample(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draw f at these points jointly and exactly.

        Parameters
        ----------
        num_samples : int
            How many draws S.
        generator : torch.Generator
            Where random numbers come from.

        Returns
        -------
        tensor of shape [S, B]
            One draw per row.

        Raises
        ------
        InvalidInputError
            If x is not [B, D], or there are several outputs.

        Examples
        --------
        >>> import cvgp, torch
        >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0]))
        >>> prediction = model.posterior(torch.linspace(0, 1, 5, dtype=torch.float64)[:, None])
        >>> prediction.sample(3, torch.Generator().manual_seed(0)).shape
        torch.Size([3, 5])
        """
        if self._x.ndim != 2 or self._process.factor.y_c.ndim != 1:
            raise InvalidInputError(f"sample() needs x of [B, D] and one output; got x {tuple(self._x.shape)}.")
        points = self._x.to(torch.float64)
        K = Prediction(self._process, points).covariance_matrix
        # A joint covariance of nearby points is singular to rounding; 1e-10 of its scale is below what is shown.
        identity = torch.eye(len(K), dtype=K.dtype, device=K.device)
        prior_scale = diagonal(self._process.kernel, points).mean()
        L = safe_cholesky(K + 1e-10 * prior_scale * identity, "posterior covariance")
        draws = normal((num_samples, len(K)), generator, K)
        return self.mean + (draws @ L.mT).to(self._x.dtype)
