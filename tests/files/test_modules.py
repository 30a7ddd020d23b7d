from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    GridInterpolationKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    RBFKernel,
    RFFKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean

from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.files.modules import pack_part, unpack_part
from cvgp.files.untrusted import Arrays, Members
from tests.files.models import bits, through_json


def reloaded(part: Any, kind: Any = Kernel) -> Any:
    arrays, spec = pack_part(part, "part")
    return unpack_part(Members(through_json(spec), "part"), Arrays(arrays), "part", kind)


CONSTRAINTS = {
    "positive, softplus": lambda: Positive(),
    "positive, softplus function": lambda: Positive(transform=torch.nn.functional.softplus),
    "positive, exp": lambda: Positive(transform=torch.exp, inv_transform=torch.log),
    "above a bound, softplus": lambda: GreaterThan(0.1),
    "above a bound, exp": lambda: GreaterThan(1e-3, transform=torch.exp, inv_transform=torch.log),
    "above a bound for each": lambda: GreaterThan(torch.tensor([0.1, 0.2])),
    "below a bound": lambda: LessThan(3.0),
    "between bounds": lambda: Interval(0.1, 3.0),
    "between bounds for each": lambda: Interval(torch.tensor([0.1, 0.2]), torch.tensor([1.0, 3.0])),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constraint_comes_back(name: str) -> None:
    kernel = RBFKernel(ard_num_dims=2, lengthscale_constraint=CONSTRAINTS[name]())
    assert repr(reloaded(kernel).raw_lengthscale_constraint) == repr(kernel.raw_lengthscale_constraint)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constrained_value_comes_back_to_the_bit(name: str) -> None:
    kernel = RBFKernel(ard_num_dims=2, lengthscale_constraint=CONSTRAINTS[name]())
    kernel.raw_lengthscale.data = torch.tensor([[0.3, -0.7]])
    assert torch.equal(reloaded(kernel).lengthscale, kernel.lengthscale)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constrained_value_can_be_set_after_loading(name: str) -> None:
    kernel = reloaded(RBFKernel(ard_num_dims=2, lengthscale_constraint=CONSTRAINTS[name]()))
    kernel.lengthscale = torch.tensor([[0.5, 0.6]])
    torch.testing.assert_close(kernel.lengthscale.detach(), torch.tensor([[0.5, 0.6]]))


def test_bounds_in_double_precision_come_back_to_the_bit() -> None:
    kernel = RBFKernel(lengthscale_constraint=Interval(0.1, 3.0)).double()
    kernel.raw_lengthscale_constraint.upper_bound = torch.tensor(np.nextafter(3.0, 4.0))
    assert bits(reloaded(kernel)) == bits(kernel)


def test_a_copied_softplus_is_still_softplus() -> None:
    kernel = deepcopy(RBFKernel())
    assert torch.equal(reloaded(kernel).lengthscale, kernel.lengthscale)


def test_a_frozen_parameter_stays_frozen() -> None:
    kernel = RBFKernel()
    kernel.raw_lengthscale.requires_grad_(False)
    assert not reloaded(kernel).raw_lengthscale.requires_grad


def test_random_frequencies_need_not_be_drawn_yet() -> None:
    assert not hasattr(reloaded(RFFKernel(num_samples=4)), "randn_weights")


@pytest.mark.parametrize(
    "mean",
    [
        ZeroMean(),
        ConstantMean(),
        ConstantMean(constant_constraint=Interval(-1.0, 1.0)),
        LinearMean(3),
        LinearMean(3, bias=False),
        LinearMean(3).double(),
    ],
    ids=repr,
)
def test_a_mean_comes_back_to_the_bit(mean: Mean) -> None:
    assert bits(reloaded(mean, Mean)) == bits(mean)


def test_loading_leaves_the_global_random_state_alone() -> None:
    mean = LinearMean(3)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    reloaded(mean, Mean)
    assert torch.equal(torch.rand(1), expected)


class OwnKernel(RBFKernel):  # type: ignore[misc]
    pass


Imitation = type("RBFKernel", (Kernel,), {"has_lengthscale": True})


@pytest.mark.parametrize(
    "kernel",
    [
        SpectralMixtureKernel(num_mixtures=2),
        GridInterpolationKernel(RBFKernel(), grid_size=4, num_dims=1),
        OwnKernel(),
        Imitation(),
        ScaleKernel(OwnKernel()),
        RBFKernel() + OwnKernel(),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_kernel_that_a_file_cannot_hold_is_refused_with_what_it_can(kernel: Kernel) -> None:
    with pytest.raises(InvalidTypeError, match=r"cannot hold part.*it can hold GPyTorch's RBFKernel, MaternKernel"):
        pack_part(kernel, "part")


def test_a_mean_that_a_file_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="MultitaskMean; it can hold"):
        pack_part(MultitaskMean(ZeroMean(), num_tasks=2), "part")


class OwnConstraint(Positive):  # type: ignore[misc]
    pass


@pytest.mark.parametrize(
    "constraint",
    [
        OwnConstraint(),
        Positive(transform=torch.square, inv_transform=torch.sqrt),
        Positive(transform=torch.exp),  # with softplus's inverse
        Positive(transform=torch.nn.Softplus(beta=2.0)),
        Positive(transform=None),
    ],
)
def test_a_constraint_that_a_file_cannot_hold_is_refused(constraint: Positive) -> None:
    with pytest.raises(InvalidTypeError, match=r"cannot hold .*part\.raw_lengthscale_constraint"):
        pack_part(RBFKernel(lengthscale_constraint=constraint), "part")


def shared() -> Kernel:
    kernel = RBFKernel()
    return ScaleKernel(kernel) + ScaleKernel(kernel)


def not_a_number() -> Kernel:
    kernel = RBFKernel()
    kernel.raw_lengthscale.data.fill_(torch.nan)
    return kernel


def nested(depth: int) -> Kernel:
    return ScaleKernel(nested(depth - 1)) if depth > 1 else RBFKernel()


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (shared(), "share a parameter"),
        (not_a_number(), "NaN"),
        (RBFKernel(batch_shape=torch.Size([2])), "shape"),
        (PolynomialKernel(power=0.5), "whole number"),
        (RBFKernel().half(), "float16"),
        (nested(9), "nested more than 8 deep"),
    ],
    ids=["shared", "NaN", "batch", "power", "half precision", "deep"],
)
def test_a_kernel_that_could_not_be_loaded_is_refused(kernel: Kernel, message: str) -> None:
    with pytest.raises((InvalidInputError, FileFormatError), match=message):
        reloaded(kernel)


def test_a_kernel_as_deep_as_allowed_is_loaded() -> None:
    assert bits(reloaded(nested(8))) == bits(nested(8))


def spoilt(path: str, value: object, part: Any = None, arrays: dict[str, Any] | None = None) -> Any:
    """Unpack a kernel whose description has one member changed, or some arrays."""
    kernel = ScaleKernel(MaternKernel(1.5, ard_num_dims=2, lengthscale_constraint=Interval(0.1, 3.0)))
    packed, spec = pack_part(kernel if part is None else part, "part")
    at = spec
    *parents, last = path.split("/")
    for name in parents:
        at = at[int(name)] if isinstance(at, list) else at[name]
    at[last] = value
    return unpack_part(Members(spec, "part"), Arrays(packed | (arrays or {})), "part", Kernel)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("class", "os.system"),
        ("class", "__import__"),
        ("class", "Kernel"),
        ("class", "ZeroMean"),
        ("class", "RBFKernel"),
        ("class", None),
        ("class", ["ScaleKernel"]),
        ("extra", 1),
        ("ard_num_dims", 0),
        ("ard_num_dims", True),
        ("parameters", {}),
        ("parameters", []),
        ("parameters", {"raw_outputscale": {}, "raw_other": {}}),
        ("parameters/raw_outputscale", None),
        ("parameters/raw_outputscale/frozen", 1),
        ("parameters/raw_outputscale/constraint", None),
        ("parameters/raw_outputscale/constraint/class", "eval"),
        ("parameters/raw_outputscale/constraint/class", "GreaterThan"),
        ("parameters/raw_outputscale/constraint/transform", "torch.exp"),
        ("parameters/raw_outputscale/constraint/extra", 1),
        ("kernels", []),
        ("kernels", {}),
        ("kernels", [None]),
        ("kernels/0/ard_num_dims", 3),
        ("kernels/0/ard_num_dims", None),
        ("kernels/0/ard_num_dims", 10**18),
        ("kernels/0/nu", 1),
        ("kernels/0/nu", 3.5),
        ("kernels/0/nu", float("nan")),
        ("kernels/0/kernels", [{}]),
        ("kernels/0/parameters/raw_lengthscale/constraint/class", "LessThan.__init__"),
    ],
)
def test_a_forged_description_is_refused(path: str, value: object) -> None:
    with pytest.raises(FileFormatError):
        spoilt(path, value)


@pytest.mark.parametrize("num_samples", [0, 3, 10**18, 1.0, None])
def test_a_forged_number_of_random_features_is_refused(num_samples: object) -> None:
    with pytest.raises(FileFormatError):
        spoilt("num_samples", num_samples, RFFKernel(num_samples=4, num_dims=2))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("raw_outputscale", np.zeros(1)),
        ("raw_outputscale", np.array(0)),
        ("raw_outputscale", np.array(np.inf)),
        ("base_kernel.raw_lengthscale", np.zeros((1, 0))),
        ("base_kernel.raw_lengthscale", np.zeros((2, 1))),
        ("base_kernel.raw_lengthscale_constraint.lower_bound", np.zeros((2, 1, 2))),
        ("base_kernel.raw_lengthscale_constraint.lower_bound", np.zeros(3)),
        ("base_kernel.raw_lengthscale_constraint.upper_bound", np.array(np.nan)),
        ("active_dims", np.zeros(2)),
        ("active_dims", np.zeros((0,), dtype=np.int64)),
    ],
)
def test_a_forged_array_is_refused(name: str, array: Any) -> None:
    with pytest.raises(FileFormatError, match=name):
        spoilt("ard_num_dims", None, arrays={f"part.{name}": array})


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(FileFormatError, match="must be below its upper bound"):
        spoilt("ard_num_dims", None, arrays={"part.base_kernel.raw_lengthscale_constraint.lower_bound": np.array(4.0)})


def test_a_constraint_on_what_has_none_is_refused() -> None:
    arrays, spec = pack_part(LinearMean(2), "part")
    spec["parameters"]["weights"]["constraint"] = {"class": "Positive", "transform": "exp"}
    with pytest.raises(FileFormatError, match="cannot have a constraint"):
        unpack_part(Members(spec, "part"), Arrays(arrays), "part", Mean)


def test_a_kernel_in_place_of_a_mean_is_refused() -> None:
    arrays, spec = pack_part(LinearKernel(), "part")
    with pytest.raises(FileFormatError, match="one of ZeroMean, ConstantMean, LinearMean"):
        unpack_part(Members(spec, "part"), Arrays(arrays), "part", Mean)
