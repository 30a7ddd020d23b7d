"""The posterior over functions: a kernel, a mean and a factorised coreset, to be asked anywhere.

It is a value: it holds no parameters to train and never changes. Conditioning returns a larger one.
"""

from collections.abc import Callable

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
    prior_mean,
    square_matrix,
    stationary_form,
)
from cvgp.gp.posterior import Factor
from cvgp.gp.prediction import Prediction, normal
from cvgp.gp.stationary import Placed, covariance_at, place

__all__ = ["CoresetProcess", "Prediction"]


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
        The factorised posterior of the pseudo-outputs minus the prior mean.

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
        """Return the posterior of f at some points.

        Parameters
        ----------
        x : tensor of shape [..., B, D]
            Where, on the device of the model. Its precision is that of the results.

        Returns
        -------
        Prediction
            Mean, variance, covariance and draws, each computed when it is first asked for.

        Raises
        ------
        InvalidInputError
            If x is of another shape or device, or holds NaN or infinity.

        Examples
        --------
        >>> import cvgp, torch
        >>> process = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0])).process()
        >>> process(torch.zeros(5, 1, dtype=torch.float64)).variance.shape
        torch.Size([5])
        """
        check_inputs(x, self.X_c)
        check_finite("x", x)
        return Prediction(self, x)

    def cross_matrix(self, x: Tensor) -> Tensor:
        """Return the kernel between the pseudo-inputs and some points.

        Parameters
        ----------
        x : tensor of shape [..., B, D]
            The points.

        Returns
        -------
        tensor of shape [..., M, B]
            In the precision of x.

        Examples
        --------
        >>> import cvgp, torch
        >>> process = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0])).process()
        >>> process.cross_matrix(torch.zeros(5, 1, dtype=torch.float64)).shape
        torch.Size([2, 5])
        """
        placed = self._placed_for(x)
        return cross_matrix(self.kernel, self.X_c, x) if placed is None else covariance_at(placed, x).K

    def prior_variance(self, x: Tensor) -> Tensor:
        """Return the prior variance of f at some points.

        Parameters
        ----------
        x : tensor of shape [..., B, D]
            The points.

        Returns
        -------
        tensor of shape [..., B]
            In the precision of x.

        Examples
        --------
        >>> import cvgp, torch
        >>> process = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0])).process()
        >>> process.prior_variance(torch.zeros(5, 1, dtype=torch.float64)).shape
        torch.Size([5])
        """
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

        This process stays as it is. The cost is O((M + n)^3).

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

        Raises
        ------
        InvalidInputError
            If shapes or devices do not fit, or a value is NaN or infinite.

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
        """Draw functions that can be evaluated anywhere, again and again.

        Matheron's rule turns draws from the prior into draws from the posterior. Prior draws come from the kernel's
        own features where it has finitely many, and from `num_features` random Fourier pairs for a stationary
        kernel, whose error falls as one over the square root of their number. In a sum, each term has its own.

        Parameters
        ----------
        num_samples : int
            How many functions S.
        num_features : int
            Pairs of Fourier features, for a stationary kernel.
        generator : torch.Generator
            Where random numbers come from.

        Returns
        -------
        function
            From x [B, D] to the values [S, B] of the same S functions.

        Raises
        ------
        InvalidInputError
            If the kernel has neither a stationary form nor finitely many features.

        Examples
        --------
        >>> import cvgp, torch
        >>> process = cvgp.CVGP(cvgp.Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0])).process()
        >>> draw = process.sample_functions(3, generator=torch.Generator().manual_seed(0))
        >>> draw(torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]).shape
        torch.Size([3, 5])
        """
        from cvgp.gp.features import prior_features  # only for samples, so no fit or prediction loads it

        features = prior_features(self.kernel, self.X_c.shape[-1], num_features, generator)
        phi_c = features(self.X_c).detach().to(torch.float64)  # [M, F]
        weights = normal((num_samples, phi_c.shape[-1]), generator, self.X_c)  # [S, F]
        site_noise = normal((num_samples, len(self.X_c)), generator, self.X_c)
        update = posterior.pathwise_weights(self.factor, weights @ phi_c.mT, site_noise).detach()  # [S, M]

        def evaluate(x: Tensor) -> Tensor:
            with torch.no_grad():
                prior = weights.to(x.dtype) @ features(x).to(x.dtype).mT
                correction = update.to(x.dtype) @ cross_matrix(self.kernel, self.X_c, x)
                return prior_mean(self.mean, x, self.factor.y_c) + prior + correction

        return evaluate
