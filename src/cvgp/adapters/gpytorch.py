"""The coreset posterior in GPyTorch: a variational strategy that takes the place of GPyTorch's own.

From top to bottom: the sites, the strategy, and the model that has seen new rows.
"""

import math
import warnings
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.utils.memoize import add_to_cache
from gpytorch.variational._variational_distribution import _VariationalDistribution
from gpytorch.variational._variational_strategy import _VariationalStrategy
from linear_operator import to_linear_operator
from linear_operator.operators import DiagLinearOperator, MatmulLinearOperator
from torch import Tensor, nn
from torch.distributions.kl import kl_divergence, register_kl

from cvgp.adapters.algebra import JointPrior, Snapshot, common_batch, module_tensors, posterior_at
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError, MissingPartError, NotSupportedError
from cvgp.gp import bounds, posterior
from cvgp.gp.bounds.elbo import marginals
from cvgp.gp.linalg import JITTER, add_jitter
from cvgp.gp.model import SMALLEST_SHARE
from cvgp.gp.posterior import Factor, joined
from cvgp.gp.sites import best_coreset

__all__ = ["CoresetVariationalDistribution", "CoresetVariationalStrategy"]

INITIAL_PRECISION = 10.0
NEAREST_TO_LIMIT = 1e-6  # relative distance from one over the jitter, which would need an infinite parameter
CHUNK_ROWS = 4096  # that `initialize_from_data` sums up at once


class CoresetVariationalDistribution(_VariationalDistribution):  # type: ignore[misc]
    """Pseudo-targets and their precisions, the parameters of `CoresetVariationalStrategy`.

    Parameters
    ----------
    num_inducing_points : int
        The number of points M.
    batch_shape : torch.Size
        For a batch of processes.
    mean_init_std : float
        The pseudo-targets start at the prior mean plus noise of this standard deviation.

    Attributes
    ----------
    pseudo_targets, log_precision : torch.nn.Parameter of shape [..., M]
        y_c, prior mean included, and the logarithm of one over the noise variance of each.

    Examples
    --------
    >>> from cvgp.adapters.gpytorch import CoresetVariationalDistribution
    >>> sites = CoresetVariationalDistribution(3)
    >>> sites.pseudo_targets.shape
    torch.Size([3])
    """

    def __init__(
        self,
        num_inducing_points: int,
        batch_shape: torch.Size = torch.Size([]),  # noqa: B008  (a Size cannot change)
        mean_init_std: float = 1e-3,
    ) -> None:
        if num_inducing_points < 1:
            raise InvalidInputError(f"num_inducing_points must be at least 1; got {num_inducing_points}.")
        batch_shape = torch.Size(batch_shape)
        super().__init__(num_inducing_points, batch_shape, mean_init_std)
        start = torch.zeros(*batch_shape, num_inducing_points)
        self.register_parameter("pseudo_targets", nn.Parameter(start))
        self.register_parameter("log_precision", nn.Parameter(start + math.log(INITIAL_PRECISION)))

    def forward(self) -> MultivariateNormal:
        """Return the sites by themselves; the posterior at the points is the strategy's variational_distribution."""
        return MultivariateNormal(self.pseudo_targets, DiagLinearOperator((-self.log_precision).exp()))

    @torch.no_grad()
    def initialize_variational_distribution(self, prior_dist: MultivariateNormal) -> None:
        """Set the pseudo-targets to the prior mean plus a little noise; the precisions stay."""
        mean, own = prior_dist.mean, self.pseudo_targets.shape
        try:
            mean = mean.expand(own)
        except RuntimeError as error:
            raise InvalidInputError(
                f"The prior mean at the points is {tuple(mean.shape)}, and the pseudo-targets are {tuple(own)}: give "
                "CoresetVariationalDistribution the batch_shape of the mean."
            ) from error
        self.pseudo_targets.copy_(mean + self.mean_init_std * torch.randn_like(self.pseudo_targets))


class CoresetPrior(MultivariateNormal):  # type: ignore[misc]
    """The prior at the pseudo-inputs."""


class CoresetNormal(MultivariateNormal):  # type: ignore[misc]
    """The posterior at the pseudo-inputs, with its factor: the KL then needs no inverse of K_cc. A part has none."""

    factor: Factor | None = None

    @classmethod
    def from_factor(cls, factor: Factor, prior_mean: Tensor) -> "CoresetNormal":
        """The posterior of a factor with y_c [..., M, 1], minus the prior mean [..., M], which sets the precision."""
        dtype = prior_mean.dtype
        K_cc, f_c = factor.K_cc.to(dtype), (factor.K_cc @ factor.alpha)[..., 0].to(dtype)
        TK = MatmulLinearOperator(factor.T.to(dtype), K_cc)  # not evaluated before someone asks for it
        q = cls(prior_mean + f_c, to_linear_operator(K_cc) + MatmulLinearOperator(TK.mT, TK).mul(-1.0))
        q.factor = factor
        return q


@register_kl(CoresetNormal, CoresetPrior)  # type: ignore[untyped-decorator]
def _coreset_kl(q: CoresetNormal, p: CoresetPrior) -> Tensor:
    """The stable formula, or GPyTorch's own for a part of the posterior."""
    if q.factor is not None:
        return posterior.kl_divergence(q.factor).to(q.loc.dtype)
    divergence: Tensor = kl_divergence(MultivariateNormal(q.loc, q.lazy_covariance_matrix), p)
    return divergence


class _LastCall(NamedTuple):
    """The results of one call of a strategy, which the next calls may use again."""

    snapshot: Snapshot
    mode: tuple[float, bool]  # the jitter, and whether in training
    has_gradient: bool
    prior_mean: Tensor  # [..., M]
    factor: Factor | None
    kl: Tensor | None  # [...]


class CoresetVariationalStrategy(_VariationalStrategy):  # type: ignore[misc]
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
        ``gpytorch.settings.variational_cholesky_jitter``, and 0 is allowed, since only I + R K_cc R is factorized.

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
    >>> model.variational_strategy.initialize_from_data(x, torch.sin(6 * x[:, 0]), noise=0.01)  # the best sites
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
        if not isinstance(variational_distribution, CoresetVariationalDistribution):
            raise InvalidTypeError(
                "CoresetVariationalStrategy has sites, not a free mean and covariance: give it a "
                f"cvgp.adapters.gpytorch.CoresetVariationalDistribution; got {type(variational_distribution).__name__}."
            )
        points = inducing_points[:, None] if inducing_points.ndim == 1 else inducing_points
        M, batch_shape = points.shape[-2], variational_distribution.batch_shape
        if variational_distribution.num_inducing_points != M:
            raise InvalidInputError(
                f"There are {M} inducing points, and {variational_distribution.num_inducing_points} pseudo-targets: "
                "give CoresetVariationalDistribution the number of inducing points."
            )
        common_batch(points.shape[:-2], batch_shape)
        if jitter_val is not None and not 0.0 <= jitter_val < math.inf:
            raise InvalidInputError(f"jitter_val is the smallest variance of a site, at least 0; got {jitter_val}.")
        super().__init__(model, inducing_points, variational_distribution, learn_inducing_locations, jitter_val)
        self._last: _LastCall | None = None

    @property
    def log_site_precision(self) -> Tensor:
        """Logarithms of `site_precision`."""
        log_w: Tensor = self._variational_distribution.log_precision.to(torch.float64)
        if self.jitter_val == 0.0:
            return log_w
        return -torch.logaddexp(-log_w, torch.full_like(log_w, math.log(self.jitter_val)))

    @property
    def site_precision(self) -> Tensor:
        """The precisions of the sites `[..., M]` in float64, at most one over `jitter_val`."""
        return self.log_site_precision.exp()

    def set_sites(self, y_c: Tensor, w: Tensor) -> None:
        """Set the pseudo-targets, prior mean included, and `site_precision`, both `[..., M]`.

        A precision of zero becomes a very small one. One above 1 / `jitter_val` is lowered to it, with a warning.
        """
        sites, shape, jitter = self._variational_distribution, self._variational_distribution.shape(), self.jitter_val
        y_c, w = (torch.as_tensor(values, dtype=torch.float64).detach() for values in (y_c, w))
        try:
            y_c, w = y_c.expand(shape), w.expand(shape)
        except RuntimeError as error:
            raise InvalidInputError(
                f"y_c and w must be {list(shape)}, one for each site; got {tuple(y_c.shape)} and {tuple(w.shape)}."
            ) from error
        if not bool(torch.isfinite(y_c).all()) or not bool(((w >= 0) & torch.isfinite(w)).all()):
            raise InvalidInputError("y_c and w must be finite, and w, one over a variance, must not be negative.")
        if not bool((w > 0).any()):
            raise InvalidInputError("At least one precision w must be positive; all are zero.")
        if bool((w > self._largest_precision).any()):
            warnings.warn(
                f"Precisions of up to {w.max().item():.3g} were requested, but the strategy allows at most one over "
                f"jitter_val, {1.0 / jitter:.3g}. Build it with a smaller jitter_val; 0 is allowed.",
                CVGPWarning,
                stacklevel=2,
            )
        w = torch.where(w > 0, w, SMALLEST_SHARE * w.max()).clamp_max(self._largest_precision)
        with torch.no_grad():
            sites.pseudo_targets.copy_(y_c)
            sites.log_precision.copy_(w.log() - (-jitter * w).log1p())
            self.variational_params_initialized.fill_(1)

    @property
    def _largest_precision(self) -> float:
        return math.inf if self.jitter_val == 0.0 else (1.0 - NEAREST_TO_LIMIT) / self.jitter_val

    @torch.no_grad()
    def initialize_from_data(self, x: Tensor, y: Tensor, noise: Tensor | float) -> None:
        """Set the sites to their optimum for rows x `[..., N, D]`, y `[..., N]` and noise variances `[]` or `[..., N]`.

        That is the maximum of the bound of a Gaussian likelihood at the present kernel, mean and pseudo-inputs: y_c in
        closed form, and w after a few steps. It takes one pass over the rows.
        """
        points, shape = self.inducing_points, self._variational_distribution.shape()
        x, M = x[:, None] if x.ndim == 1 else x, shape[-1]
        if x.shape[-1] != points.shape[-1] or y.shape[-1:] != x.shape[-2:-1] or x.shape[-2] == 0:
            raise InvalidInputError(
                f"x must be [..., N, {points.shape[-1]}] with N >= 1, and y [..., N]; "
                f"got {tuple(x.shape)} and {tuple(y.shape)}."
            )
        y, noise = y.to(torch.float64), torch.as_tensor(noise, dtype=torch.float64, device=points.device)
        if not bool(((noise > 0) & torch.isfinite(noise)).all()):
            raise InvalidInputError("noise holds variances: every one must be positive and finite.")
        common_batch(y.shape, noise.shape)
        batch = common_batch(x.shape[:-2], y.shape[:-1], noise.shape[:-1], shape[:-1])
        if batch != shape[:-1]:
            raise InvalidInputError(
                f"The data have the batch shape {tuple(batch)}, and the sites {tuple(shape[:-1])}: give "
                "CoresetVariationalDistribution the batch_shape of the data."
            )

        def flat(values: Tensor, *event: int) -> Tensor:
            """One line per process."""
            return values.to(torch.float64).expand(*batch, *event).reshape(-1, *event)

        own = JointPrior(self.model, points)
        K_cc, mean_c = flat(own.K_cc, M, M), flat(own.mean_c, M)
        jittered = [add_jitter(K, JITTER) for K in K_cc]
        whiteners = [bounds.whitener(K) for K in jittered]
        sums = [bounds.Statistics.zeros(M, 1, points.device) for _ in jittered]
        noise = noise.expand(*batch, x.shape[-2])
        for first in range(0, x.shape[-2], CHUNK_ROWS):
            rows = slice(first, first + CHUNK_ROWS)
            at = JointPrior(self.model, points, x[..., rows, :], batch, dtype=torch.float64)
            n = at.mean_x.shape[-1]
            K_cx, k_xx, variance = flat(at.K_cx, M, n), flat(at.k_xx, n), flat(noise[..., rows], n)
            residual = flat(y[..., rows] - at.mean_x, n)[..., None]
            for b, L_inv in enumerate(whiteners):
                rho = bounds.weigh(variance[b], k_xx[b])
                part = bounds.gather(L_inv, K_cx[b], k_xx[b], residual[b], rho.precision, rho.log_normalizer)
                sums[b] = sums[b].merge(part)
        start = (noise.reciprocal().sum(-1) / M).reshape(-1)  # as if each point stood for N / M rows
        y_c, w = torch.empty_like(mean_c), torch.empty_like(mean_c)
        for b, (K, total) in enumerate(zip(jittered, sums, strict=True)):
            best = best_coreset(K, total, start[b].expand(M))
            alpha = posterior.factorize(K, best.w, best.y_c).alpha[:, 0]
            # The jitter of K_cc and the variance of a site enter the posterior as one sum. A precision above the limit
            # is lowered, and y_c changes with it so that the mean stays.
            w[b] = best.w / (1.0 + JITTER * K_cc[b].diagonal().mean() * best.w)
            w[b].clamp_(max=self._largest_precision)
            y_c[b] = mean_c[b] + K_cc[b] @ alpha + alpha / w[b]
        self.set_sites(y_c.reshape(shape), w.reshape(shape))

    def start_sites(self) -> None:
        """Set the pseudo-targets to the prior mean at the first call of the model, unless they have values."""
        if self.variational_params_initialized.item():
            return
        if not bool(self._variational_distribution.pseudo_targets.any()):  # all zero: nobody has set them
            self._variational_distribution.initialize_variational_distribution(self.prior_distribution)
        self.variational_params_initialized.fill_(1)

    @property
    def prior_distribution(self) -> CoresetPrior:
        """The prior at the pseudo-inputs."""
        own = JointPrior(self.model, self.inducing_points)
        return CoresetPrior(own.mean_c, to_linear_operator(own.K_cc.to(own.mean_c.dtype)))

    @property
    def variational_distribution(self) -> CoresetNormal:
        """The posterior at the pseudo-inputs."""
        last = self._last_call()
        if last is not None and last.factor is not None:
            return CoresetNormal.from_factor(last.factor, last.prior_mean)
        own = JointPrior(self.model, self.inducing_points)
        return CoresetNormal.from_factor(self._factor(own), own.mean_c)

    def kl_divergence(self) -> Tensor:
        """Return the KL divergence `[...]` from the prior at the pseudo-inputs, one number for each process."""
        last = self._last_call()
        if last is not None and last.kl is not None:
            return last.kl
        own = JointPrior(self.model, self.inducing_points)
        nowhere = own.mean_c.new_empty(*own.K_cc.shape[:-1], 0)
        kl = marginals(own.K_cc, nowhere, nowhere[..., 0, :], self._residual(own), self.log_site_precision).kl
        return kl.to(own.mean_c.dtype)

    def get_fantasy_model(
        self,
        inputs: Tensor,
        targets: Tensor,
        mean_module: Any = None,
        covar_module: Any = None,
        noise: Tensor | None = None,
    ) -> ExactGP:
        """Return the posterior that has also seen new rows `[..., n, D]` and `[..., n]`, in closed form, in eval mode.

        They become points with the noise of ``model.likelihood``, or the variances `noise` `[..., n]`. Further batch
        dimensions of the targets make a batch of fantasies.
        """
        model, likelihood = self.model, getattr(self.model, "likelihood", None)
        if not isinstance(likelihood, GaussianLikelihood):
            found = "has none" if likelihood is None else f"is a {type(likelihood).__name__}"
            raise NotSupportedError(
                f"Conditioning in closed form needs a GaussianLikelihood, and the model's `likelihood` {found}. "
                "Set model.likelihood, or train on the new rows instead."
            )
        parts: dict[str, Any] = {"likelihood": likelihood}
        for name, given in (("mean_module", mean_module), ("covar_module", covar_module)):
            parts[name] = getattr(model, name, None) if given is None else given
            if parts[name] is None:
                raise MissingPartError(f"Conditioning needs {name}: pass it, or give the model an attribute {name}.")
        parts["prior"] = model if mean_module is None and covar_module is None else None
        self.start_sites()
        y_c = self._variational_distribution.pseudo_targets.detach()
        known = _Observations(self.inducing_points.detach(), y_c, self.site_precision.detach())
        return ConditionedGP(known.append(inputs, targets, noise, likelihood), **deepcopy(parts))

    def __call__(self, x: Tensor, prior: bool = False, diag: bool = True, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior of f at x `[..., B, D]`, or the prior; `diag` is GPyTorch's."""
        x = x[:, None] if x.ndim == 1 else x
        D = self.inducing_points.shape[-1]
        if x.shape[-1] != D:
            raise InvalidInputError(f"x must be [..., B, {D}], as the inducing points are; got {tuple(x.shape)}.")
        if prior:
            return super().__call__(x, prior=True, **kwargs)
        self.start_sites()
        return self.forward(x, diag=diag, **kwargs)

    def forward(self, x: Tensor, diag: bool = True, **kwargs: Any) -> MultivariateNormal:
        """Return the posterior of f at x; in training with `diag`, without covariances between points."""
        may_reuse = not (self.training or kwargs or self._gradients_flow())
        last = self._last_call() if may_reuse else None
        at = JointPrior(self.model, self.inducing_points, x, self._variational_distribution.batch_shape, **kwargs)
        if self.training and diag:
            return self._marginals(at)
        if last is not None and last.factor is not None:
            factor = last.factor
        else:
            factor = self._factor(at)
            if self.training:
                self._remember(at, factor, at.averaged(posterior.kl_divergence(factor)))
            elif may_reuse and at.is_independent_of_data:
                self._remember(at, factor, None)
        # Wrappers take all covariances and factorize products of them, which needs GPyTorch's own jitter.
        return posterior_at(factor, at, None if diag else self.jitter_val)

    def _marginals(self, at: JointPrior) -> MultivariateNormal:
        log_w, dtype = self.log_site_precision, at.mean_x.dtype
        at.use_float64_if_needed(log_w.exp())
        found = marginals(at.K_cc, at.K_cx, at.k_xx, self._residual(at), log_w)
        self._remember(at, None, at.averaged(found.kl))
        # GPyTorch would warn at each step of variances below its smallest one, which are rounding errors.
        variance = found.variance.to(dtype).clamp_min(settings.min_variance.value(dtype))
        return MultivariateNormal(at.mean_x + found.mean.to(dtype), DiagLinearOperator(variance))

    def _residual(self, at: JointPrior) -> Tensor:
        residual: Tensor = self._variational_distribution.pseudo_targets - at.mean_c
        return residual

    def _factor(self, at: JointPrior) -> Factor:
        return posterior.factorize(at.K_cc, self.site_precision, self._residual(at)[..., None])

    def _gradients_flow(self) -> bool:
        """Whether results carry gradients of the model's parameters."""
        return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.model.parameters())

    def _remember(self, at: JointPrior, factor: Factor | None, kl: Tensor | None) -> None:
        snapshot, mode = Snapshot(module_tensors(self.model)), (self.jitter_val, self.training)
        kl = None if kl is None else kl.to(at.mean_c.dtype)
        self._last = _LastCall(snapshot, mode, torch.is_grad_enabled(), at.mean_c, factor, kl)

    def _last_call(self) -> _LastCall | None:
        """The results of the last call, if the same computation would give them again."""
        last = self._last
        if last is None or last.mode != (self.jitter_val, self.training):
            return None
        if not last.has_gradient and self._gradients_flow():
            return None
        return last if last.snapshot.holds(module_tensors(self.model)) else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}  # it may have a graph, which cannot be copied


class _Observations(NamedTuple):
    """Observations with a precision each; batch dimensions broadcast."""

    X: Tensor  # [..., n, D]
    y: Tensor  # [..., n]
    w: Tensor  # [..., n]

    def append(self, x: Tensor, y: Tensor, noise: Tensor | None, likelihood: GaussianLikelihood) -> "_Observations":
        """These and new rows, with the noise of the likelihood if none is given."""
        x = x[:, None] if x.ndim == 1 else x
        if x.shape[-1] != self.X.shape[-1] or y.shape[-1:] != x.shape[-2:-1]:
            raise InvalidInputError(
                f"inputs must be [..., n, {self.X.shape[-1]}] and targets [..., n]; "
                f"got {tuple(x.shape)} and {tuple(y.shape)}."
            )
        noise = likelihood.noise.detach() if noise is None else noise
        common_batch(x.shape[:-2], y.shape[:-1], noise.shape[:-1], self.y.shape[:-1])
        w = noise.to(torch.float64).reciprocal().expand(*noise.shape[:-1], y.shape[-1])
        X, y = joined(self.X, x.to(self.X.dtype), -2), joined(self.y, y.to(self.y.dtype), -1)
        return _Observations(X, y, joined(self.w, w, -1))


class _FactorizedSites(DefaultPredictionStrategy):  # type: ignore[misc]
    """GPyTorch's prediction strategy: what all predictions share."""

    def __init__(self, factor: Factor, model: "ConditionedGP", prior: MultivariateNormal) -> None:
        super().__init__(model.train_inputs, prior, model.train_targets, model.likelihood)
        self.factor = factor
        self.lik_train_train_covar = to_linear_operator(factor.K_cc + torch.diag_embed(factor.w.reciprocal()))
        add_to_cache(self, "mean_cache", factor.alpha[..., 0].to(model.train_targets.dtype))


class ConditionedGP(ExactGP):  # type: ignore[misc]
    """The coreset posterior given new rows: an exact GP on the sites and the rows, for predictions in eval mode."""

    prediction_strategy: _FactorizedSites | None

    def __init__(self, seen: _Observations, likelihood: Any, mean_module: Any, covar_module: Any, prior: Any) -> None:
        super().__init__(seen.X, seen.y, likelihood)
        self.mean_module = mean_module
        self.covar_module = covar_module
        self.prior = prior
        self.register_buffer("precision", seen.w)
        self.eval()
        self._factor()

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        if self.prior is not None:
            return self.prior.forward(x)
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def _factor(self) -> Factor:
        if self.prediction_strategy is None:  # not made yet, or dropped by a copy
            own = JointPrior(self, self.train_inputs[0])
            factor = posterior.factorize(own.K_cc, self.precision, (self.train_targets - own.mean_c)[..., None])
            self.prediction_strategy = _FactorizedSites(factor, self, self.forward(*self.train_inputs))
        return self.prediction_strategy.factor

    def __call__(self, x: Tensor, **kwargs: Any) -> MultivariateNormal:
        """The posterior of f at x `[..., B, D]`."""
        if self.training:
            raise InvalidInputError(
                "A model that was conditioned on new rows is for predictions: call eval(). To learn from the rows, "
                "train the original model on them."
            )
        x = x[:, None] if x.ndim == 1 else x
        site_batch = torch.broadcast_shapes(self.train_targets.shape[:-1], self.precision.shape[:-1])
        return posterior_at(self._factor(), JointPrior(self, self.train_inputs[0], x, site_batch, **kwargs))

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None) -> "ConditionedGP":
        """The posterior that has seen these rows too."""
        known = _Observations(self.train_inputs[0], self.train_targets, self.precision)
        parts = deepcopy((self.likelihood, self.mean_module, self.covar_module, self.prior))
        return ConditionedGP(known.append(inputs, targets, noise, self.likelihood), *parts)
