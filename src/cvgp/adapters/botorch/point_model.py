"""A BoTorch model that is a set of weighted points: its posterior, in closed form and in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.gpytorch import GPyTorchModel
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.posteriors import Posterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from gpytorch.models import GP
from linear_operator import to_dense
from torch import Tensor, nn

from cvgp.adapters.botorch.factor_cache import Cache
from cvgp.adapters.botorch.joint_normal import as_batch, as_joint, with_noise
from cvgp.adapters.botorch.layers import Layer, Moments, add_layer, moments, prior_mean
from cvgp.adapters.botorch.observed_noise import observation_noise
from cvgp.adapters.botorch.shapes import as_points, check_outputs, check_x, common_batch
from cvgp.adapters.gpytorch.input_noise_likelihood import InputNoiseLikelihood
from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import check_finite, evaluate

SITES = ("X_c", "y_c", "precision")


class PointModel(GPyTorchModel, GP):  # type: ignore[misc]
    """The points of :class:`cvgp.adapters.botorch.CVGPModel`, which documents the arguments, and their posterior."""

    def __init__(
        self,
        X_c: Tensor,
        y_c: Tensor,
        precision: Tensor,
        covar_module: Kernel,
        mean_module: Mean,
        likelihood: Likelihood,
        input_transform: InputTransform | None = None,
        outcome_transform: OutcomeTransform | None = None,
    ) -> None:
        super().__init__()
        for name, values in zip(SITES, as_points(X_c, y_c, precision), strict=True):
            self.register_buffer(name, values)
        self.covar_module, self.mean_module, self.likelihood = covar_module, mean_module, likelihood
        if input_transform is not None:
            self.input_transform = input_transform
        if outcome_transform is not None:
            if not bool(getattr(outcome_transform, "_is_trained", True)):
                raise InvalidInputError(
                    f"The {type(outcome_transform).__name__} has not seen data. Pseudo-outputs teach it nothing: call "
                    "it on the observations first, outcome_transform(Y), and give y_c in its units."
                )
            self.outcome_transform = outcome_transform
        self._cache: Cache | None = None
        self.eval()

    @property
    def num_outputs(self) -> int:
        """The number of outputs m."""
        return int(self.y_c.shape[-1])

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape: empty, unless the model was made by fantasies or given batches of points."""
        return common_batch(*(points.shape[:-2] for points in self._points()))

    def _set_transformed_inputs(self) -> None:
        """Nothing, where BoTorch's exact models transform their data: points are in the model's units always."""

    def _revert_to_original_inputs(self) -> None:
        """Nothing; see above."""

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at X, in the model's units: what a marginal likelihood takes in training mode.

        Parameters
        ----------
        X : Tensor of shape [..., n, D]
            Where.

        Returns
        -------
        gpytorch.distributions.MultivariateNormal
            Of f before any data; several outputs are the last batch dimension.

        Raises
        ------
        RuntimeError
            If X does not fit the kernel.

        Examples
        --------
        >>> import torch
        >>> from cvgp.adapters.botorch import CVGPModel
        >>> from gpytorch.kernels import RBFKernel
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch.means import ZeroMean
        >>> X_c = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> parts = RBFKernel().double(), ZeroMean(), GaussianLikelihood().double()
        >>> model = CVGPModel(X_c, X_c.sin(), torch.full_like(X_c, 100.0), *parts)
        >>> model.forward(X_c).mean.tolist()
        [0.0, 0.0]
        """
        points = X.to(torch.float64)
        K = evaluate(self.covar_module, points.unsqueeze(-3), points.unsqueeze(-3))
        return as_batch(Moments(prior_mean(self.mean_module, points), K), self.num_outputs, X.dtype)

    def __call__(self, X: Tensor) -> MultivariateNormal:
        """The prior at X in training mode, and otherwise the posterior, both in the model's units."""
        check_x(X, self.X_c.shape[-1])
        if self.training:
            return self.forward(X)
        return as_batch(self._moments(X.to(torch.float64)), self.num_outputs, X.dtype)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Return the joint posterior at X, in the units of the data.

        Parameters
        ----------
        X : Tensor of shape [..., q, D]
            Where, with any batch dimensions.
        output_indices : list of int or None
            Some of the outputs; all if None.
        observation_noise : bool or Tensor of shape [..., q, m]
            True adds the noise of the likelihood, and a tensor adds these variances, which are in the model's units.
        posterior_transform : PosteriorTransform or None
            What to return instead, such as a weighted sum of the outputs.

        Returns
        -------
        botorch.posteriors.gpytorch.GPyTorchPosterior
            Or what the transforms make of it.

        Raises
        ------
        InvalidInputError
            If X has another number of columns or holds NaN, or there are no such outputs.
        InvalidTypeError
            If noise is asked for of a likelihood that knows none for new observations.

        Examples
        --------
        >>> import torch
        >>> from cvgp.adapters.botorch import CVGPModel
        >>> from gpytorch.kernels import RBFKernel
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch.means import ZeroMean
        >>> X_c = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> parts = RBFKernel().double(), ZeroMean(), GaussianLikelihood().double()
        >>> model = CVGPModel(X_c, X_c.sin(), torch.full_like(X_c, 100.0), *parts)
        >>> X = torch.zeros(1, 1, dtype=torch.float64)
        >>> f, y = model.posterior(X), model.posterior(X, observation_noise=True)
        >>> round((y.variance - f.variance).item(), 3)  # the noise of the likelihood
        0.693
        """
        self.eval()  # as BoTorch's models do: acquisition functions leave it to them
        chosen = check_outputs(output_indices, self.num_outputs)
        X = self.transform_inputs(X)
        check_x(X, self.X_c.shape[-1])
        check_finite("X", X)
        points = X.to(torch.float64)
        found = self._moments(points)
        if observation_noise is not False:
            noise = self._noise(points, observation_noise)
            found = with_noise(found, noise)
        posterior: Posterior = GPyTorchPosterior(as_joint(found, self.num_outputs, chosen, X.dtype))
        if hasattr(self, "outcome_transform"):
            transform = self.outcome_transform
            transform = transform if output_indices is None else transform.subset_output(idcs=chosen)
            posterior = transform.untransform_posterior(posterior, X=X)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def load_state_dict(
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Load points, modules and transforms; the points may be more or fewer than before.

        Points are in the units of the transforms, so both are always loaded together.

        Parameters
        ----------
        state_dict : mapping
            That of another model of this kind.
        strict, assign : bool
            As in torch.
        keep_transforms : bool
            As in BoTorch's models, for which it has a meaning; here it changes nothing.

        Returns
        -------
        named tuple
            Missing and unexpected keys, as torch returns them.

        Raises
        ------
        RuntimeError
            If names or shapes of parameters do not fit.

        Examples
        --------
        >>> import torch
        >>> from cvgp.adapters.botorch import CVGPModel
        >>> from gpytorch.kernels import RBFKernel
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch.means import ZeroMean
        >>> X_c = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> parts = RBFKernel().double(), ZeroMean(), GaussianLikelihood().double()
        >>> model = CVGPModel(X_c, X_c.sin(), torch.full_like(X_c, 100.0), *parts)
        >>> other = CVGPModel(X_c[:1], X_c[:1], torch.ones(1, dtype=torch.float64), *parts)
        >>> other.load_state_dict(model.state_dict())
        <All keys matched successfully>
        >>> len(other.X_c)
        2
        """
        for name in SITES:
            given = state_dict.get(name)
            if given is not None and given.shape != getattr(self, name).shape:
                setattr(self, name, getattr(self, name).new_zeros(given.shape))
        return nn.Module.load_state_dict(self, state_dict, strict=strict, assign=assign)

    def __getstate__(self) -> dict[str, Any]:
        # A copy, as a file, has no history of gradients, and its factors are made when they are needed.
        state = self.__dict__.copy()
        state["_cache"] = None
        state["_buffers"] = {k: v if v is None or v.is_leaf else v.detach() for k, v in self._buffers.items()}
        return state

    def _points(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.X_c, self.y_c, self.precision

    def _layers(self) -> tuple[Layer, ...]:
        """The factorised points: from the cache, unless GPyTorch is to keep gradients of hyperparameters."""
        modules = (self.covar_module, self.mean_module)
        if settings.detach_test_caches.off():
            return (self._factorised(),)
        if self._cache is None or not self._cache.holds(modules, self._points()):
            with torch.no_grad():
                self._cache = Cache.of([self._factorised()], modules, self._points())
        return self._cache.layers

    def _factorised(self) -> Layer:
        X, y, w = (values.to(torch.float64) for values in self._points())
        return add_layer((), self.covar_module, X, y.mT - prior_mean(self.mean_module, X), w.mT)

    def _moments(self, points: Tensor) -> Moments:
        found = moments(self._layers(), self.covar_module, self.mean_module, points)
        if not isinstance(self.likelihood, InputNoiseLikelihood):
            return found
        covariance = to_dense(found.covariance)
        variance = covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)
        root = self.likelihood.f_factor(variance).sqrt()
        return found._replace(covariance=root[..., :, None] * covariance * root[..., None, :])

    def _noise(self, points: Tensor, given: bool | Tensor) -> Tensor:
        """Noise variances [..., Q, n], of the likelihood or as they are given [..., n, m]."""
        if not isinstance(given, Tensor):
            return observation_noise(self.likelihood, points)
        n, m = points.shape[-2], self.num_outputs
        if given.ndim < 2 or given.shape[-2] not in (1, n) or given.shape[-1] not in (1, m):
            raise InvalidInputError(
                f"observation_noise must be True, False or variances of shape [..., {n}, {m}]; got {list(given.shape)}."
            )
        return given.to(points).mT.expand(*given.shape[:-2], -1, n)
