"""A fitted estimator as arguments of a BoTorch model, with transforms from the user's units to the model's."""

import warnings
from copy import deepcopy
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import Standardize
from torch import Tensor, nn

from cvgp.adapters.gpytorch.exportable import check_exportable
from cvgp.adapters.gpytorch.input_noise_likelihood import InputNoiseLikelihood
from cvgp.adapters.gpytorch.standardised_inputs import Standardise
from cvgp.data.scaling import Scaling
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.units import ScaledGP


class ScaledInputs(InputTransform, nn.Module):  # type: ignore[misc]
    """The scaling of an estimator's inputs: warps, and the limit of far inputs, are part of it."""

    transform_on_train = transform_on_eval = transform_on_fantasize = True

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        self.standardise = Standardise(scaling)

    def transform(self, X: Tensor) -> Tensor:
        """Inputs in the model's units."""
        scaled: Tensor = self.standardise(X)
        return scaled

    def untransform(self, X: Tensor) -> Tensor:
        """Inputs in the user's units."""
        return self.standardise.inverse(X)


def scaled_outputs(scaling: Scaling) -> Standardize:
    """BoTorch's standardisation with the numbers of an estimator."""
    means, scales = (torch.as_tensor(values).clone()[None] for values in (scaling.y_mean, scaling.y_scale))
    transform = Standardize(m=means.shape[-1]).to(means)
    transform.means, transform.stdvs, transform._stdvs_sq = means, scales, scales.square()
    transform._is_trained = torch.tensor(True)
    return transform.eval()


def arguments_of(regressor: CVGPRegressor) -> dict[str, Any]:
    """What `CVGPModel` takes, of a fitted estimator."""
    check_exportable(regressor)
    gp = regressor.gp_
    if gp.target.name != "identity":
        raise InvalidInputError(
            f"The estimator describes y by target={gp.target.name!r}, and its y is not Gaussian. Fit it to the "
            "transformed y with target='identity', and transform y back by an outcome_transform of BoTorch."
        )
    _say_what_is_lost(gp)
    model = deepcopy(gp.model).cpu().double()
    likelihood = model.likelihood
    if gp.noise is not None:
        likelihood = InputNoiseLikelihood(model.noise.item(), gp.noise)
    y_c = model.y_c.detach()
    return {
        "X_c": model.X_c.detach(),
        "y_c": y_c if y_c.ndim == 2 else y_c[:, None],
        "precision": model.site_precision.detach()[:, None],
        "covar_module": model.kernel,
        "mean_module": model.mean,
        "likelihood": likelihood,
        "input_transform": ScaledInputs(gp.scaling),
        "outcome_transform": scaled_outputs(gp.scaling),
    }


def _say_what_is_lost(gp: ScaledGP) -> None:
    lost = []
    if gp.local is not None:
        lost.append(
            f"The estimator consults {gp.local.kept.num_neighbours} neighbours beside its coreset. The model takes the "
            "coreset alone, so it misses what only near rows know. Fit with neighbors=0 for a coreset that needs none."
        )
    if gp.outliers is not None:
        lost.append("The estimator discounts outliers. The model takes each new row as it is.")
    if gp.tails is not None:
        lost.append("The estimator's noise has heavier tails than a normal one. The model's noise is normal.")
    if lost:
        warnings.warn(" ".join(lost), CVGPWarning, stacklevel=5)
