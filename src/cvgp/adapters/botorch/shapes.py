"""What the tensors of a model must look like, and messages for those that do not."""

from collections.abc import Sequence

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp.kernels import check_finite


def as_points(X_c: Tensor, y_c: Tensor, precision: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """X_c [..., M, D], y_c [..., M, Q] and precisions [..., M, Q], or [..., M, 1] for all outputs; checked.

    One output may come as [..., M].
    """
    for name, values in (("X_c", X_c), ("y_c", y_c), ("precision", precision)):
        if not isinstance(values, Tensor):
            raise InvalidTypeError(
                f"{name} must be a torch.Tensor; got {type(values).__name__}. Convert it with torch.as_tensor."
            )
    if X_c.ndim < 2 or X_c.numel() == 0:
        raise InvalidInputError(f"X_c must be [..., M, D] with at least one point; got {list(X_c.shape)}.")
    y_c, precision = (_with_outputs(values, X_c.shape[-2]) for values in (y_c, precision))
    M = X_c.shape[-2]
    if y_c.ndim < 2 or y_c.shape[-2] != M or precision.ndim < 2 or precision.shape[-2] != M:
        raise InvalidInputError(
            f"With {M} points X_c, y_c must be [..., {M}, m] and precision [..., {M}] or [..., {M}, m]; "
            f"got {list(y_c.shape)} and {list(precision.shape)}."
        )
    if precision.shape[-1] not in (1, y_c.shape[-1]):
        raise InvalidInputError(
            f"precision must have one column for all outputs or one for each of {y_c.shape[-1]}; "
            f"got {precision.shape[-1]}."
        )
    common_batch(X_c.shape[:-2], y_c.shape[:-2], precision.shape[:-2])
    if not bool(((precision >= 0) & torch.isfinite(precision)).all()):
        raise InvalidInputError("Precisions (one over the noise variance) must be finite and not negative.")
    check_finite("X_c", X_c)
    check_finite("y_c", y_c)
    return X_c, y_c, precision


def _with_outputs(values: Tensor, num_points: int) -> Tensor:
    return values.unsqueeze(-1) if values.ndim == 1 and len(values) == num_points else values


def common_batch(*shapes: Sequence[int]) -> torch.Size:
    """The batch shape that several broadcast to."""
    try:
        common: torch.Size = torch.broadcast_shapes(*shapes)
    except RuntimeError as error:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise InvalidInputError(f"Batch shapes must broadcast with each other; got {listed}.") from error
    return common


def check_x(X: Tensor, num_dims: int) -> None:
    """Raise unless X is a tensor [..., n, D] of the dimension of the points."""
    if not isinstance(X, Tensor):
        raise InvalidTypeError(f"X must be a torch.Tensor; got {type(X).__name__}. Convert it with torch.as_tensor.")
    if X.ndim < 2 or X.shape[-1] != num_dims:
        raise InvalidInputError(f"X must be [..., n, {num_dims}], as the points of the model are; got {list(X.shape)}.")


def check_observations(X: Tensor, Y: Tensor, noise: Tensor | None, num_outputs: int) -> None:
    """Raise unless Y [..., n, Q], and noise variances if any, fit X [..., n, D]."""
    n = X.shape[-2]
    if not isinstance(Y, Tensor) or Y.ndim < 2 or Y.shape[-2:] != (n, num_outputs):
        came = list(Y.shape) if isinstance(Y, Tensor) else type(Y).__name__
        raise InvalidInputError(f"With {n} rows of X, Y must be [..., {n}, {num_outputs}]; got {came}.")
    common_batch(X.shape[:-2], Y.shape[:-2])
    if noise is None:
        return
    if not isinstance(noise, Tensor) or noise.ndim < 2 or noise.shape[-2] not in (1, n):
        came = list(noise.shape) if isinstance(noise, Tensor) else type(noise).__name__
        raise InvalidInputError(f"noise must be a tensor of variances [..., {n}, {num_outputs}]; got {came}.")
    if not bool((noise > 0).all()):
        raise InvalidInputError("noise holds variances, which must be above 0.")


def check_outputs(indices: Sequence[int] | None, num_outputs: int) -> list[int]:
    """Numbers of outputs, counted from the front; all of them if None."""
    if indices is None:
        return list(range(num_outputs))
    chosen = [int(index) for index in indices]
    if not chosen or any(not -num_outputs <= index < num_outputs for index in chosen):
        raise InvalidInputError(
            f"Outputs are counted from 0 to {num_outputs - 1}, and at least one is needed; got {list(indices)}."
        )
    return [index % num_outputs for index in chosen]
