"""A CVGP as arrays and a JSON description.

Names of arrays are those of torch's `state_dict`. Parameters come back to the bit, with their constraints and whether
they are frozen. Priors are left out: a prediction does not need them, only another fit would.
"""

import warnings
from collections.abc import Mapping
from typing import Any, Literal, cast

import numpy as np
import torch
from gpytorch.kernels import Kernel, RFFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import Mean
from numpy.typing import NDArray
from torch import nn

from cvgp.coreset import Coreset
from cvgp.errors import CVGPWarning, FileFormatError, InvalidTypeError
from cvgp.files.modules import pack_part, unpack_part
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.kernels import prior_mean, square_matrix
from cvgp.gp.model import CVGP

CORESET = ("X_c", "y_c", "raw_beta")
NOISE = "likelihood.noise_covar"


def pack_model(model: CVGP) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and a description in JSON types, from which :func:`unpack_model` makes the same model.

    A model that could not be used, such as one with NaN in its parameters, is left for :func:`unpack_model` to refuse.

    Raises
    ------
    InvalidTypeError
        For a kernel, mean, likelihood or constraint that a file cannot hold.
    """
    if type(model) is not CVGP or type(model.likelihood) is not GaussianLikelihood:
        raise InvalidTypeError(
            "A file can hold a cvgp.CVGP with GPyTorch's GaussianLikelihood; "
            f"got a {type(model).__name__} with {type(getattr(model, 'likelihood', None)).__name__}."
        )
    arrays = {name: getattr(model, name).detach().cpu().numpy().copy() for name in (*CORESET, "site_noise_offset")}
    spec: dict[str, Any] = {
        "beta_transform": model.beta_transform,
        "frozen": [name for name in CORESET if not getattr(model, name).requires_grad],
    }
    for name, part in (("kernel", model.kernel), ("mean", model.mean), (NOISE, model.likelihood.noise_covar)):
        if any(True for _ in part.named_priors()):
            warnings.warn(
                f"The priors of {name} are not stored. Predictions do not need them. To fit the loaded model again, "
                "give it the kernel with its priors by set_params.",
                CVGPWarning,
                stacklevel=2,
            )
        part_arrays, spec[name] = pack_part(part, name)
        arrays |= part_arrays
    return arrays, spec


def unpack_model(arrays: Mapping[str, NDArray[Any]], spec: object) -> CVGP:
    """The model of what may be an untrusted file; anything wrong is a :class:`~cvgp.errors.FileFormatError`."""
    left, members = Arrays(arrays), Members(spec, "model")
    X_c = left.take("X_c", (None, None))  # [M, D]
    M = len(X_c)
    y_c = left.take("y_c", (M,), (M, None))
    raw_beta = left.take("raw_beta", (M,))
    offset = left.take("site_noise_offset", ())
    kernel = unpack_part(members.members("kernel"), left, "kernel", Kernel)
    mean = unpack_part(members.members("mean"), left, "mean", Mean)
    likelihood = GaussianLikelihood()
    likelihood.noise_covar = unpack_part(members.members(NOISE), left, NOISE, HomoskedasticNoise)
    beta_transform = cast(Literal["log", "softplus"], members.text("beta_transform", ("log", "softplus")))
    frozen = members.items("frozen")
    left.close()
    members.close()
    if not all(name in CORESET for name in frozen):
        raise FileFormatError(f"model.frozen may name {', '.join(CORESET)} and nothing else.")

    model = CVGP(Coreset(X_c, y_c, np.ones(M)), kernel, mean=mean, likelihood=likelihood, beta_transform=beta_transform)
    for name, array in zip(CORESET, (X_c, y_c, raw_beta), strict=True):
        setattr(model, name, nn.Parameter(torch.tensor(array), requires_grad=name not in frozen))
    model.site_noise_offset = torch.tensor(offset)
    _check_usable(model)
    return model


@torch.no_grad()
def _check_usable(model: CVGP) -> None:
    """Check on one point that the parts fit each other, so that the first prediction does not fail."""
    for part in model.kernel.modules():
        if type(part) is RFFKernel and not hasattr(part, "randn_weights"):
            raise FileFormatError("An RFFKernel has not drawn its frequencies (randn_weights) yet.")
    x, y = model.X_c[:1], model.y_c[:1]
    try:
        values = [square_matrix(model.kernel, x), prior_mean(model.mean, x, y), model.beta]
        noise = [model.noise, model.site_noise]
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(f"The parts of the model do not fit each other ({error}).") from error
    if not all(bool(torch.isfinite(value).all()) for value in (*values, *noise)):
        raise FileFormatError("The kernel, the mean, the weights or the noise overflow.")
    if not all(bool(value > 0) for value in noise):
        raise FileFormatError("The noise variance must be positive.")
