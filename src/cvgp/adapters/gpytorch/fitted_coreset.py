"""A coreset as a GPyTorch model with its likelihood: of given values, or of a fitted regressor."""

import warnings
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood, MultitaskGaussianLikelihood
from gpytorch.means import Mean, ZeroMean
from gpytorch.models import ApproximateGP
from gpytorch.variational import IndependentMultitaskVariationalStrategy
from torch import Tensor

from cvgp.adapters.gpytorch.coreset_distribution import CoresetVariationalDistribution
from cvgp.adapters.gpytorch.coreset_strategy import CoresetVariationalStrategy
from cvgp.adapters.gpytorch.exportable import check_exportable
from cvgp.adapters.gpytorch.input_noise_likelihood import InputNoiseLikelihood, as_predicted, at_inputs
from cvgp.adapters.gpytorch.standardised_inputs import Standardise
from cvgp.adapters.gpytorch.user_units import kernel_of, mean_of
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.units import ScaledGP
from cvgp.gp.kernels import NOISE_FLOOR, gaussian_likelihood, log_above


class CoresetGP(ApproximateGP):  # type: ignore[misc]
    """A GPyTorch model of weighted pseudo-observations, with its likelihood.

    Parameters
    ----------
    X_c : Tensor of shape [M, D]
        Pseudo-inputs.
    y_c : Tensor of shape [M] or [M, Q]
        Pseudo-targets, prior mean included. Several outputs are independent tasks.
    precision : Tensor of shape [M] or [M, Q]
        One over the noise variance of each pseudo-target.
    covar_module : gpytorch.kernels.Kernel
        The kernel; for several outputs it may have the batch shape [Q].
    mean_module : gpytorch.means.Mean or None
        The mean; zero if None.
    likelihood : gpytorch.likelihoods.Likelihood or None
        A Gaussian one if None. It is the attribute `likelihood`.
    learn_inducing_locations : bool
        Whether the pseudo-inputs are parameters.
    jitter_val : float or None
        See `CoresetVariationalStrategy`.

    Raises
    ------
    InvalidInputError
        If shapes do not fit, or a value cannot be used.

    Examples
    --------
    >>> import torch
    >>> from gpytorch.kernels import RBFKernel
    >>> from cvgp.adapters.gpytorch import CoresetGP
    >>> model = CoresetGP(torch.zeros(1, 1), torch.ones(1), torch.tensor([3.0]), RBFKernel()).eval()
    >>> prediction = model(torch.zeros(1, 1))
    >>> round(prediction.mean.item(), 4), round(prediction.variance.item(), 4)
    (0.75, 0.25)
    """

    def __init__(
        self,
        X_c: Tensor,
        y_c: Tensor,
        precision: Tensor,
        covar_module: Kernel,
        mean_module: Mean | None = None,
        likelihood: Likelihood | None = None,
        *,
        learn_inducing_locations: bool = True,
        jitter_val: float | None = 0.0,
    ) -> None:
        if X_c.ndim != 2 or y_c.ndim not in (1, 2) or len(y_c) != len(X_c):
            raise InvalidInputError(
                f"X_c must be [M, D] and y_c [M] or [M, Q]; got {tuple(X_c.shape)} and {tuple(y_c.shape)}."
            )
        if precision.shape not in (y_c.shape, y_c.shape[:1]):
            raise InvalidInputError(
                f"precision must be [M] or of the shape of y_c, {tuple(y_c.shape)}; got {tuple(precision.shape)}."
            )
        batch = y_c.shape[1:]
        sites = CoresetVariationalDistribution(len(X_c), batch_shape=batch).to(X_c)
        strategy = CoresetVariationalStrategy(self, X_c, sites, learn_inducing_locations, jitter_val)
        super().__init__(IndependentMultitaskVariationalStrategy(strategy, num_tasks=batch[0]) if batch else strategy)
        self.mean_module = ZeroMean() if mean_module is None else mean_module
        self.covar_module = covar_module
        if likelihood is None:
            likelihood = MultitaskGaussianLikelihood(num_tasks=batch[0]) if batch else GaussianLikelihood()
            likelihood = likelihood.to(X_c)
        self.likelihood = likelihood
        strategy.set_sites(y_c.mT if batch else y_c, precision.mT if precision.ndim == 2 else precision)

    def __call__(self, inputs: Tensor, prior: bool = False, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior of f at inputs `[..., B, D]`, or the prior."""
        x = inputs[:, None] if inputs.ndim == 1 else inputs
        f = at_inputs(super().__call__(x, prior=prior, **kwargs), x)
        return f if prior or self.training else as_predicted(f, x, self.likelihood)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior.

        Parameters
        ----------
        x : Tensor of shape [..., B, D]
            Where.

        Returns
        -------
        gpytorch.distributions.MultivariateNormal
            Of f, before any data.

        Raises
        ------
        RuntimeError
            If x does not fit the kernel.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> model = CoresetGP(torch.zeros(1, 1), torch.ones(1), torch.tensor([3.0]), RBFKernel())
        >>> model.forward(torch.zeros(2, 1)).mean.tolist()
        [0.0, 0.0]
        """
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    @classmethod
    def from_regressor(cls, r: CVGPRegressor) -> "CoresetGP":
        """Make a model of the coreset of a fitted regressor, in the units of its data.

        Parameters
        ----------
        r : CVGPRegressor
            Fitted. It stays as it is.

        Returns
        -------
        CoresetGP
            In float64 and in eval mode, with its likelihood. Several outputs are independent tasks.

        Raises
        ------
        NotFittedError
            If the regressor is not fitted.
        InvalidTypeError
            If it is something else.
        InvalidInputError
            If it models a transform of y, or was fitted to a table that is more than numbers.

        Warns
        -----
        CVGPWarning
            If predictions of the regressor use more than the coreset and Gaussian noise: neighbours, heavy tails, or
            outliers. The message says what is lost.

        Examples
        --------
        >>> import numpy as np, torch
        >>> from cvgp import CVGPRegressor
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> settings = {"neighbors": 0, "noise": "constant", "max_iter": 20, "random_state": 0}
        >>> regressor = CVGPRegressor(n_coreset=8, **settings).fit(X, 100 + np.sin(X[:, 0]))
        >>> model = CoresetGP.from_regressor(regressor)
        >>> [round(mean, 1) for mean in model(torch.tensor([[1.0], [2.0]], dtype=torch.float64)).mean.tolist()]
        [100.8, 100.9]
        """
        check_exportable(r)
        gp = r.gp_
        if gp.target.name != "identity":
            raise InvalidInputError(
                f"The regressor models y after the transform {gp.target.name!r}, which no Gaussian likelihood undoes. "
                "Fit it with target='identity', or transform y yourself before the fit."
            )
        _say_what_is_lost(gp)
        scaling = gp.scaling
        with torch.no_grad():
            w = gp.model.site_precision.cpu()
        y_scale = torch.tensor(scaling.y_scale)
        several = gp.model.y_c.ndim == 2
        model: CoresetGP = cls(
            torch.tensor(gp.coreset.X),
            torch.tensor(gp.coreset.y),
            w[:, None] / y_scale.square() if several else w / y_scale.square(),
            kernel_of(gp.model.kernel, scaling),
            mean_of(gp.model.mean, scaling),
            _likelihood(gp, several),
        ).eval()
        return model


def _likelihood(gp: ScaledGP, several: bool) -> Likelihood:
    """The learned noise in the user's units, with a floor in proportion."""
    noise, y_scale = torch.tensor(gp.noise_variance), torch.tensor(gp.scaling.y_scale)
    if gp.noise is not None:
        own, scale = gp.model.noise.item(), y_scale if several else y_scale[0]
        return InputNoiseLikelihood(own, gp.noise, Standardise(gp.scaling), scale)
    if not several:
        return gaussian_likelihood(noise.item(), NOISE_FLOOR * y_scale.square().item())
    floor = NOISE_FLOOR * y_scale.square().min().item()
    likelihood = MultitaskGaussianLikelihood(
        len(noise), noise_constraint=log_above(floor), has_global_noise=False
    ).double()
    likelihood.task_noises = noise
    return likelihood


def _say_what_is_lost(gp: ScaledGP) -> None:
    """Warn of what the regressor's predictions have beyond a coreset and Gaussian noise."""
    lost = []
    if gp.local is not None:
        lost.append(
            f"its {gp.local.kept.num_neighbours} neighbours (the model has the coreset alone, which stands for what "
            "rows say beyond their neighbours, so that its predictions are less accurate; fit with neighbors=0 for a "
            "coreset that explains all)"
        )
    if gp.tails is not None:
        lost.append("the heavy tails of its noise (that of the likelihood is normal)")
    if gp.outliers is not None:
        lost.append("the share of outliers (the likelihood is that of regular observations)")
    if lost:
        warnings.warn(f"The GPyTorch model leaves out of the regressor: {'; '.join(lost)}.", CVGPWarning, stacklevel=3)
