"""Rows that a model learns from, and the model that is made of the rows of a data set."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import Standardize
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean
from torch import Tensor

from cvgp.adapters.botorch.observed_noise import row_noise
from cvgp.errors import InvalidTypeError

ROUNDING = 1e-6
"""A precision that differs by less than this share from that of the likelihood is that of the likelihood."""


class TrainingRows(NamedTuple):
    """Observations in the units of a model."""

    X: Tensor  # [N, D]
    Y: Tensor  # [N, m]
    weight: Tensor  # [N, m] or [N, 1], how often each counts
    known_noise: Tensor  # [N, m] or [N, 1], noise variance beside the learned one

    def append(self, other: TrainingRows) -> TrainingRows:
        """These rows, then others."""
        joined = []
        for mine, theirs in zip(self, other, strict=True):
            width = max(mine.shape[-1], theirs.shape[-1])
            joined.append(torch.cat([mine.expand(-1, width), theirs.expand(-1, width)]))
        return TrainingRows(*joined)

    def of_outputs(self, outputs: list[int]) -> TrainingRows:
        """The rows of some outputs."""
        kept = (values if values.shape[-1] == 1 else values[:, outputs] for values in self[1:])
        return TrainingRows(self.X, *kept)


def rows_from(X: Tensor, Y: Tensor, noise: Tensor, learned: Tensor) -> TrainingRows:
    """Rows whose noise variances are known [N, m] or [N, 1], where that of the likelihood is `learned`.

    What is beyond the learned noise is known of the row. A row of less noise counts as several.
    """
    share = learned / noise
    plain = (share - 1.0).abs() < ROUNDING
    known = torch.where(plain, 0.0, noise - learned).clamp_min(0.0)
    return TrainingRows(X, Y, torch.where(plain, 1.0, share).clamp_min(1.0), known)


@torch.no_grad()
def rows_of_points(X_c: Tensor, y_c: Tensor, precision: Tensor, likelihood: Likelihood) -> TrainingRows:
    """The points of a model as observations; those of precision zero say nothing."""
    says = (precision > 0).any(-1)
    X, Y, w = X_c[says], y_c[says], precision[says]
    smallest = torch.finfo(w.dtype).tiny
    return rows_from(X, Y, w.clamp_min(smallest).reciprocal(), row_noise(likelihood, X).mT.to(w))


def inputs_from_dataset(
    training_data: SupervisedDataset,
    covar_module: Kernel | None,
    mean_module: Mean | None,
    likelihood: Likelihood | None,
) -> dict[str, Any]:
    """`CVGPModel.construct_inputs`."""
    if not isinstance(training_data, SupervisedDataset):
        raise InvalidTypeError(
            f"training_data must be a botorch.utils.datasets.SupervisedDataset; got {type(training_data).__name__}. "
            "Make one of tensors: SupervisedDataset(X, Y, feature_names=[...], outcome_names=[...])."
        )
    X, Y, known = training_data.X, training_data.Y, training_data.Yvar
    D, m = X.shape[-1], Y.shape[-1]
    outputs = torch.Size([m]) if m > 1 else torch.Size()
    input_transform, outcome_transform = Normalize(d=D).to(X), Standardize(m=m).to(X)
    points = input_transform(X)
    outcomes, known = outcome_transform(Y, known)
    likelihood = likelihood or get_gaussian_likelihood_with_lognormal_prior(batch_shape=outputs).to(X)
    with torch.no_grad():
        noise = row_noise(likelihood, points).mT.to(X)
        noise = noise.expand(len(X), -1) if known is None else noise + known
    return {
        "X_c": points,
        "y_c": outcomes,
        "precision": noise.reciprocal(),
        "covar_module": covar_module
        or get_covar_module_with_dim_scaled_prior(ard_num_dims=D, batch_shape=outputs).to(X),
        "mean_module": mean_module or ConstantMean(batch_shape=outputs).to(X),
        "likelihood": likelihood,
        "input_transform": input_transform.eval(),
        "outcome_transform": outcome_transform.eval(),
    }
