r"""The coreset posterior as a variational strategy of GPyTorch.

The process is that of an exact GP that saw M pseudo-targets y_c at the inducing points, each with its own precision w:
:math:`q(f) = N(m_x + K_{cx}^T A (y_c - m_c), K_{xx} - K_{cx}^T A K_{cx})` with :math:`A = (K_{cc} + W^{-1})^{-1}`.
The algebra is that of :mod:`cvgp.gp.marginals` where only the variances at single points are asked for, which is so in
training, and that of :mod:`cvgp.gp.posterior` elsewhere.
"""

from typing import Any

from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.models import ExactGP
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator
from torch import Tensor

from cvgp.adapters.gpytorch.conditioned_gp import condition_strategy
from cvgp.adapters.gpytorch.coreset_distribution import CoresetVariationalDistribution
from cvgp.adapters.gpytorch.coreset_normal import CoresetNormal, posterior_at
from cvgp.adapters.gpytorch.joint_prior import JointPrior, prior_at_points
from cvgp.adapters.gpytorch.last_call import LastCall, gradients_flow
from cvgp.adapters.gpytorch.site_strategy import SiteStrategy
from cvgp.errors import InvalidInputError
from cvgp.gp import posterior
from cvgp.gp.marginals import marginals
from cvgp.gp.posterior import Factor


class CoresetVariationalStrategy(SiteStrategy):
    """The posterior of an exact GP on M weighted pseudo-targets, in the place of GPyTorch's VariationalStrategy.

    Parameters
    ----------
    model : gpytorch.models.ApproximateGP
        The model whose `forward` is the prior.
    inducing_points : Tensor of shape [..., M, D]
        Where the pseudo-inputs X_c start.
    variational_distribution : CoresetVariationalDistribution
        The pseudo-targets and their precisions.
    learn_inducing_locations : bool
        Whether the pseudo-inputs are parameters.
    jitter_val : float or None
        The smallest variance of a site: a precision w counts as w / (1 + jitter_val w). None is
        ``gpytorch.settings.variational_cholesky_jitter``, and 0 is allowed, since nothing is factorised but
        I + R K_cc R.

    Raises
    ------
    InvalidTypeError
        If the variational distribution is another one.
    InvalidInputError
        If the points do not fit the distribution, or `jitter_val` is negative.

    Examples
    --------
    >>> import gpytorch, torch
    >>> from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
    >>> class Model(gpytorch.models.ApproximateGP):
    ...     def __init__(self, inducing_points):
    ...         sites = CoresetVariationalDistribution(inducing_points.size(-2))
    ...         super().__init__(CoresetVariationalStrategy(self, inducing_points, sites))
    ...         self.mean_module = gpytorch.means.ConstantMean()
    ...         self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    ...     def forward(self, x):
    ...         return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
    >>> model, likelihood = Model(torch.linspace(0, 1, 5)[:, None]), gpytorch.likelihoods.GaussianLikelihood()
    >>> x = torch.linspace(0, 1, 20)[:, None]
    >>> objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=20)
    >>> loss = -objective(model(x), torch.sin(6 * x[:, 0]))
    >>> loss.backward()
    """

    has_fantasy_strategy = True

    def __init__(
        self,
        model: Any,
        inducing_points: Tensor,
        variational_distribution: CoresetVariationalDistribution,
        learn_inducing_locations: bool = True,
        jitter_val: float | None = None,
    ) -> None:
        super().__init__(model, inducing_points, variational_distribution, learn_inducing_locations, jitter_val)
        self._last: LastCall | None = None

    @property
    def prior_distribution(self) -> MultivariateNormal:
        """The prior at the pseudo-inputs."""
        K_cc, mean = prior_at_points(self.model, self.inducing_points)
        return MultivariateNormal(mean, to_linear_operator(K_cc.to(mean.dtype)))

    @property
    def variational_distribution(self) -> CoresetNormal:
        """The posterior at the pseudo-inputs."""
        last = self._last_call()
        if last is not None and last.factor is not None:
            return CoresetNormal.of(last.factor, last.prior_mean, last.kl)
        K_cc, mean = prior_at_points(self.model, self.inducing_points)
        return CoresetNormal.of(self._factor(K_cc, mean), mean)

    def kl_divergence(self) -> Tensor:
        """Return the KL divergence of the posterior from the prior at the pseudo-inputs.

        Returns
        -------
        Tensor of shape [...]
            Nats: one number for each process of the batch, however many batches of data there are.

        Raises
        ------
        FactorisationError
            If the kernel has NaN or infinite values, or is not positive definite.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> model = CoresetGP(torch.zeros(1, 1), torch.ones(1), torch.ones(1), RBFKernel())
        >>> round(model.variational_strategy.kl_divergence().item(), 4)  # (log 2 - 1/2 + 1/4) / 2
        0.2216
        """
        last = self._last_call()
        if last is not None and last.kl is not None:
            return last.kl
        K_cc, mean = prior_at_points(self.model, self.inducing_points)
        nowhere = mean.new_empty(*K_cc.shape[:-1], 0)
        kl = marginals(K_cc, nowhere, nowhere[..., 0, :], self._residual(mean), self.log_site_precision).kl
        return kl.to(mean.dtype)

    def get_fantasy_model(
        self, inputs: Tensor, targets: Tensor, mean_module: Any = None, covar_module: Any = None, **kwargs: Any
    ) -> ExactGP:
        """Return the posterior that has also seen new rows, in closed form. This model stays as it is.

        The rows become points with the precision one over the noise of ``model.likelihood``.

        Parameters
        ----------
        inputs : Tensor of shape [..., n, D]
            New inputs.
        targets : Tensor of shape [..., n]
            Their targets; more batch dimensions than those of the inputs are a batch of fantasies.
        mean_module, covar_module : gpytorch mean and kernel, optional
            Others than those of the model. Without them the prior is the model's `forward`, features included.
        **kwargs
            ``noise``: the noise variances of the new rows, if they are not those of the likelihood.

        Returns
        -------
        gpytorch.models.ExactGP
            For predictions: it is in eval mode, and its likelihood is a copy of the model's.

        Raises
        ------
        NotSupportedError
            If the model has no Gaussian likelihood.
        MissingPartError
            If the model has no `mean_module` or no `covar_module`, and none is given.
        InvalidInputError
            If shapes do not fit.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> model = CoresetGP(torch.zeros(1, 1), torch.zeros(1), torch.ones(1), RBFKernel()).eval()
        >>> model.likelihood.noise = 1e-4
        >>> after = model.get_fantasy_model(torch.tensor([[1.0]]), torch.tensor([3.0]))
        >>> round(after(torch.tensor([[1.0]])).mean.item(), 2)
        3.0
        """
        return condition_strategy(self, inputs, targets, mean_module, covar_module, **kwargs)

    def __call__(self, x: Tensor, prior: bool = False, diag: bool = True, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior of f at x `[..., B, D]`, or the prior; `diag` is GPyTorch's."""
        if x.ndim == 1:
            x = x[:, None]
        if x.shape[-1] != self.inducing_points.shape[-1]:
            D = self.inducing_points.shape[-1]
            raise InvalidInputError(f"x must be [..., B, {D}], as the inducing points are; got {tuple(x.shape)}.")
        if prior:
            return super().__call__(x, prior=True, **kwargs)
        self.start_sites()
        return self.forward(x, diag=diag, **kwargs)

    def forward(self, x: Tensor, diag: bool = True, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior of f at x; call the model itself rather than this.

        Parameters
        ----------
        x : Tensor of shape [..., B, D]
            Where.
        diag : bool
            In training, whether the covariances between points may be left out. No objective needs them.
        **kwargs
            For the model's `forward`.

        Returns
        -------
        gpytorch.distributions.MultivariateNormal
            With batches of the coreset and of x.

        Raises
        ------
        FactorisationError
            If the kernel has NaN or infinite values, or is not positive definite.

        Examples
        --------
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from cvgp.adapters.gpytorch import CoresetGP
        >>> model = CoresetGP(torch.zeros(1, 1), torch.ones(1), torch.ones(1), RBFKernel())
        >>> model.variational_strategy.forward(torch.zeros(2, 1)).mean.tolist()
        [0.5, 0.5]
        """
        last = None if self.training or kwargs or gradients_flow(self.model) else self._last_call()
        at = JointPrior(self.model, self.inducing_points, x, self._variational_distribution.batch_shape, **kwargs)
        if self.training and diag:
            return self._marginals(at)
        if last is not None and last.factor is not None:
            factor = last.factor
        else:
            factor = self._factor(at.K_cc, at.mean_c)
            kl = at.of_data.averaged(posterior.kl_divergence(factor)) if self.training else None
            can_serve_again = not kwargs and not gradients_flow(self.model) and at.points_are_their_own
            if self.training or can_serve_again:
                self._remember(at, kl, factor)
        # Wrappers ask for all covariances, and factorise products of them: for them GPyTorch's own jitter is added.
        return posterior_at(factor, at, None if diag else self.jitter_val)

    def _marginals(self, at: JointPrior) -> MultivariateNormal:
        log_w, dtype = self.log_site_precision, at.mean_x.dtype
        at.promote_if_digits_are_lost(log_w.detach().exp() * at.K_cc.detach().diagonal(dim1=-2, dim2=-1))
        found = marginals(at.K_cc, at.K_cx, at.k_xx, self._residual(at.mean_c), log_w)
        self._remember(at, at.of_data.averaged(found.kl), None)
        # What is below the smallest variance that GPyTorch knows is rounding, of which it would warn at each step.
        variance = found.variance.to(dtype).clamp_min(settings.min_variance.value(dtype))
        return MultivariateNormal(at.mean_x + found.mean.to(dtype), DiagLinearOperator(variance))

    def _remember(self, at: JointPrior, kl: Tensor | None, factor: Factor | None) -> None:
        kl = None if kl is None else kl.to(at.mean_c.dtype)
        self._last = LastCall.of(self, at.mean_c, factor, kl)

    def _last_call(self) -> LastCall | None:
        """What the last call left, if it still holds."""
        return self._last if self._last is not None and self._last.holds_for(self) else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}  # it may have a graph, which cannot be copied

    def _residual(self, prior_mean: Tensor) -> Tensor:
        """The pseudo-targets minus the prior mean [..., M]."""
        y_c: Tensor = self._variational_distribution.pseudo_targets
        return y_c - prior_mean

    def _factor(self, K_cc: Tensor, prior_mean: Tensor) -> Factor:
        return posterior.factorise(K_cc, self.site_precision, self._residual(prior_mean)[..., None])
