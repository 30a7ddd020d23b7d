"""The coreset posterior given new rows: an exact GP whose observations are the sites and the rows, each with its noise.

GPyTorch's own likelihood of fixed noises will not do for it: it raises variances below 1e-6, it takes the noises of the
sites for those of new observations where there happen to be as many, and it leaves them out of the state dict.
"""

from copy import deepcopy
from typing import Any

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import ExactGP
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy
from gpytorch.utils.memoize import add_to_cache
from linear_operator import to_linear_operator
from torch import Tensor

from cvgp.adapters.gpytorch.coreset_normal import posterior_at
from cvgp.adapters.gpytorch.input_noise_likelihood import InputNoiseLikelihood, as_predicted, at_inputs
from cvgp.adapters.gpytorch.joint_prior import JointPrior, prior_at_points
from cvgp.errors import InvalidInputError, MissingPartError, NotSupportedError
from cvgp.gp.posterior import Factor, factorise


def condition_strategy(
    strategy: Any, inputs: Tensor, targets: Tensor, mean_module: Any, covar_module: Any, noise: Tensor | None = None
) -> "ConditionedGP":
    """`CoresetVariationalStrategy.get_fantasy_model`."""
    model = strategy.model
    likelihood = getattr(model, "likelihood", None)
    if not isinstance(likelihood, GaussianLikelihood):
        found = "has none" if likelihood is None else f"is a {type(likelihood).__name__}"
        raise NotSupportedError(
            f"Conditioning in closed form needs a GaussianLikelihood, and the model's `likelihood` {found}. "
            "Set model.likelihood, or train on the new rows instead."
        )
    prior = model if mean_module is None and covar_module is None else None
    mean_module = _part(model, "mean_module", mean_module)
    covar_module = _part(model, "covar_module", covar_module)
    strategy.start_sites()
    points, y_c = strategy.inducing_points.detach(), strategy._variational_distribution.pseudo_targets.detach()
    known = _Known(points, y_c, strategy.site_precision.detach())
    seen = known.with_rows(inputs, targets, _row_noise(likelihood, inputs) if noise is None else noise)
    return ConditionedGP(seen, deepcopy(likelihood), *deepcopy((mean_module, covar_module, prior)))


@torch.no_grad()
def _row_noise(likelihood: GaussianLikelihood, x: Tensor) -> Tensor:
    """The noise variances of new rows: [..., n], or [..., 1] where all have one."""
    if isinstance(likelihood, InputNoiseLikelihood):
        return likelihood.row_noise(x[:, None] if x.ndim == 1 else x)
    noise: Tensor = likelihood.noise
    return noise


def _part(model: Any, name: str, given: Any) -> Any:
    part = getattr(model, name, None) if given is None else given
    if part is None:
        raise MissingPartError(
            f"Conditioning needs {name}: give it as an argument, or let the model have an attribute of this name."
        )
    return part


class _Known:
    """Observations, each with a precision of its own; batch dimensions broadcast."""

    def __init__(self, X: Tensor, y: Tensor, w: Tensor) -> None:
        self.X, self.y, self.w = X, y, w

    def with_rows(self, x: Tensor, y: Tensor, noise: Tensor) -> "_Known":
        """These and new rows."""
        x = x[:, None] if x.ndim == 1 else x
        if x.shape[-1] != self.X.shape[-1] or y.shape[-1:] != x.shape[-2:-1]:
            raise InvalidInputError(
                f"inputs must be [..., n, {self.X.shape[-1]}] and targets [..., n]; "
                f"got {tuple(x.shape)} and {tuple(y.shape)}."
            )
        try:
            w = noise.to(torch.float64).reciprocal().expand(*noise.shape[:-1], y.shape[-1])
            return _Known(
                _joined(self.X, x.to(self.X.dtype), -2), _joined(self.y, y.to(self.y.dtype), -1), _joined(self.w, w, -1)
            )
        except RuntimeError as error:
            raise InvalidInputError(
                f"The batch shapes of inputs {tuple(x.shape)}, targets {tuple(y.shape)} and noise "
                f"{tuple(noise.shape)} do not fit those of the model, {tuple(self.y.shape[:-1])}."
            ) from error


def _joined(old: Tensor, new: Tensor, dim: int) -> Tensor:
    """Both along `dim`, for all batches of either."""
    batch = torch.broadcast_shapes(old.shape[:dim], new.shape[:dim])
    return torch.cat([values.expand(*batch, *values.shape[dim:]) for values in (old, new)], dim)


class _FactorisedSites(DefaultPredictionStrategy):  # type: ignore[misc]
    """What GPyTorch calls a prediction strategy: it holds what all predictions share."""

    def __init__(
        self, factor: Factor, inputs: Any, prior: MultivariateNormal, targets: Tensor, likelihood: Any
    ) -> None:
        super().__init__(inputs, prior, targets, likelihood)
        self.factor = factor
        self.lik_train_train_covar = to_linear_operator(factor.K_cc + torch.diag_embed(factor.w.reciprocal()))
        add_to_cache(self, "mean_cache", factor.alpha[..., 0].to(targets.dtype))


class ConditionedGP(ExactGP):  # type: ignore[misc]
    """An exact GP with a precision for each observation; for predictions, in eval mode."""

    prediction_strategy: _FactorisedSites | None

    def __init__(self, seen: _Known, likelihood: Any, mean_module: Any, covar_module: Any, prior: Any) -> None:
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
        if self.prediction_strategy is None:  # not made yet, or dropped by a copy or by new data
            (X,) = self.train_inputs
            K_cc, mean = prior_at_points(self, X)
            factor = factorise(K_cc, self.precision, (self.train_targets - mean)[..., None])
            self.prediction_strategy = _FactorisedSites(
                factor, self.train_inputs, self.forward(X), self.train_targets, self.likelihood
            )
        return self.prediction_strategy.factor

    def __call__(self, x: Tensor, **kwargs: Any) -> MultivariateNormal:
        """The posterior of f at x `[..., B, D]`."""
        if self.training:
            raise InvalidInputError(
                "A model that was conditioned on new rows is for predictions: call eval(). To learn from the rows, "
                "train the model that it was made of."
            )
        x = x[:, None] if x.ndim == 1 else x
        if settings.prior_mode.on():
            return self.forward(x)
        site_batch = torch.broadcast_shapes(self.train_targets.shape[:-1], self.precision.shape[:-1])
        f = posterior_at(self._factor(), JointPrior(self, self.train_inputs[0], x, site_batch, **kwargs))
        return as_predicted(at_inputs(f, x), x, self.likelihood)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None) -> "ConditionedGP":
        """The posterior that has seen these rows too."""
        known = _Known(self.train_inputs[0], self.train_targets, self.precision)
        seen = known.with_rows(inputs, targets, _row_noise(self.likelihood, inputs) if noise is None else noise)
        parts = deepcopy((self.likelihood, self.mean_module, self.covar_module, self.prior))
        return ConditionedGP(seen, *parts)
