"""The coreset posterior in BoTorch: a model that conditions, fantasizes and draws functions in closed form.

Needs the extra `botorch`. From top to bottom: `CVGPModel`, checks of its tensors, its likelihood and outputs, its fit
by cvgp's own solvers, and its function draws by BoTorch's pathwise samplers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from gpytorch import settings
from gpytorch.constraints import Interval, LessThan
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood, Likelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean, Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP, ApproximateGP
from linear_operator import to_dense, to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator, DiagLinearOperator
from torch import Tensor, nn

from cvgp.adapters.algebra import Layer, Moments, Snapshot, common_batch, condition, module_tensors, moments, prior_mean
from cvgp.adapters.fitted_regressor import InputNoiseLikelihood, InputScaling, fitted_parts
from cvgp.adapters.gpytorch import CoresetVariationalStrategy
from cvgp.coreset import Coreset
from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError, InvalidTypeError, optional_packages
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.fitting.kernel import raise_noise
from cvgp.fitting.monitor import Run
from cvgp.fitting.options import TrainingOptions
from cvgp.fitting.size import initial_coreset
from cvgp.fitting.solve import make_plan, solve
from cvgp.gp.bounds import log_marginal
from cvgp.gp.kernels import check_finite, evaluate, inside, log_above, multiply_inside, square_matrix
from cvgp.gp.kernels import prior_mean as mean_at
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import factorize, pathwise_weights

with optional_packages():
    from botorch.acquisition.objective import PosteriorTransform
    from botorch.models.gpytorch import GPyTorchModel
    from botorch.models.model import FantasizeMixin
    from botorch.models.transforms.input import InputTransform, Normalize
    from botorch.models.transforms.outcome import OutcomeTransform, Standardize
    from botorch.models.utils.assorted import fantasize
    from botorch.models.utils.gpytorch_modules import (
        get_covar_module_with_dim_scaled_prior,
        get_gaussian_likelihood_with_lognormal_prior,
    )
    from botorch.posteriors import Posterior
    from botorch.posteriors.gpytorch import GPyTorchPosterior
    from botorch.sampling.pathwise.features import KernelEvaluationMap
    from botorch.sampling.pathwise.paths import GeneralizedLinearPath
    from botorch.sampling.pathwise.posterior_samplers import DrawMatheronPaths, MatheronPath
    from botorch.sampling.pathwise.prior_samplers import _draw_kernel_feature_paths_fallback
    from botorch.sampling.pathwise.update_strategies import GaussianUpdate
    from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
    from botorch.utils.datasets import SupervisedDataset

__all__ = ["CVGPModel"]

Module = TypeVar("Module", bound=nn.Module)
Modules = tuple[Kernel, Mean, Likelihood]

SITES = ("X_c", "y_c", "precision")
EXACT_ROWS, CORESET_POINTS = 1000, 400
"""Rows up to which a fit learns from the exact likelihood, and points that are placed among more rows."""
START_ROWS = 500
"""Rows by whose exact likelihood kernel and noise start."""
STRETCHES, NOISE_SHARES = (1.0, 0.5, 2.0, 4.0), (0.5, 0.1, 0.01, 1e-3)
"""Starts: factors of all lengthscales, and shares of the variance of the outputs that are noise."""


class CVGPModel(GPyTorchModel, GP, FantasizeMixin):  # type: ignore[misc]
    """An exact GP posterior given weighted pseudo-data, as a BoTorch model.

    Points, kernel, mean and likelihood are in the model's units. The two transforms lead there from the units of the
    data, as they do for BoTorch's own models. The cost of predictions, conditioning and fantasies depends on the points
    alone, however many rows they stand for. A new model is in eval mode.

    Parameters
    ----------
    X_c : Tensor of shape [M, D]
        Pseudo-inputs; leading batch dimensions are allowed.
    y_c : Tensor of shape [M, m] or [M]
        Pseudo-outputs, prior mean included.
    precision : Tensor of shape [M], [M, 1] or [M, m]
        One over the noise variance of each point; 0 leaves a point out.
    covar_module : gpytorch.kernels.Kernel
        Without batch shape, or with batch shape [m] for a kernel per output.
    mean_module : gpytorch.means.Mean
        As the kernel.
    likelihood : gpytorch.likelihoods.Likelihood
        Its noise is that of new observations. Conditioning and fantasies need a Gaussian one.
    input_transform : botorch.models.transforms.input.InputTransform or None
        From the units of the data to those of X_c, already fitted: it is used in eval mode.
    outcome_transform : botorch.models.transforms.outcome.OutcomeTransform or None
        From the units of the data to those of y_c. It learns nothing from pseudo-outputs: call it on the observations
        first.

    Examples
    --------
    >>> import torch
    >>> from cvgp.adapters.botorch import CVGPModel
    >>> from gpytorch.kernels import RBFKernel
    >>> from gpytorch.likelihoods import GaussianLikelihood
    >>> from gpytorch.means import ZeroMean
    >>> X_c = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    >>> y_c, precision = X_c.sin(), torch.tensor([100.0, 100.0], dtype=torch.float64)
    >>> model = CVGPModel(X_c, y_c, precision, RBFKernel().double(), ZeroMean(), GaussianLikelihood().double())
    >>> model.posterior(torch.rand(7, 3, 1, dtype=torch.float64)).mean.shape
    torch.Size([7, 3, 1])
    >>> X = torch.tensor([[2.0]], dtype=torch.float64)
    >>> after = model.condition_on_observations(X, X, noise=torch.full_like(X, 1e-4))
    >>> round(after.posterior(X).mean.item(), 2), len(after.X_c)
    (2.0, 3)
    """

    _rows: TrainingRows | None = None
    _holds_rows = True

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
        for name, values in zip(SITES, _checked_points(X_c, y_c, precision), strict=True):
            self.register_buffer(name, values)
        self.covar_module, self.mean_module, self.likelihood = covar_module, mean_module, likelihood
        if input_transform is not None:
            self.input_transform = input_transform
        if outcome_transform is not None:
            if not bool(getattr(outcome_transform, "_is_trained", True)):
                raise InvalidInputError(
                    f"The {type(outcome_transform).__name__} has not seen data, and it cannot learn from "
                    "pseudo-outputs: call it on the observations first, and give y_c in its units."
                )
            self.outcome_transform = outcome_transform
        self._layers_and_snapshot: tuple[tuple[Layer, ...], Snapshot] | None = None
        self.eval()

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        *,
        covar_module: Kernel | None = None,
        mean_module: Mean | None = None,
        likelihood: Likelihood | None = None,
    ) -> dict[str, Any]:
        """Return the arguments of a model in which each row of a data set is a point, to be fitted.

        Inputs are scaled to the unit cube of the data, and outputs to mean zero and variance one. By default kernel,
        mean and noise are those of BoTorch's `SingleTaskGP`, with their priors. The learned noise is added to the noise
        variances that the data set may have.
        """
        if not isinstance(training_data, SupervisedDataset):
            raise InvalidTypeError(
                f"training_data must be a botorch.utils.datasets.SupervisedDataset; got {type(training_data).__name__}."
                " Make one from tensors: SupervisedDataset(X, Y, feature_names=[...], outcome_names=[...])."
            )
        X, D, m = training_data.X, training_data.X.shape[-1], training_data.Y.shape[-1]
        outputs = torch.Size([m]) if m > 1 else torch.Size()
        input_transform, outcome_transform = Normalize(d=D).to(X), Standardize(m=m).to(X)
        points = input_transform(X)
        outcomes, known = outcome_transform(training_data.Y, training_data.Yvar)
        likelihood = likelihood or get_gaussian_likelihood_with_lognormal_prior(batch_shape=outputs).to(X)
        with torch.no_grad():
            noise = _row_noise(likelihood, points).mT.to(X).expand(len(X), -1)
        return {
            "X_c": points,
            "y_c": outcomes,
            "precision": (noise if known is None else noise + known).reciprocal(),
            "covar_module": covar_module
            or get_covar_module_with_dim_scaled_prior(ard_num_dims=D, batch_shape=outputs).to(X),
            "mean_module": mean_module or ConstantMean(batch_shape=outputs).to(X),
            "likelihood": likelihood,
            "input_transform": input_transform.eval(),
            "outcome_transform": outcome_transform.eval(),
        }

    @property
    def num_outputs(self) -> int:
        """The number of outputs m."""
        return int(self.y_c.shape[-1])

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape: empty, unless the model was made by fantasies or given batches of points."""
        return common_batch(*(getattr(self, name).shape[:-2] for name in SITES))

    def _set_transformed_inputs(self) -> None:
        """Nothing: BoTorch's exact models transform their data here, and points are always in the model's units."""

    _revert_to_original_inputs = _set_transformed_inputs

    def forward(self, X: Tensor) -> MultivariateNormal:
        """Return the prior at X `[..., n, D]`, in the model's units; several outputs are the last batch dimension."""
        points = X.to(torch.float64)
        K = evaluate(self.covar_module, points.unsqueeze(-3), points.unsqueeze(-3))
        return self._normal(Moments(prior_mean(self.mean_module, points), K), X.dtype)

    def __call__(self, X: Tensor) -> MultivariateNormal:
        """The prior at X in training mode, and otherwise the posterior, both in the model's units."""
        self._check_x(X)
        return self.forward(X) if self.training else self._normal(self._moments(X.to(torch.float64)), X.dtype)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Return the joint posterior at X `[..., q, D]`, in the units of the data.

        `observation_noise` adds the noise of the likelihood if it is True, or variances `[..., q, m]` in the model's
        units. The other arguments are those of BoTorch.
        """
        self.eval()  # as BoTorch's models do: acquisition functions leave it to them
        chosen = self._outputs(output_indices)
        X = self.transform_inputs(X)
        self._check_x(X)
        check_finite("X", X)
        points = X.to(torch.float64)
        found = self._moments(points)
        if observation_noise is not False:
            noise = self._noise(points, observation_noise)  # [..., Q, n]
            shape = common_batch(noise.shape, found.covariance.shape[:-1])
            covariance = to_linear_operator(found.covariance) + DiagLinearOperator(noise.expand(shape))
            found = found._replace(covariance=covariance)
        posterior: Posterior = GPyTorchPosterior(self._normal(found, X.dtype, chosen))
        if hasattr(self, "outcome_transform"):
            transform = self.outcome_transform
            transform = transform if output_indices is None else transform.subset_output(idcs=chosen)
            posterior = transform.untransform_posterior(posterior, X=X)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a model that has also seen new observations, in closed form. This one stays as it is.

        X is `[..., n, D]` and Y `[..., n, m]`, in the units of the data. They become points, after the old ones. With
        batch dimensions the result is a batch of models, which share the factorized points of this one. `noise` holds
        variances `[..., n, m]` in the model's units; those of the likelihood are used if it is None.
        """
        if self.training:
            raise InvalidInputError(
                "The model is in training mode, in which transforms would learn from the new rows; call model.eval()."
            )
        self._check_observations(X, Y, noise)
        X = self.transform_inputs(X)
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y, X=X)
        return self._appended(X, Y, noise)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Condition on `targets` `[..., n]` in the model's units: GPyTorch's interface, which `ModelListGP` uses."""
        if hasattr(self, "input_transform") or self.num_outputs > 1:
            raise InvalidInputError(
                "get_fantasy_model takes one output and inputs in the model's units, and this model has transforms or "
                "several outputs: call condition_on_observations of each model."
            )
        targets, noise = targets.unsqueeze(-1), None if noise is None else noise.unsqueeze(-1)
        self._check_observations(inputs, targets, noise)
        return self._appended(inputs, targets, noise)

    def subset_output(self, idcs: list[int]) -> Self:
        """Return a copy of the model with some of its outputs."""
        chosen, m = self._outputs(idcs), self.num_outputs
        precision = self.precision if self.precision.shape[-1] == 1 else self.precision[..., chosen]
        modules = (_for_outputs(module, chosen, m) for module in self._modules_to_learn())
        transforms = deepcopy(self._transforms())
        if transforms["outcome_transform"] is not None:
            transforms["outcome_transform"] = transforms["outcome_transform"].subset_output(idcs=chosen)
        model = type(self)(self.X_c, self.y_c[..., chosen], precision, *modules, **transforms)
        model._holds_rows = self._holds_rows
        model._rows = None if self._rows is None else self._rows.for_outputs(chosen)
        return model

    @property
    def training_rows(self) -> TrainingRows:
        """The rows that a fit learns from, in the model's units: the points, or the rows of the last fit."""
        if self.batch_shape:
            raise InvalidInputError(f"A batch of models, {list(self.batch_shape)}, has no rows to learn from.")
        if self._rows is not None:
            return self._rows
        if not self._holds_rows:
            raise InvalidInputError(
                "This model holds a coreset, not rows to learn from. Build a model of rows to fit it: "
                "CVGPModel(**CVGPModel.construct_inputs(SupervisedDataset(X, Y, ...)))."
            )
        used = (self.precision > 0).any(-1)
        X, Y, w = self.X_c[used], self.y_c[used], self.precision[used]
        return _training_rows(X, Y, w.clamp_min(torch.finfo(w.dtype).tiny).reciprocal(), self.likelihood)

    @property
    def train_inputs(self) -> tuple[Tensor]:
        """The inputs of the rows, in the model's units, as in GPyTorch's exact models."""
        return (self.training_rows.X,)

    @property
    def train_targets(self) -> Tensor:
        """The outputs of the rows in the model's units: [N], or [m, N] for several outputs."""
        y = self.training_rows.Y
        return y.squeeze(-1) if self.num_outputs == 1 else y.mT

    def custom_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Learn kernel, mean, noise and coreset from the rows, by cvgp's own solvers.

        ``botorch.fit.fit_gpytorch_mll(mll)`` calls this. Priors count and constraints hold, as in BoTorch's own fits. A
        small data set is fitted by the exact marginal likelihood, and a large one by a coreset. The same rows give the
        same model. There are no settings: all options must be None.
        """
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidInputError(
                f"CVGPModel is fitted by cvgp's own solvers, which have no settings; leave out {', '.join(given)}."
            )
        rows = self.training_rows
        for name, values in zip(SITES, _learn(self._modules_to_learn(), rows), strict=True):
            setattr(self, name, values.to(getattr(self, name)))
        self._rows = rows
        return mll.eval()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, keep_transforms: bool = True, assign: bool = False
    ) -> Any:
        """Load points, modules and transforms; the number of points may differ.

        Points are in the units of the transforms, so both are always loaded, whatever `keep_transforms` is.
        """
        for name in SITES:
            given = state_dict.get(name)
            if given is not None and given.shape != getattr(self, name).shape:
                setattr(self, name, getattr(self, name).new_zeros(given.shape))
        self._layers_and_snapshot = None
        return nn.Module.load_state_dict(self, state_dict, strict=strict, assign=assign)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has no history of gradients, and its factors are made when they are needed.
        buffers = {k: v if v is None or v.is_leaf else v.detach() for k, v in self._buffers.items()}
        return {**self.__dict__, "_layers_and_snapshot": None, "_buffers": buffers}

    def _modules_to_learn(self) -> Modules:
        return self.covar_module, self.mean_module, self.likelihood

    def _transforms(self) -> dict[str, Any]:
        return {name: getattr(self, name, None) for name in ("input_transform", "outcome_transform")}

    def _dependencies(self) -> list[Tensor]:
        """What the layers depend on, but for the points of fantasies: these are many, and nobody changes them."""
        points = [getattr(self, name) for name in SITES]
        return module_tensors(self.covar_module, self.mean_module) + [p for p in points if p.ndim == 2]

    def _layers(self) -> tuple[Layer, ...]:
        """The factorized points: those of the last call, unless GPyTorch is to keep gradients of hyperparameters."""
        if settings.detach_test_caches.off():
            return self._factorized()
        known = self._layers_and_snapshot
        if known is None or not known[1].holds(self._dependencies()):
            with torch.no_grad():
                known = self._layers_and_snapshot = self._factorized(), Snapshot(self._dependencies())
        return known[0]

    def _factorized(self) -> tuple[Layer, ...]:
        X, y, w = (getattr(self, name).to(torch.float64) for name in SITES)
        return condition((), self.covar_module, X, y.mT - prior_mean(self.mean_module, X), w.mT)

    def _appended(self, X: Tensor, Y: Tensor, noise: Tensor | None) -> Self:
        """Conditioned on observations in the model's units."""
        self._check_x(X)
        points, outcomes = X.to(torch.float64), Y.to(torch.float64)
        variances = _row_noise(self.likelihood, points) if noise is None else noise.to(outcomes).mT  # [..., Q, n]
        w = variances.expand(*variances.shape[:-1], X.shape[-2]).reciprocal()
        residual = outcomes.mT - prior_mean(self.mean_module, points)
        layers = condition(self._layers(), self.covar_module, points, residual, w)
        parts, transforms = self._modules_to_learn(), self._transforms()
        if fantasize.off():
            parts, transforms = deepcopy((parts, transforms))
        X_c, y_c, precision = _cat(self.X_c, X), _cat(self.y_c, Y), _cat(self.precision, w.mT)
        model = type(self)(X_c, y_c, precision, *parts, **transforms)
        model._holds_rows = self._holds_rows
        model._layers_and_snapshot = layers, Snapshot(model._dependencies())
        if self._rows is not None and not model.batch_shape:
            new = _training_rows(X.detach(), Y.detach(), w.reciprocal().mT.detach().to(Y), self.likelihood)
            model._rows = TrainingRows(*(_cat(mine, theirs) for mine, theirs in zip(self._rows, new, strict=True)))
        return model

    def _moments(self, points: Tensor) -> Moments:
        found = moments(self._layers(), self.covar_module, self.mean_module, points)
        if not isinstance(self.likelihood, InputNoiseLikelihood):
            return found
        covariance = to_dense(found.covariance)
        root = self.likelihood.f_factor(covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)).sqrt()
        return found._replace(covariance=root[..., :, None] * covariance * root[..., None, :])

    def _normal(self, found: Moments, dtype: torch.dtype, outputs: list[int] | None = None) -> MultivariateNormal:
        """Some outputs, which are independent, as one distribution; without a choice, as the last batch dimension."""
        m, n = self.num_outputs, found.mean.shape[-1]
        batch = common_batch(found.mean.shape[:-2], found.covariance.shape[:-3])
        mean = found.mean.expand(*batch, m, n).to(dtype)
        # An operator, since torch would factorize a plain matrix at once, which may fail for near points.
        covariance = to_linear_operator(found.covariance.expand(*batch, m, n, n).to(dtype))
        chosen = [0] if m == 1 else outputs
        if chosen is None:
            return MultivariateNormal(mean, covariance)
        if len(chosen) == 1:
            return MultivariateNormal(mean[..., chosen[0], :], covariance[..., chosen[0], :, :])
        # BoTorch's acquisition functions of several outputs expect a block for each output.
        blocks = BlockDiagLinearOperator(covariance[..., chosen, :, :])
        return MultitaskMultivariateNormal(mean[..., chosen, :].mT, blocks, interleaved=False)

    def _noise(self, points: Tensor, given: bool | Tensor) -> Tensor:
        """Noise variances [..., Q, n], of the likelihood or as they are given [..., n, m]."""
        if not isinstance(given, Tensor):
            return _observation_noise(self.likelihood, points)
        self._check_noise(given, points.shape[-2])
        return given.to(points).mT.expand(*given.shape[:-2], -1, points.shape[-2])

    def _outputs(self, indices: Sequence[int] | None) -> list[int]:
        """Numbers of outputs, counted from the front; all of them if None."""
        m = self.num_outputs
        chosen = range(m) if indices is None else [int(index) for index in indices]
        if not chosen or any(not -m <= index < m for index in chosen):
            raise InvalidInputError(
                f"Outputs are counted from 0 to {m - 1}, and at least one is needed; got {list(chosen)}."
            )
        return [index % m for index in chosen]

    def _check_x(self, X: Tensor) -> None:
        D = self.X_c.shape[-1]
        if not isinstance(X, Tensor) or X.ndim < 2 or X.shape[-1] != D:
            raise InvalidInputError(f"X must be a tensor [..., n, {D}], as the points of the model; got {_shape(X)}.")

    def _check_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None) -> None:
        n, m = X.shape[-2], self.num_outputs
        if not isinstance(Y, Tensor) or Y.ndim < 2 or Y.shape[-2:] != (n, m):
            raise InvalidInputError(f"With {n} rows of X, Y must be a tensor [..., {n}, {m}]; got {_shape(Y)}.")
        common_batch(X.shape[:-2], Y.shape[:-2])
        if noise is not None:
            self._check_noise(noise, n)

    def _check_noise(self, noise: Tensor, n: int) -> None:
        m = self.num_outputs
        shape = noise.shape if isinstance(noise, Tensor) else ()
        if len(shape) < 2 or shape[-2] not in (1, n) or shape[-1] not in (1, m) or not bool((noise > 0).all()):
            raise InvalidInputError(
                f"Noise must be a tensor of positive variances [..., {n}, {m}]; got {_shape(noise)}."
            )


def from_regressor(regressor: CVGPRegressor) -> CVGPModel:
    """`CVGPRegressor.to_botorch`: the model keeps the standardized units of the fit, behind the two transforms."""
    fitted, scaling, input_noise = fitted_parts(regressor)
    likelihood = fitted.likelihood
    if input_noise is not None:
        likelihood = InputNoiseLikelihood(fitted.noise.item(), input_noise)
    means, scales = (torch.as_tensor(values).clone()[None] for values in (scaling.y_mean, scaling.y_scale))
    outcome_transform = Standardize(m=means.shape[-1]).to(means)
    outcome_transform.means, outcome_transform.stdvs, outcome_transform._stdvs_sq = means, scales, scales.square()
    outcome_transform._is_trained = torch.tensor(True)
    points = fitted.X_c.detach(), fitted.y_c.detach(), fitted.site_precision.detach()
    transforms = ScaledInputs(scaling), outcome_transform.eval()
    model = CVGPModel(*points, fitted.kernel, fitted.mean, likelihood, *transforms)
    model._holds_rows = False
    return model


class ScaledInputs(InputTransform, InputScaling):  # type: ignore[misc]
    """The scaling of a regressor's inputs as a transform of BoTorch."""

    transform_on_train = transform_on_eval = transform_on_fantasize = True

    def transform(self, X: Tensor) -> Tensor:
        """Inputs in the model's units."""
        return InputScaling.forward(self, X)


def _checked_points(X_c: Tensor, y_c: Tensor, precision: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """X_c [..., M, D], y_c [..., M, Q] and precisions [..., M, Q] or [..., M, 1]; one output may come as [M]."""
    for name, values in zip(SITES, (X_c, y_c, precision), strict=True):
        if not isinstance(values, Tensor):
            raise InvalidTypeError(
                f"{name} must be a torch.Tensor; got {type(values).__name__}. Convert it with torch.as_tensor."
            )
    if X_c.ndim < 2 or X_c.numel() == 0:
        raise InvalidInputError(f"X_c must be [..., M, D] with at least one point; got {list(X_c.shape)}.")
    M = X_c.shape[-2]
    y_c, precision = (values.unsqueeze(-1) if values.ndim == 1 else values for values in (y_c, precision))
    if y_c.shape[-2] != M or precision.shape[-2] != M or precision.shape[-1] not in (1, y_c.shape[-1]):
        raise InvalidInputError(
            f"With {M} points X_c, y_c must be [..., {M}, m] and precision [..., {M}, 1] or [..., {M}, m]; "
            f"got {list(y_c.shape)} and {list(precision.shape)}."
        )
    common_batch(X_c.shape[:-2], y_c.shape[:-2], precision.shape[:-2])
    if not bool(((precision >= 0) & torch.isfinite(precision)).all()):
        raise InvalidInputError("Precisions (one over the noise variance) must be finite and not negative.")
    check_finite("X_c", X_c)
    check_finite("y_c", y_c)
    return X_c, y_c, precision


def _shape(values: Any) -> str:
    return str(list(values.shape)) if isinstance(values, Tensor) else type(values).__name__


def _cat(first: Tensor, second: Tensor) -> Tensor:
    """One after the other along the points, in the precision of the first; other dimensions broadcast."""
    batch = common_batch(first.shape[:-2], second.shape[:-2])
    width = max(first.shape[-1], second.shape[-1])
    parts = (part.to(first.dtype).expand(*batch, part.shape[-2], width) for part in (first, second))
    return torch.cat(list(parts), dim=-2)


# The likelihood, and modules with a batch dimension for the outputs


def _observation_noise(likelihood: Likelihood, x: Tensor) -> Tensor:
    """Noise variances of new observations at x [..., n, D], as [..., Q, n]."""
    if isinstance(likelihood, InputNoiseLikelihood):
        return likelihood.variance(x.unsqueeze(-3))
    if not isinstance(likelihood, GaussianLikelihood):
        raise InvalidTypeError(
            f"{type(likelihood).__name__} has no noise variance for new observations. Give the model a "
            "gpytorch.likelihoods.GaussianLikelihood (with batch_shape [m] for a noise per output), or pass the noise "
            "variances."
        )
    noise: Tensor = likelihood.noise.to(x)
    return noise.reshape(-1, 1).expand(-1, x.shape[-2])


def _row_noise(likelihood: Likelihood, x: Tensor) -> Tensor:
    """Noise variances with which rows at x [..., n, D] are conditioned on, as [..., Q, n]."""
    if isinstance(likelihood, InputNoiseLikelihood):
        return likelihood.row_noise(x.unsqueeze(-3))
    return _observation_noise(likelihood, x)


def _output_dims(module: nn.Module, num_outputs: int) -> dict[str, int]:
    """For each parameter that outputs do not share, by name: its dimension of the outputs."""
    found: dict[str, int] = {}
    for prefix, part in module.named_modules():
        batch = getattr(part, "batch_shape", None)
        for name, parameter in part.named_parameters(prefix, recurse=False):
            # The noise has no batch_shape: its parameter is [..., Q, 1].
            is_noise = isinstance(part, HomoskedasticNoise)
            dim = parameter.ndim - 2 if is_noise else -1 if batch is None else len(batch) - 1
            if dim >= 0 and parameter.shape[dim] == num_outputs > 1:
                found[name] = dim
    return found


@torch.no_grad()
def _for_outputs(module: Module, outputs: list[int], num_outputs: int) -> Module:
    """A copy of a module for some of its outputs; one output has no batch dimension."""
    part, dims = deepcopy(module), _output_dims(module, num_outputs)
    tail = [] if len(outputs) == 1 else [len(outputs)]
    for name, dim in dims.items():
        parameter = part.get_parameter(name)
        chosen = parameter.index_select(dim, torch.tensor(outputs, device=parameter.device))
        parameter.data = chosen if tail else chosen.squeeze(dim)
    for prefix, inner in part.named_modules():
        if getattr(inner, "batch_shape", None) and any(name.rpartition(".")[0] == prefix for name in dims):
            inner.batch_shape = torch.Size([*inner.batch_shape[:-1], *tail])
    return part


# The fit


class TrainingRows(NamedTuple):
    """Observations in the units of a model."""

    X: Tensor  # [N, D]
    Y: Tensor  # [N, m]
    known_noise: Tensor  # [N, m] or [N, 1], noise variance in addition to the learned one

    def for_outputs(self, outputs: list[int]) -> TrainingRows:
        """The rows of some outputs."""
        known = self.known_noise
        return TrainingRows(self.X, self.Y[:, outputs], known if known.shape[-1] == 1 else known[:, outputs])


@torch.no_grad()
def _training_rows(X: Tensor, Y: Tensor, noise: Tensor, likelihood: Likelihood) -> TrainingRows:
    """Rows with these noise variances [N, m] or [N, 1]: what exceeds the noise of the likelihood is known."""
    learned = _row_noise(likelihood, X).mT.to(noise)
    return TrainingRows(X, Y, torch.where(noise > (1 + 1e-6) * learned, noise - learned, 0.0))


def _learn(modules: Modules, rows: TrainingRows) -> tuple[Tensor, Tensor, Tensor]:
    """Train the modules in place, and return X_c [M, D], y_c [M, m] and precisions [M, m] or [M, 1].

    Outputs that share kernel, mean and noise share a coreset. Otherwise each has its own points, whose precision is
    zero for all other outputs.
    """
    if type(modules[2]) is not GaussianLikelihood:
        raise InvalidTypeError(
            f"A fit needs a gpytorch.likelihoods.GaussianLikelihood; got {type(modules[2]).__name__}."
        )
    m = rows.Y.shape[-1]
    counts = [(len(_output_dims(module, m)), len(list(module.parameters()))) for module in modules]
    if not any(own for own, _ in counts):
        return _learn_one(modules, rows)
    if any(own < every for own, every in counts):
        raise InvalidInputError(
            f"Kernel, mean and likelihood must all have batch_shape [{m}], for outputs that are learned one by one, or "
            "none of them, for outputs that share all."
        )
    found = []
    for output in range(m):
        single: Any = tuple(_for_outputs(module, [output], m) for module in modules)
        found.append(_learn_one(single, rows.for_outputs([output])))
        with torch.no_grad():
            for module, learned in zip(modules, single, strict=True):
                for name, dim in _output_dims(module, m).items():
                    place = module.get_parameter(name).select(dim, output)
                    place.copy_(learned.get_parameter(name).reshape(place.shape))
    X_c, y_c, precision = zip(*found, strict=True)
    return torch.cat(X_c), torch.block_diag(*y_c), torch.block_diag(*precision)


def _learn_one(modules: Modules, rows: TrainingRows) -> tuple[Tensor, Tensor, Tensor]:
    """Train modules that all outputs share, and return the coreset."""
    X, Y, known = (values.detach().to(torch.float64) for values in rows)
    if not torch.equal(known, known[:, :1].expand_as(known)):
        raise InvalidInputError("Outputs that share kernel and noise must have the same noise variances in each row.")
    source = MemorySource(X, Y[:, 0] if Y.shape[1] == 1 else Y, None, known[:, 0] if bool(known.any()) else None)
    kernel, mean, likelihood = parts = tuple(_without_bounds(module) for module in modules)
    run, options = Run.alone(), TrainingOptions()  # with one seed, so that the same rows give the same model

    def model_of(coreset: Coreset) -> CVGP:
        return CVGP(coreset, kernel, mean=mean, likelihood=likelihood).to(source.device)

    def train(model: CVGP, rows: MemorySource) -> CVGP:
        M, D = model.X_c.shape
        plan = make_plan(options, rows.num_rows, M, D, run)
        return solve(model, rows, plan, options, run, may_shrink=True).model

    every, some = (source.sample(count, run.rng("rows")) for count in (source.num_rows, START_ROWS))
    points, some_points = (Coreset(part.x.cpu(), part.y.cpu(), np.ones(len(part.x))) for part in (every, some))
    _find_start(model_of(some_points), some)
    if source.num_rows <= EXACT_ROWS:
        start = model_of(points)
    else:
        train(model_of(some_points), MemorySource(*some))
        placed = initial_coreset("kmeans", points.X, points.y, CORESET_POINTS, run.rng("points"), kernel=kernel)
        start = model_of(placed)
        raise_noise(start, some, run.heuristics.noise_ladder)
    fitted = train(start, source)
    for mine, learned in zip(modules, parts, strict=True):
        _take_values(mine, learned)
    y_c, w = fitted.y_c.detach(), fitted.site_precision.detach()
    return fitted.X_c.detach(), y_c if y_c.ndim == 2 else y_c[:, None], w[:, None]


@torch.no_grad()
def _find_start(model: CVGP, rows: Any) -> None:
    """Stretch all lengthscales and set the noise to the best of a few values, by the exact likelihood of some rows.

    Far from an optimum the gradient is large, and the first step of L-BFGS would take parameters to the end of their
    range, where the gradient vanishes.
    """
    stretched = [part for part in model.kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    own, variance = [part.lengthscale.clone() for part in stretched], rows.y.var().item()
    noises = [model.noise.item(), *(share * variance for share in NOISE_SHARES)]

    def density(factor: float, noise: float) -> float:
        for part, lengthscale in zip(stretched, own, strict=True):
            part.lengthscale = lengthscale
            multiply_inside(part, "lengthscale", factor)
        model.likelihood.noise_covar.noise = model.noise.new_tensor(noise)
        residual = rows.y - mean_at(model.mean, rows.x, rows.y)
        value = log_marginal(square_matrix(model.kernel, rows.x), residual, model.total_noise(rows.noise_variance))
        return value.item() + model.log_prior().item()

    density(*max(((factor, noise) for factor in STRETCHES for noise in noises), key=lambda start: density(*start)))


def _without_bounds(module: Module) -> Module:
    """A copy in float64 whose parameters may take any value.

    GPyTorch leaves constraints without a transform to a bounded optimizer. Here they get a transform.
    """
    copied = deepcopy(module).double()
    part: Any
    for part in copied.modules():
        for name, constraint in list(getattr(part, "_constraints", {}).items()):
            if not constraint.enforced:
                raw, lower, upper = name.removesuffix("_constraint"), constraint.lower_bound, constraint.upper_bound
                own = log_above(lower) if torch.isinf(upper).all() else Interval(lower.clone(), upper.clone())
                own = LessThan(upper.clone()) if torch.isinf(lower).all() else own
                value = inside(getattr(part, raw).detach(), own.lower_bound, own.upper_bound)
                part.register_constraint(raw, own)
                getattr(part, raw).data = own.inverse_transform(value)
    return copied


@torch.no_grad()
def _take_values(mine: nn.Module, learned: nn.Module) -> None:
    """Copy the values of parameters, whose raw form depends on the constraints of each side."""
    theirs = dict(learned.named_modules())
    for prefix, part in mine.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            value = getattr(theirs[prefix], name)
            if f"{name}_constraint" in getattr(part, "_constraints", {}):
                there, here = (p.constraint_for_parameter_name(name) for p in (theirs[prefix], part))
                value = here.inverse_transform(there.transform(value))
            parameter.copy_(value.reshape(parameter.shape))


# Function draws (§2.3): BoTorch draws from the prior by features of the kernel, and cvgp makes posterior draws of these


@DrawMatheronPaths.register(CVGPModel)  # type: ignore[untyped-decorator]
def _draw_paths(model: CVGPModel, *, sample_shape: torch.Size, **samplers: Any) -> MatheronPath:
    """Functions of the posterior, in the units of the data."""
    if model.batch_shape:
        raise InvalidInputError(f"Paths are drawn from one model; got a batch of {list(model.batch_shape)}.")
    m, to_model_units = model.num_outputs, get_input_transform(model)
    # Outputs that share a kernel are independent draws from it.
    shape = [*sample_shape, m] if m > 1 and not model.covar_module.batch_shape else sample_shape
    prior = _draw_kernel_feature_paths_fallback(
        num_inputs=model.X_c.shape[-1],
        mean_module=model.mean_module,
        covar_module=model.covar_module,
        sample_shape=torch.Size(shape),
        input_transform=to_model_units,
    )
    f_c, weights = prior.forward(model.X_c), []  # which bypasses the transforms of the path
    for output in range(m):
        kernel = _for_outputs(model.covar_module, [output], m)
        w = model.precision.expand(-1, m)[:, output]
        values = f_c if m == 1 else f_c[..., output, :]
        weights.append(_update_weights(kernel, model.X_c, model.y_c[:, output], w, values))
    features = KernelEvaluationMap(model.covar_module, model.X_c, input_transform=to_model_units)
    update = GeneralizedLinearPath(features, weights[0] if m == 1 else torch.stack(weights, dim=-2))
    return MatheronPath(prior, update, output_transform=get_output_transform(model))


@GaussianUpdate.register(ApproximateGP, CoresetVariationalStrategy)  # type: ignore[untyped-decorator]
def _update_of_strategy(
    model: ApproximateGP,
    strategy: CoresetVariationalStrategy,
    *,
    sample_values: Tensor,
    input_transform: InputTransform | None = None,
    **ignored: Any,
) -> GeneralizedLinearPath:
    """The same for the strategy inside a variational model, such as BoTorch's `SingleTaskVariationalGP`."""
    strategy.start_sites()
    X_c, y_c = strategy.inducing_points.detach(), strategy._variational_distribution.pseudo_targets.detach()
    if y_c.ndim > 1:
        raise InvalidInputError(f"Paths are drawn from one process; got a batch of {list(y_c.shape[:-1])}.")
    weight = _update_weights(model.covar_module, X_c, y_c, strategy.site_precision.detach(), sample_values)
    features = KernelEvaluationMap(model.covar_module, X_c, input_transform=input_transform)
    return GeneralizedLinearPath(feature_map=features, weight=weight)


@torch.no_grad()
def _update_weights(kernel: Kernel, X_c: Tensor, y_c: Tensor, w: Tensor, f_c: Tensor) -> Tensor:
    """Weights [..., M] of k(., X_c) that turn draws of the prior, with the values f_c [..., M], into posterior ones."""
    factor = factorize(square_matrix(kernel, X_c), w, y_c)
    draws = f_c.reshape(-1, f_c.shape[-1])
    site_noise = torch.randn(draws.shape, dtype=torch.float64, device=draws.device)
    return pathwise_weights(factor, draws, site_noise).reshape(f_c.shape).to(f_c)
