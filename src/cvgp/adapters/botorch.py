"""The coreset posterior in BoTorch: a model that conditions, fantasizes and draws functions in closed form.

Needs the extra `botorch`. From top to bottom: `CVGPModel`, its checks, its fit, and its function draws.
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
from gpytorch.means import ConstantMean, Mean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from linear_operator import to_dense, to_linear_operator
from linear_operator.operators import BlockDiagLinearOperator, DiagLinearOperator
from torch import Tensor, nn

from cvgp.adapters.algebra import Layer, Snapshot, common_batch, condition, module_tensors, moments
from cvgp.adapters.fitted_regressor import InputNoiseLikelihood, InputScaling, fitted_parts
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
from cvgp.gp.kernels import check_finite, evaluate, inside, log_above, multiply_inside, prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import factorize, joined, pathwise_weights

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
    from botorch.sampling.pathwise.utils import get_input_transform, get_output_transform
    from botorch.utils.datasets import SupervisedDataset

__all__ = ["CVGPModel"]

Module = TypeVar("Module", bound=nn.Module)
Modules = tuple[Kernel, Mean, Likelihood]

SITES = ("X_c", "y_c", "precision")
EXACT_ROWS, CORESET_POINTS = 1000, 400  # rows of an exact fit, and points among more rows
START_ROWS, STRETCHES, NOISE_SHARES = 500, (1.0, 0.5, 2.0, 4.0), (0.5, 0.1, 0.01, 1e-3)


class CVGPModel(GPyTorchModel, GP, FantasizeMixin):  # type: ignore[misc]
    """An exact GP posterior given weighted pseudo-data, as a BoTorch model in eval mode.

    Points, kernel, mean and likelihood are in the model's units.

    Parameters
    ----------
    X_c : Tensor of shape [M, D]
        Pseudo-inputs; leading batch dimensions are allowed.
    y_c : Tensor of shape [M, m] or [M]
        Pseudo-outputs, prior mean included.
    precision : Tensor of shape [M] or [M, 1]
        One over the noise variance of each point; 0 leaves a point out.
    covar_module : gpytorch.kernels.Kernel
        Without batch shape, as mean and likelihood: outputs share all three.
    mean_module : gpytorch.means.Mean
        The prior mean.
    likelihood : gpytorch.likelihoods.Likelihood
        Its noise is that of new observations. Conditioning and fantasies need a Gaussian one.
    input_transform, outcome_transform : transforms of BoTorch, or None
        From the units of the data to those of X_c and y_c. They learn nothing from pseudo-data: fit them first.

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
        if getattr(covar_module, "batch_shape", None) or getattr(mean_module, "batch_shape", None):
            raise InvalidInputError(
                "Kernel and mean must have no batch_shape, since outputs share them: for outputs of their own kernels, "
                "join models in a botorch.models.ModelListGP."
            )
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
        """Return the arguments of a model in which each row of a data set of one output is a point, to be fitted.

        Inputs and outputs are scaled. By default kernel, mean and noise are those of BoTorch's `SingleTaskGP`.
        """
        if not isinstance(training_data, SupervisedDataset):
            raise InvalidTypeError(
                f"training_data must be a botorch.utils.datasets.SupervisedDataset; got {type(training_data).__name__}."
                " Make one from tensors: SupervisedDataset(X, Y, feature_names=[...], outcome_names=[...])."
            )
        X, D, m = training_data.X, training_data.X.shape[-1], training_data.Y.shape[-1]
        if m > 1:
            raise InvalidInputError(
                f"The data set must have one output; got {m}. Make a model for each, and join them in a "
                "botorch.models.ModelListGP."
            )
        input_transform, outcome_transform = Normalize(d=D).to(X), Standardize(m=1).to(X)
        points = input_transform(X)
        outcomes, known = outcome_transform(training_data.Y, training_data.Yvar)
        likelihood = likelihood or get_gaussian_likelihood_with_lognormal_prior().to(X)
        with torch.no_grad():
            noise = _row_noise(likelihood, points)[:, None]
        return {
            "X_c": points,
            "y_c": outcomes,
            "precision": (noise if known is None else noise + known).reciprocal(),
            "covar_module": covar_module or get_covar_module_with_dim_scaled_prior(ard_num_dims=D).to(X),
            "mean_module": mean_module or ConstantMean().to(X),
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
        mean = prior_mean(self.mean_module, points, points)  # [..., n, 1]
        return self._normal(mean, evaluate(self.covar_module, points, points).unsqueeze(-3), X.dtype)

    def __call__(self, X: Tensor) -> MultivariateNormal:
        """The prior at X in training mode, and otherwise the posterior, both in the model's units."""
        self._check_x(X)
        return self.forward(X) if self.training else self._normal(*self._moments(X.to(torch.float64)), X.dtype)

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
        mean, covariance = self._moments(points)
        if observation_noise is not False:
            noise = self._noise(points, observation_noise)  # [..., 1 or m, n]
            shape = common_batch(noise.shape, covariance.shape[:-1])
            covariance = to_linear_operator(covariance) + DiagLinearOperator(noise.expand(shape))
        posterior: Posterior = GPyTorchPosterior(self._normal(mean, covariance, X.dtype, chosen))
        if hasattr(self, "outcome_transform"):
            transform = self.outcome_transform
            transform = transform if output_indices is None else transform.subset_output(idcs=chosen)
            posterior = transform.untransform_posterior(posterior, X=X)
        return posterior if posterior_transform is None else posterior_transform(posterior=posterior, X=X)

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a model that has also seen new observations, in closed form. This one stays as it is.

        X is `[..., n, D]` and Y `[..., n, m]`, in the units of the data. They become points, after the old ones. With
        batch dimensions the result is a batch of models, which share the factorized points of this one. `noise` holds
        variances `[..., n, 1]` in the model's units; those of the likelihood are used if it is None.
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
        chosen = self._outputs(idcs)
        parts = deepcopy(self._parts())
        if parts["outcome_transform"] is not None:
            parts["outcome_transform"] = parts["outcome_transform"].subset_output(idcs=chosen)
        model = type(self)(self.X_c, self.y_c[..., chosen], self.precision, **parts)
        model._holds_rows = self._holds_rows
        model._rows = None if self._rows is None else self._rows._replace(Y=self._rows.Y[:, chosen])
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
        used = self.precision[:, 0] > 0
        return _training_rows(self.X_c[used], self.y_c[used], self.precision[used].reciprocal(), self.likelihood)

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
        """Learn kernel, mean, noise and coreset from the rows; ``botorch.fit.fit_gpytorch_mll(mll)`` calls this.

        Priors count and constraints hold, as in BoTorch's own fits. A small data set is fitted by the exact marginal
        likelihood, and a large one by a coreset. The same rows give the same model. All options must be None.
        """
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidInputError(
                f"CVGPModel is fitted by cvgp's own solvers, which have no settings; leave out {', '.join(given)}."
            )
        rows = self.training_rows
        for name, values in zip(
            SITES, _learn((self.covar_module, self.mean_module, self.likelihood), rows), strict=True
        ):
            setattr(self, name, values.to(getattr(self, name)))
        self._rows = rows
        return mll.eval()

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, keep_transforms: bool = True, assign: bool = False
    ) -> Any:
        """Load points, modules and transforms, whatever `keep_transforms` is; the number of points may differ."""
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

    def _parts(self) -> dict[str, Any]:
        names = ("covar_module", "mean_module", "likelihood", "input_transform", "outcome_transform")
        return {name: getattr(self, name, None) for name in names}

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
        return condition((), self.covar_module, X, y - prior_mean(self.mean_module, X, X), w[..., 0])

    def _appended(self, X: Tensor, Y: Tensor, noise: Tensor | None) -> Self:
        """Conditioned on observations in the model's units."""
        self._check_x(X)
        points = X.to(torch.float64)
        variance = _row_noise(self.likelihood, points) if noise is None else noise.to(points)[..., 0]
        w = variance.expand(*variance.shape[:-1], X.shape[-2]).reciprocal()  # [..., n]
        residual = Y.to(torch.float64) - prior_mean(self.mean_module, points, points)
        layers = condition(self._layers(), self.covar_module, points, residual, w)
        parts = self._parts() if fantasize.on() else deepcopy(self._parts())
        pairs = zip(SITES, (X, Y, w[..., None]), strict=True)
        together = (joined(getattr(self, name), new.to(getattr(self, name)), -2) for name, new in pairs)
        model = type(self)(*together, **parts)
        model._holds_rows = self._holds_rows
        model._layers_and_snapshot = layers, Snapshot(model._dependencies())
        if self._rows is not None and not model.batch_shape:
            noise = w.detach().reciprocal()[:, None].to(Y)
            new = _training_rows(X.detach(), Y.detach(), noise, self.likelihood)
            both = zip(self._rows, new, strict=True)
            model._rows = TrainingRows(*(torch.cat([mine, theirs.to(mine)]) for mine, theirs in both))
        return model

    def _moments(self, points: Tensor) -> tuple[Tensor, Any]:
        """Mean [..., n, m] and covariance [..., 1, n, n] of f at points [..., n, D]."""
        known, covariance = moments(self._layers(), self.covar_module, points)
        mean = known + prior_mean(self.mean_module, points, points)
        if isinstance(self.likelihood, InputNoiseLikelihood):
            covariance = to_dense(covariance)
            root = self.likelihood.input_noise.f_factor(covariance.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)).sqrt()
            covariance = root[..., :, None] * covariance * root[..., None, :]
        return mean, covariance.unsqueeze(-3)

    def _normal(
        self, mean: Tensor, covariance: Any, dtype: torch.dtype, outputs: list[int] | None = None
    ) -> MultivariateNormal:
        """Outputs, which are independent, as one distribution; without a choice, as the last batch dimension."""
        m, n = self.num_outputs, mean.shape[-2]
        batch = common_batch(mean.shape[:-2], covariance.shape[:-3])
        mean = mean.expand(*batch, n, m).to(dtype)
        # An operator, since torch would factorize a plain matrix at once, which may fail for near points.
        covariance = to_linear_operator(covariance.expand(*batch, m, n, n).to(dtype))
        chosen = [0] if m == 1 else outputs
        if chosen is None:
            return MultivariateNormal(mean.mT, covariance)
        if len(chosen) == 1:
            return MultivariateNormal(mean[..., chosen[0]], covariance[..., chosen[0], :, :])
        # BoTorch's acquisition functions of several outputs expect a block for each output.
        blocks = BlockDiagLinearOperator(covariance[..., chosen, :, :])
        return MultitaskMultivariateNormal(mean[..., chosen], blocks, interleaved=False)

    def _noise(self, points: Tensor, given: bool | Tensor) -> Tensor:
        """Noise variances of new observations [..., 1 or m, n], of the likelihood or as they are given [..., n, m]."""
        if not isinstance(given, Tensor):
            return _observation_noise(self.likelihood, points).unsqueeze(-2)
        self._check_noise(given, points.shape[-2], self.num_outputs)
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
            self._check_noise(noise, n, 1)

    def _check_noise(self, noise: Tensor, n: int, m: int) -> None:
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
    """X_c [..., M, D], y_c [..., M, m] and precisions [..., M, 1]; one output may come as [M]."""
    for name, values in zip(SITES, (X_c, y_c, precision), strict=True):
        if not isinstance(values, Tensor):
            raise InvalidTypeError(
                f"{name} must be a torch.Tensor; got {type(values).__name__}. Convert it with torch.as_tensor."
            )
    if X_c.ndim < 2 or X_c.numel() == 0:
        raise InvalidInputError(f"X_c must be [..., M, D] with at least one point; got {list(X_c.shape)}.")
    M = X_c.shape[-2]
    y_c, precision = (values.unsqueeze(-1) if values.ndim == 1 else values for values in (y_c, precision))
    if y_c.shape[-2] != M or precision.shape[-2:] != (M, 1):
        raise InvalidInputError(
            f"With {M} points X_c, y_c must be [..., {M}, m] and precision [{M}] or [..., {M}, 1]; "
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


def _observation_noise(likelihood: Likelihood, x: Tensor) -> Tensor:
    """Noise variances [..., n] of new observations at x [..., n, D]."""
    if isinstance(likelihood, InputNoiseLikelihood):
        return likelihood.variance(x)
    if not isinstance(likelihood, GaussianLikelihood) or likelihood.noise.numel() > 1:
        raise InvalidTypeError(
            f"{type(likelihood).__name__} has no noise variance for new observations. Give the model a "
            "gpytorch.likelihoods.GaussianLikelihood without batch_shape, or pass the noise variances."
        )
    noise: Tensor = likelihood.noise.to(x)
    return noise.reshape(1).expand(x.shape[-2])


def _row_noise(likelihood: Likelihood, x: Tensor) -> Tensor:
    """Noise variances [..., n] with which rows at x [..., n, D] are conditioned on."""
    if isinstance(likelihood, InputNoiseLikelihood):
        return likelihood.row_noise(x)
    return _observation_noise(likelihood, x)


# The fit


class TrainingRows(NamedTuple):
    """Observations in the units of a model."""

    X: Tensor  # [N, D]
    Y: Tensor  # [N, m]
    known_noise: Tensor  # [N, 1], noise variance in addition to the learned one


@torch.no_grad()
def _training_rows(X: Tensor, Y: Tensor, noise: Tensor, likelihood: Likelihood) -> TrainingRows:
    """Rows with these noise variances [N, 1]: what exceeds the noise of the likelihood is known."""
    learned = _row_noise(likelihood, X)[:, None].to(noise)
    return TrainingRows(X, Y, torch.where(noise > (1 + 1e-6) * learned, noise - learned, 0.0))


def _learn(modules: Modules, rows: TrainingRows) -> tuple[Tensor, Tensor, Tensor]:
    """Train the modules in place, and return X_c [M, D], y_c [M, m] and precisions [M, 1]."""
    if type(modules[2]) is not GaussianLikelihood:
        raise InvalidTypeError(
            f"A fit needs a gpytorch.likelihoods.GaussianLikelihood; got {type(modules[2]).__name__}."
        )
    X, Y, known = (values.detach().to(torch.float64) for values in rows)
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
    """Stretch all lengthscales and set the noise to the best of a few values, by the exact likelihood of some rows."""
    stretched = [part for part in model.kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    own, variance = [part.lengthscale.clone() for part in stretched], rows.y.var().item()
    noises = [model.noise.item(), *(share * variance for share in NOISE_SHARES)]

    def density(factor: float, noise: float) -> float:
        for part, lengthscale in zip(stretched, own, strict=True):
            part.lengthscale = lengthscale
            multiply_inside(part, "lengthscale", factor)
        model.likelihood.noise_covar.noise = model.noise.new_tensor(noise)
        residual = rows.y - prior_mean(model.mean, rows.x, rows.y)
        value = log_marginal(square_matrix(model.kernel, rows.x), residual, model.total_noise(rows.noise_variance))
        return value.item() + model.log_prior().item()

    density(*max(((factor, noise) for factor in STRETCHES for noise in noises), key=lambda start: density(*start)))


def _without_bounds(module: Module) -> Module:
    """A copy in float64 in which constraints that GPyTorch leaves to a bounded optimizer have a transform."""
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
@torch.no_grad()
def _draw_paths(model: CVGPModel, *, sample_shape: torch.Size, **samplers: Any) -> MatheronPath:
    """Functions of the posterior, in the units of the data."""
    if model.batch_shape:
        raise InvalidInputError(f"Paths are drawn from one model; got a batch of {list(model.batch_shape)}.")
    m, to_model_units = model.num_outputs, get_input_transform(model)
    prior = _draw_kernel_feature_paths_fallback(
        num_inputs=model.X_c.shape[-1],
        mean_module=model.mean_module,
        covar_module=model.covar_module,
        sample_shape=torch.Size([*sample_shape, m] if m > 1 else sample_shape),  # outputs are independent draws
        input_transform=to_model_units,
    )
    f_c = prior.forward(model.X_c)  # [..., M], or [..., m, M]; it bypasses the transforms of the path
    K_cc, weights = square_matrix(model.covar_module, model.X_c), []
    for output in range(m):
        values = f_c if m == 1 else f_c[..., output, :]
        draws = values.reshape(-1, values.shape[-1]).to(torch.float64)
        factor = factorize(K_cc, model.precision[:, 0], model.y_c[:, output])
        found = pathwise_weights(factor, draws, torch.randn_like(draws))
        weights.append(found.reshape(values.shape).to(values))
    features = KernelEvaluationMap(model.covar_module, model.X_c, input_transform=to_model_units)
    update = GeneralizedLinearPath(features, weights[0] if m == 1 else torch.stack(weights, dim=-2))
    return MatheronPath(prior, update, output_transform=get_output_transform(model))
