"""The posterior over functions: a kernel, a mean and a factorized coreset, a value which never changes."""

from functools import cached_property

import torch
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


class Prediction:
    """The posterior of f at one set of points; each quantity is computed when it is first needed.

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
        return self._process._cross_matrix(self._x)

    @cached_property
    def mean(self) -> Tensor:
        """Posterior mean `[..., B]` or `[..., B, Q]`."""
        f_mean = posterior.mean(self._process.factor, self._cross)
        return f_mean + prior_mean(self._process.mean, self._x, f_mean)

    @cached_property
    def variance(self) -> Tensor:
        """Marginal variance of f `[..., B]`; the noise is not in it."""
        return posterior.variance(self._process.factor, self._cross, self._process._prior_variance(self._x))

    @property
    def stddev(self) -> Tensor:
        """Square root of the variance."""
        return self.variance.sqrt()

    @cached_property
    def covariance_matrix(self) -> Tensor:
        """Joint covariance of f `[..., B, B]`."""
        K_xx = evaluate(self._process.kernel, self._x, self._x)
        return posterior.covariance(self._process.factor, self._cross, K_xx)

    def sample(self, num_samples: int, generator: torch.Generator) -> Tensor:
        """Draw f at these points [B, D] jointly and exactly, for one output.

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
        draws = torch.randn(num_samples, len(K), generator=generator, dtype=K.dtype, device=generator.device)
        return self.mean + (draws.to(K.device) @ L.mT).to(self._x.dtype)


class CoresetProcess:
    """The posterior over functions: an exact GP on weighted pseudo-data, which never changes.

    `cvgp.CVGP.process` makes one. Everything is in the units of that model.

    Parameters
    ----------
    kernel, mean : gpytorch kernel and mean
        Their parameters are used as they are.
    X_c : tensor of shape [M, D]
        Pseudo-inputs.
    factor : Factor
        The factorized posterior of the pseudo-outputs minus the prior mean.

    Examples
    --------
    >>> import cvgp, torch
    >>> model = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0]))
    >>> process = model.process()
    >>> x = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> process(x).mean.shape
    torch.Size([5])
    """

    def __init__(self, kernel: Kernel, mean: Mean, X_c: Tensor, factor: Factor) -> None:
        self.kernel = kernel
        self.mean = mean
        self.X_c = X_c
        self.factor = factor
        # What predictions without gradients need of the kernel, by precision: None where it has no fused form.
        self._placed: dict[torch.dtype, Placed | None] = {}

    def __call__(self, x: Tensor) -> Prediction:
        """Return the posterior of f at x `[..., B, D]`, on the device of the model and in the precision of x."""
        check_inputs(x, self.X_c)
        check_finite("x", x)
        return Prediction(self, x)

    def _cross_matrix(self, x: Tensor) -> Tensor:
        """The kernel between the pseudo-inputs and x `[..., B, D]`: `[..., M, B]` in the precision of x."""
        placed = self._placed_for(x)
        return cross_matrix(self.kernel, self.X_c, x) if placed is None else covariance_at(placed, x).K

    def _prior_variance(self, x: Tensor) -> Tensor:
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
        """Return the KL divergence of the posterior from the prior.

        Returns
        -------
        tensor of shape []
            Nats, at least 0.

        Examples
        --------
        >>> import cvgp
        >>> process = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0])).process()
        >>> bool(process.kl() > 0)
        True
        """
        return posterior.kl_divergence(self.factor)

    def condition(self, x: Tensor, y: Tensor, noise: Tensor) -> "CoresetProcess":
        """Return the process that has also seen some observations, in closed form.

        Parameters
        ----------
        x : tensor of shape [n, D]
            Inputs.
        y : tensor of shape [n] or [n, Q]
            Outputs, shaped as the pseudo-outputs are.
        noise : tensor of shape [] or [n]
            Their noise variances.

        Returns
        -------
        CoresetProcess
            A process of M + n points.

        Examples
        --------
        >>> import cvgp, torch
        >>> process = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0])).process()
        >>> x, y = torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64)
        >>> after = process.condition(x, y, noise=torch.tensor(1e-6, dtype=torch.float64))
        >>> round(after(x).mean.item(), 1)
        3.0
        """
        check_inputs(x, self.X_c)
        expected = (len(x), *self.factor.y_c.shape[1:])
        if x.ndim != 2 or tuple(y.shape) != expected or tuple(noise.shape) not in ((), (len(x),)):
            raise InvalidInputError(
                f"x must be [n, D], y {list(expected)} and noise [] or [n]; "
                f"got {tuple(x.shape)}, {tuple(y.shape)} and {tuple(noise.shape)}."
            )
        check_finite("x", x)
        check_finite("y", y)
        x = x.to(self.X_c.dtype)
        points = x.to(torch.float64)  # what is factorized is float64, whatever the model's precision
        factor = posterior.condition(
            self.factor,
            cross_matrix(self.kernel, self.X_c, points),
            square_matrix(self.kernel, points),
            y - prior_mean(self.mean, points, y),
            noise.to(torch.float64).reciprocal().expand(len(x)),
        )
        return CoresetProcess(self.kernel, self.mean, torch.cat([self.X_c, x]), factor)
