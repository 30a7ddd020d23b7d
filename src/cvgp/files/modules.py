"""GPyTorch kernels, means and noise models as arrays and a JSON description."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from numpy.typing import NDArray
from torch import Tensor, nn

from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.files.constraints import pack_constraint, unpack_constraint
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.kernels import scale_kernel

Array = NDArray[Any]
Shape = tuple[int | Literal["ard"] | None, ...]
"""Sizes of a parameter; "ard" is the number of lengthscales, and None is any number."""

MAX_DEPTH = 8
"""How deep kernels may be nested. GPyTorch's time doubles with each level, so a file must not choose it."""


class _Form(NamedTuple):
    """What a file says of one class."""

    cls: Any
    parameters: Mapping[str, Shape]
    arguments: tuple[str, ...] = ()
    kernels: Literal["none", "one", "some"] = "none"


_LENGTHSCALE: dict[str, Shape] = {"raw_lengthscale": (1, "ard")}
_FORMS: dict[str, _Form] = {
    form.cls.__name__: form
    for form in (
        _Form(RBFKernel, _LENGTHSCALE),
        _Form(MaternKernel, _LENGTHSCALE, ("nu",)),
        _Form(RQKernel, {**_LENGTHSCALE, "raw_alpha": (1,)}),
        _Form(PeriodicKernel, {**_LENGTHSCALE, "raw_period_length": (1, "ard")}),
        _Form(RFFKernel, _LENGTHSCALE, ("num_samples",)),
        _Form(LinearKernel, {"raw_variance": (1, "ard")}),
        _Form(PolynomialKernel, {"raw_offset": (1,)}, ("power",)),
        _Form(CosineKernel, {"raw_period_length": (1, 1)}),
        _Form(ConstantKernel, {"raw_constant": (1,)}),
        _Form(ScaleKernel, {"raw_outputscale": ()}, kernels="one"),
        _Form(AdditiveKernel, {}, kernels="some"),
        _Form(ProductKernel, {}, kernels="some"),
        _Form(ZeroMean, {}),
        _Form(ConstantMean, {"raw_constant": ()}),
        _Form(LinearMean, {"weights": (None, 1), "bias": (1,)}),
        _Form(HomoskedasticNoise, {"raw_noise": (1,)}),
    )
}


def pack_part(part: nn.Module, prefix: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays, whose names start with `prefix`, and a description of a kernel, a mean or a noise model.

    Raises
    ------
    InvalidTypeError
        For a class, constraint or transform that a file cannot hold.
    InvalidInputError
        For parameters that are shared. What else could not be loaded again is left for :func:`unpack_part` to refuse.
    """
    identities = [id(p) for _, p in part.named_parameters(remove_duplicate=False)]
    if len(set(identities)) < len(identities):
        raise InvalidInputError(
            f"Parts of {prefix} share a parameter, which a file cannot express. Give each its own, as deepcopy does."
        )
    arrays: dict[str, Array] = {}
    spec = _describe(part, prefix, arrays)
    return arrays, spec


def _describe(part: Any, prefix: str, arrays: dict[str, Array]) -> dict[str, Any]:
    form = _FORMS.get(type(part).__name__)
    if form is None or type(part) is not form.cls:
        kind = Kernel if isinstance(part, Kernel) else nn.Module
        raise InvalidTypeError(
            f"A file cannot hold {prefix}, a {type(part).__name__}; it can hold GPyTorch's {', '.join(_names(kind))}. "
            "Build it from these, or pickle the object; open a pickle only if you trust its source."
        )
    spec: dict[str, Any] = {"class": form.cls.__name__}
    spec |= {name: getattr(part, name) for name in form.arguments}
    spec["parameters"] = {name: _describe_parameter(part, name, prefix, arrays) for name in form.parameters}
    if isinstance(part, Kernel):
        spec["ard_num_dims"] = part.ard_num_dims
        for buffer in ("active_dims", "randn_weights"):
            if getattr(part, buffer, None) is not None:
                arrays[f"{prefix}.{buffer}"] = _array(getattr(part, buffer))
        kernels = [part.base_kernel] if form.kernels == "one" else list(getattr(part, "kernels", []))
        names = _kernel_names(form, prefix, len(kernels))
        spec["kernels"] = [_describe(kernel, name, arrays) for kernel, name in zip(kernels, names, strict=True)]
    return spec


def _describe_parameter(part: Any, name: str, prefix: str, arrays: dict[str, Array]) -> dict[str, Any] | None:
    parameter = getattr(part, name)
    if parameter is None:
        return None
    arrays[f"{prefix}.{name}"] = _array(parameter)
    constraint = getattr(part, f"{name}_constraint", None)
    described = None
    if constraint is not None:
        bounds, described = pack_constraint(constraint, f"{prefix}.{name}_constraint")
        arrays |= bounds
    return {"frozen": not parameter.requires_grad, "constraint": described}


def unpack_part(members: Members, arrays: Arrays, prefix: str, kind: Any, depth: int = 1) -> Any:
    """The kernel, mean or noise model of an untrusted description; `kind` is the base class that it must have."""
    form = _FORMS[members.text("class", _names(kind))]
    arguments = {name: _argument(members, name) for name in form.arguments}
    is_kernel = issubclass(form.cls, Kernel)
    kernels = _unpack_kernels(members.items("kernels"), form, arrays, prefix, depth) if is_kernel else []
    ard = members.optional_integer("ard_num_dims", 1) if is_kernel else None
    if form.cls is LinearMean:
        arguments["input_size"] = 1  # until its weights take their place
    with torch.random.fork_rng(devices=()):  # some classes draw what is replaced below
        part = (scale_kernel if form.cls is ScaleKernel else form.cls)(*kernels, **arguments)
    parameters = members.members("parameters")
    for name, shape in form.parameters.items():
        sizes = tuple((ard or 1) if size == "ard" else size for size in shape)
        _unpack_parameter(part, name, sizes, parameters.take(name), arrays, prefix)
    parameters.close()
    if is_kernel:
        part.ard_num_dims = ard
        part.active_dims = None
        if f"{prefix}.active_dims" in arrays:
            part.active_dims = torch.tensor(arrays.take(f"{prefix}.active_dims", (None,), dtypes=("int64",)))
    if form.cls is RFFKernel and f"{prefix}.randn_weights" in arrays:
        weights = arrays.take(f"{prefix}.randn_weights", (None, part.num_samples))
        part.register_buffer("randn_weights", torch.tensor(weights))
    members.close()
    return part


def _unpack_kernels(specs: list[Any], form: _Form, arrays: Arrays, prefix: str, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        raise FileFormatError(f"{prefix} is nested more than {MAX_DEPTH} deep.")
    if not {"none": len(specs) == 0, "one": len(specs) == 1, "some": len(specs) >= 1}[form.kernels]:
        raise FileFormatError(f"{prefix}, a {form.cls.__name__}, cannot consist of {len(specs)} kernels.")
    names = _kernel_names(form, prefix, len(specs))
    return [
        unpack_part(Members(spec, name), arrays, name, Kernel, depth + 1)
        for spec, name in zip(specs, names, strict=True)
    ]


def _unpack_parameter(
    part: Any, name: str, shape: tuple[int | None, ...], described: object, arrays: Arrays, prefix: str
) -> None:
    if described is None and name == "bias":
        part.register_parameter(name, None)
        return
    members = Members(described, f"{prefix}.{name}")
    value = torch.tensor(arrays.take(f"{prefix}.{name}", shape))
    parameter = nn.Parameter(value, requires_grad=not members.flag("frozen"))
    setattr(part, name, parameter)
    constraint = members.take("constraint")
    members.close()
    if constraint is None and getattr(part, f"{name}_constraint", None) is None:
        return
    if not name.startswith("raw_"):
        raise FileFormatError(f"{prefix}.{name} cannot have a constraint.")
    constraint_name = f"{prefix}.{name}_constraint"
    restored = unpack_constraint(Members(constraint, constraint_name), arrays, constraint_name, parameter)
    part.register_constraint(name, restored)


def _argument(members: Members, name: str) -> int | float:
    if name != "nu":
        return members.integer(name, 1)
    nu = members.number(name)
    if nu not in (0.5, 1.5, 2.5):
        raise FileFormatError(f"{members.where}.nu must be 0.5, 1.5 or 2.5; got {nu}.")
    return nu


def _kernel_names(form: _Form, prefix: str, count: int) -> list[str]:
    """The names that torch gives to the kernels inside a kernel."""
    return [f"{prefix}.base_kernel" if form.kernels == "one" else f"{prefix}.kernels.{i}" for i in range(count)]


def _names(kind: Any) -> list[str]:
    return [name for name, form in _FORMS.items() if issubclass(form.cls, kind)]


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().copy()
