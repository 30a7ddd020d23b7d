"""GPyTorch's constraints as a class, a transform and bounds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from numpy.typing import NDArray
from torch import Tensor, nn

from cvgp.errors import FileFormatError, InvalidTypeError
from cvgp.files.untrusted import Arrays, Members

Transform = Callable[[Tensor], Tensor]

# Each class, how to make it with bounds that are replaced later, and the names of its own bounds.
_CLASSES: dict[str, tuple[Any, Callable[..., Any], tuple[str, ...]]] = {
    "Positive": (Positive, Positive, ()),
    "GreaterThan": (GreaterThan, partial(GreaterThan, 0.0), ("lower_bound",)),
    "LessThan": (LessThan, partial(LessThan, 0.0), ("upper_bound",)),
    "Interval": (Interval, partial(Interval, 0.0, 1.0), ("lower_bound", "upper_bound")),
}
_SOFTPLUS = nn.Softplus()
_TRANSFORMS: dict[str, tuple[Transform, Transform]] = {
    "exp": (torch.exp, torch.log),
    "softplus": (_SOFTPLUS, inv_softplus),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
}


def pack_constraint(constraint: Any, prefix: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The bounds as arrays, whose names start with `prefix`, and a description of the rest."""
    name = type(constraint).__name__
    if name not in _CLASSES or type(constraint) is not _CLASSES[name][0]:
        raise InvalidTypeError(
            f"A file cannot hold {prefix}, a {name}; it can hold GPyTorch's {', '.join(_CLASSES)}. Use one of these."
        )
    bounds = {f"{prefix}.{bound}": getattr(constraint, bound).detach().cpu().numpy() for bound in _CLASSES[name][2]}
    return bounds, {"class": name, "transform": _transform_name(constraint, prefix)}


def unpack_constraint(members: Members, arrays: Arrays, prefix: str, parameter: Tensor) -> Any:
    """The constraint of a raw parameter, from an untrusted description."""
    _, make, bounds = _CLASSES[members.text("class", _CLASSES)]
    transform, inverse = _TRANSFORMS[members.text("transform", _TRANSFORMS)]
    members.close()
    constraint = make(transform=transform, inv_transform=inverse).to(parameter.dtype)
    for bound in bounds:
        value = torch.tensor(arrays.take(f"{prefix}.{bound}"))
        try:
            value.expand(parameter.shape)  # a bound may be one number or one per element
        except RuntimeError as error:
            raise FileFormatError(
                f"{prefix}.{bound} of shape {list(value.shape)} does not fit a parameter of {list(parameter.shape)}."
            ) from error
        setattr(constraint, bound, value)
    if not bool((constraint.lower_bound < constraint.upper_bound).all()):
        raise FileFormatError(f"The lower bound of {prefix} must be below its upper bound.")
    return constraint


def _transform_name(constraint: Any, prefix: str) -> str:
    forward, backward = constraint._transform, constraint._inv_transform
    # GPyTorch's default is a module, which is copied together with the constraint.
    if forward is nn.functional.softplus or (
        type(forward) is nn.Softplus and (forward.beta, forward.threshold) == (_SOFTPLUS.beta, _SOFTPLUS.threshold)
    ):
        forward = _SOFTPLUS
    for name, (transform, inverse) in _TRANSFORMS.items():
        if forward is transform and backward is inverse:
            return name
    raise InvalidTypeError(
        f"A file cannot hold the transform of {prefix}, or the inverse does not belong to it. "
        "Use exp with log, GPyTorch's softplus or GPyTorch's sigmoid, with their own inverses."
    )
