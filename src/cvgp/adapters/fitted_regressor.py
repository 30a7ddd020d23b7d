"""A fitted regressor as GPyTorch modules, for `CVGPRegressor.to_botorch`."""

import warnings
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from cvgp.data.scaling import Scaling
from cvgp.data.transforms import Path
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.estimators.fitted import FARTHEST
from cvgp.estimators.frames import schema_of
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.gp.kernels import gaussian_likelihood
from cvgp.gp.model import CVGP
from cvgp.gp.noise import InputNoise


def fitted_parts(regressor: Any) -> tuple[CVGP, Scaling, InputNoise | None]:
    """A regressor's model on the CPU, its scaling and its noise map; raise or warn where a host cannot have them."""
    if not isinstance(regressor, CVGPRegressor):
        raise InvalidTypeError(f"from_regressor takes a fitted cvgp.CVGPRegressor; got {type(regressor).__name__}.")
    check_is_fitted(regressor)
    schema = schema_of(regressor)
    if schema is not None and not schema.is_numeric:
        raise InvalidInputError(
            f"The regressor was fitted to a table with the columns {[column.name for column in schema.columns]}, which "
            "are not all numbers, and tensors hold numbers only. Convert the columns to numbers before the fit."
        )
    gp = regressor._gp
    gp.need_gaussian("from_regressor", alike=True)
    if gp.target.name != "identity":
        raise InvalidInputError(
            f"The regressor models y after the transform {gp.target.name!r}, which a Gaussian likelihood cannot undo. "
            "Fit with target_transform='identity', and transform y yourself (in BoTorch by an outcome_transform)."
        )
    lost = []
    if gp.kept is not None:
        lost.append(
            f"its {gp.kept.num_neighbors} neighbors (the coreset alone predicts less accurately; fit with "
            "n_neighbors=0 for a coreset that needs none)"
        )
    if gp.tails is not None:
        lost.append("the heavy tails of its noise")
    if gp.outliers is not None:
        lost.append("its model of outliers")
    if lost:
        message = f"The exported model has the coreset and Gaussian noise, but not {', nor '.join(lost)}."
        warnings.warn(message, CVGPWarning, stacklevel=4)
    return deepcopy(gp.model).cpu().double(), gp.scaling, gp.noise


class InputScaling(nn.Module):
    """Inputs in the user's units as the model sees them: warped, standardized and clamped, with gradients."""

    shift: Tensor  # [D]
    inverse_scale: Tensor  # [D], zero for a column that was constant in the fit

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        inverse = np.divide(1.0, scaling.x_scale, out=np.zeros_like(scaling.x_scale), where=scaling.varies)
        self.register_buffer("shift", torch.tensor(scaling.x_mean))
        self.register_buffer("inverse_scale", torch.tensor(inverse))
        self.limit = min(scaling.x_limit, FARTHEST)
        self.warps = nn.ModuleDict({str(d): _Warp(path) for d, path in scaling.warp.paths().items()})

    def forward(self, x: Tensor) -> Tensor:
        """Inputs [..., D] in the model's units."""
        columns = list(x.unbind(-1))
        for d, warp in self.warps.items():
            columns[int(d)] = warp(columns[int(d)])
        warped = torch.stack(columns, -1) if self.warps else x
        return ((warped - self.shift.to(x)) * self.inverse_scale.to(x)).clamp(-self.limit, self.limit)


class _Warp(nn.Module):
    """A monotone piecewise linear function of one column."""

    knots: Tensor  # [k]
    values: Tensor  # [k]
    slopes: Tensor  # [k + 1], the first and the last beyond the outer knots

    def __init__(self, path: Path) -> None:
        super().__init__()
        low, high = path.outer_slopes()
        inner = np.diff(path.values) / np.diff(path.knots)
        self.register_buffer("knots", torch.tensor(path.knots))
        self.register_buffer("values", torch.tensor(path.values))
        self.register_buffer("slopes", torch.tensor(np.concatenate([[low], inner, [high]])))

    def forward(self, x: Tensor) -> Tensor:
        """The function at x [...]."""
        knots, values, slopes = (part.to(x) for part in (self.knots, self.values, self.slopes))
        part = torch.bucketize(x.detach().contiguous(), knots, right=True)
        start = (part - 1).clamp_min(0)
        return values[start] + slopes[part] * (x - knots[start])


class InputNoiseLikelihood(GaussianLikelihood):  # type: ignore[misc]
    """A Gaussian likelihood whose noise depends on x: ``likelihood(model(x), x)``; `constant` is that of the fit."""

    def __init__(self, constant: float, input_noise: InputNoise) -> None:
        own = gaussian_likelihood(constant)
        super().__init__(noise_constraint=own.noise_covar.raw_noise_constraint)
        self.double().noise = own.noise.detach()
        for name, value in input_noise._asdict().items():
            self.register_buffer(name, value.detach().cpu().clone())

    @property
    def input_noise(self) -> InputNoise:
        """The noise as the regressor holds it."""
        return InputNoise(*(getattr(self, name) for name in InputNoise._fields))

    def variance(self, x: Tensor) -> Tensor:
        """The noise variance [..., n] of observations at x [..., n, D]."""
        return self.input_noise.variance(x)

    def row_noise(self, x: Tensor) -> Tensor:
        """The noise variance with which new rows at x [..., n, D] are conditioned on, as the regressor does it."""
        constant: Tensor = self.noise.to(x.dtype)
        if not bool(self.input_noise.base > 0):
            return constant.expand(x.shape[:-1])
        return constant + self.input_noise.beyond_base(x)

    def _shaped_noise_covar(
        self, base_shape: torch.Size, *params: Any, noise: Tensor | None = None, **_: Any
    ) -> DiagLinearOperator:
        if noise is None:
            if not params:
                raise InvalidTypeError("This noise depends on x: pass the inputs too, likelihood(model(x), x).")
            (x,) = params[0] if isinstance(params[0], list | tuple) else (params[0],)
            noise = self.variance(x)
        return DiagLinearOperator(noise.expand(base_shape))
