"""CVGPModel: a coreset posterior as a BoTorch model, with conditioning and fantasies in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Self

import torch
from botorch.models.model import FantasizeMixin
from botorch.models.utils.assorted import fantasize
from torch import Tensor

from cvgp.adapters.botorch.factor_cache import Cache
from cvgp.adapters.botorch.from_estimator import arguments_of
from cvgp.adapters.botorch.layers import Layer, add_layer, join, prior_mean
from cvgp.adapters.botorch.module_outputs import for_outputs
from cvgp.adapters.botorch.observed_noise import row_noise
from cvgp.adapters.botorch.shapes import check_observations, check_outputs, check_x, common_batch
from cvgp.adapters.botorch.trainable_model import TrainableModel
from cvgp.adapters.botorch.training_rows import TrainingRows, rows_from
from cvgp.errors import InvalidInputError
from cvgp.estimators.regressor import CVGPRegressor


class CVGPModel(TrainableModel, FantasizeMixin):  # type: ignore[misc]
    """An exact GP posterior given weighted pseudo-data, as a BoTorch model.

    Points, kernel, mean and likelihood are in the units in which the model works; the two transforms lead there from
    the units of the data, as they do for BoTorch's own models. Predictions, conditioning and fantasies need the points
    alone, whatever number of rows they stand for. A new model is in eval mode.

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
        From the units of the data to those of X_c. It has learned what it needs, and is used in eval mode.
    outcome_transform : botorch.models.transforms.outcome.OutcomeTransform or None
        From the units of the data to those of y_c. It learns nothing from pseudo-outputs: call it on the observations
        before it is given here.

    Raises
    ------
    InvalidInputError
        If shapes do not fit, a value is not finite, or the outcome transform has not seen data.
    InvalidTypeError
        If the points are no tensors.

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
    """

    @classmethod
    def from_regressor(cls, r: CVGPRegressor) -> Self:
        """Return a fitted estimator as a model of its coreset, in the units of the data.

        The same as ``r.to_botorch()``, which says what is kept and what is lost.

        Parameters
        ----------
        r : CVGPRegressor
            A fitted one, which stays as it is.

        Returns
        -------
        CVGPModel
            In float64 and in eval mode.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If y is transformed.
        InvalidTypeError
            If it is something else.

        Warns
        -----
        CVGPWarning
            If predictions of the estimator use more than the coreset and Gaussian noise.

        Examples
        --------
        >>> import numpy as np, torch
        >>> from cvgp import CVGPRegressor
        >>> from cvgp.adapters.botorch import CVGPModel
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> regressor = CVGPRegressor(n_coreset=8, neighbors=0, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model = CVGPModel.from_regressor(regressor)
        >>> mean = model.posterior(torch.tensor([[1.0], [2.0]], dtype=torch.float64)).mean[:, 0]
        >>> bool(np.allclose(mean.detach(), regressor.predict([[1.0], [2.0]]), atol=1e-8))
        True
        """
        model = cls(**arguments_of(r))
        model._is_made_of_rows = False
        return model

    def condition_on_observations(self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a model that has also seen new observations, in closed form. This one stays as it is.

        The observations become points. With batch dimensions the result is a batch of models, which share the
        factorised points of this one.

        Parameters
        ----------
        X : Tensor of shape [..., n, D]
            Inputs, in the units of the data.
        Y : Tensor of shape [..., n, m]
            Outputs, in the units of the data; their batch dimensions broadcast with those of X.
        noise : Tensor of shape [..., n, m] or None
            Noise variances in the model's units, as BoTorch has them; those of the likelihood if None.
        **kwargs
            Of other BoTorch models; not used.

        Returns
        -------
        CVGPModel
            With the points of this model and, after them, the new ones.

        Raises
        ------
        InvalidInputError
            If shapes do not fit, a variance is not positive, or the model is in training mode.
        InvalidTypeError
            If `noise` is None and the likelihood knows none for new observations.

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
        >>> X = torch.tensor([[2.0]], dtype=torch.float64)
        >>> after = model.condition_on_observations(X, X, noise=torch.full_like(X, 1e-4))
        >>> round(after.posterior(X).mean.item(), 2), len(after.X_c)
        (2.0, 3)
        """
        if self.training:
            raise InvalidInputError(
                "The model is in training mode, in which transforms would learn from the new rows; call model.eval()."
            )
        check_observations(X, Y, noise, self.num_outputs)
        X = self.transform_inputs(X)
        if hasattr(self, "outcome_transform"):
            Y, _ = self.outcome_transform(Y, X=X)
        return self._appended(X, Y, noise)

    def get_fantasy_model(self, inputs: Tensor, targets: Tensor, noise: Tensor | None = None, **kwargs: Any) -> Self:
        """Return a model that has also seen new observations: GPyTorch's name for it, which `ModelListGP` uses.

        Parameters
        ----------
        inputs : Tensor of shape [..., n, D]
            Inputs, in the model's units.
        targets : Tensor of shape [..., n]
            Outputs, in the model's units.
        noise : Tensor of shape [..., n] or None
            Noise variances; those of the likelihood if None.
        **kwargs
            Of other GPyTorch models; not used.

        Returns
        -------
        CVGPModel
            As :meth:`condition_on_observations` returns it.

        Raises
        ------
        InvalidInputError
            If there is an `input_transform` or more than one output, or shapes do not fit.
        InvalidTypeError
            If `noise` is None and the likelihood knows none for new observations.

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
        >>> len(model.get_fantasy_model(torch.full((1, 1), 2.0), torch.ones(1)).X_c)
        3
        """
        if hasattr(self, "input_transform") or self.num_outputs > 1:
            raise InvalidInputError(
                "get_fantasy_model is for one output and inputs in the model's units, and this model has transforms or "
                "several outputs: call condition_on_observations of each model."
            )
        noise = None if noise is None else noise.unsqueeze(-1)
        check_observations(inputs, targets.unsqueeze(-1), noise, 1)
        return self._appended(inputs, targets.unsqueeze(-1), noise)

    def subset_output(self, idcs: list[int]) -> Self:
        """Return a copy of the model for some of its outputs.

        Parameters
        ----------
        idcs : list of int
            Numbers of the outputs to keep.

        Returns
        -------
        CVGPModel
            With the same points.

        Raises
        ------
        InvalidInputError
            If there are no such outputs.

        Examples
        --------
        >>> import torch
        >>> from cvgp.adapters.botorch import CVGPModel
        >>> from gpytorch.kernels import RBFKernel
        >>> from gpytorch.likelihoods import GaussianLikelihood
        >>> from gpytorch.means import ZeroMean
        >>> X_c = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> y_c = torch.cat([X_c.sin(), X_c.cos()], -1)
        >>> parts = RBFKernel().double(), ZeroMean(), GaussianLikelihood().double()
        >>> model = CVGPModel(X_c, y_c, torch.full_like(X_c, 100.0), *parts)
        >>> model.num_outputs, model.subset_output([1]).num_outputs
        (2, 1)
        """
        chosen, m = check_outputs(idcs, self.num_outputs), self.num_outputs
        precision = self.precision if self.precision.shape[-1] == 1 else self.precision[..., chosen]
        modules = (for_outputs(module, chosen, m) for module in self._parts())
        transforms = {name: deepcopy(getattr(self, name, None)) for name in ("input_transform", "outcome_transform")}
        if transforms["outcome_transform"] is not None:
            transforms["outcome_transform"] = transforms["outcome_transform"].subset_output(idcs=chosen)
        model = type(self)(self.X_c, self.y_c[..., chosen], precision, *modules, **transforms)
        model._is_made_of_rows = self._is_made_of_rows
        model._rows = None if self._rows is None else self._rows.of_outputs(chosen)
        return model

    def _appended(self, X: Tensor, Y: Tensor, noise: Tensor | None) -> Self:
        """Conditioned on observations in the model's units."""
        check_x(X, self.X_c.shape[-1])
        points, outcomes = X.to(torch.float64), Y.to(torch.float64)
        variances = row_noise(self.likelihood, points) if noise is None else noise.to(outcomes).mT  # [..., Q, n]
        variances = variances.expand(*variances.shape[:-1], X.shape[-2])
        w = variances.reciprocal()
        residual = outcomes.mT - prior_mean(self.mean_module, points)
        before = self._layers()
        new = add_layer(before, self.covar_module, points, residual, w)
        model = self._with_points(_cat(self.X_c, X), _cat(self.y_c, Y), _cat(self.precision, w.mT))
        is_single = len(before) == 1 and not model.batch_shape and not new.u.requires_grad
        layers: Sequence[Layer] = [join(before[0], new)] if is_single else [*before, new]
        model._cache = Cache.of(layers, (model.covar_module, model.mean_module), model._points())
        if self._rows is not None and not model.batch_shape:
            rows = rows_from(X, Y, variances.mT.to(Y), row_noise(self.likelihood, points).mT.to(Y))
            model._rows = self._rows.append(TrainingRows(*(values.detach() for values in rows)))
        return model

    def _with_points(self, X_c: Tensor, y_c: Tensor, precision: Tensor) -> Self:
        """A model like this one with other points. It has modules of its own, unless it is a fantasy."""
        parts = self.covar_module, self.mean_module, self.likelihood
        transforms = {name: getattr(self, name, None) for name in ("input_transform", "outcome_transform")}
        if fantasize.off():
            parts, transforms = deepcopy((parts, transforms))
        model = type(self)(X_c, y_c, precision, *parts, **transforms)
        model._is_made_of_rows = self._is_made_of_rows
        return model


def _cat(first: Tensor, second: Tensor) -> Tensor:
    """One after the other along the points, in the precision of the first; other dimensions broadcast."""
    batch = common_batch(first.shape[:-2], second.shape[:-2])
    width = max(first.shape[-1], second.shape[-1])
    parts = (part.to(first.dtype).expand(*batch, part.shape[-2], width) for part in (first, second))
    return torch.cat(list(parts), dim=-2)
