from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, RFFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, Mean
from gpytorch.priors import GammaPrior

import cvgp
from cvgp.errors import CVGPWarning, FileFormatError, InvalidTypeError
from cvgp.files.packed_model import pack_model, unpack_model
from tests.files.models import KERNELS, NUM_DIMS, POINTS, bits, make_model, through_json


def reloaded(model: cvgp.CVGP) -> cvgp.CVGP:
    arrays, spec = pack_model(model)
    return unpack_model(arrays, through_json(spec))


@pytest.mark.parametrize("name", KERNELS)
def test_a_model_of_any_kernel_comes_back_to_the_bit(name: str) -> None:
    model = make_model(KERNELS[name]())
    assert bits(reloaded(model)) == bits(model)


@pytest.mark.parametrize("name", KERNELS)
def test_predictions_of_any_kernel_are_the_same_to_the_bit(name: str) -> None:
    model = make_model(KERNELS[name]())
    before, after = model.posterior(POINTS), reloaded(model).posterior(POINTS)
    assert torch.equal(before.mean, after.mean)
    assert torch.equal(before.variance, after.variance)


@pytest.mark.parametrize("mean", [ConstantMean(), LinearMean(NUM_DIMS), LinearMean(NUM_DIMS, bias=False)], ids=repr)
def test_predictions_with_a_mean_are_the_same_to_the_bit(mean: Mean) -> None:
    model = make_model(mean=mean)
    assert torch.equal(model.posterior(POINTS).mean, reloaded(model).posterior(POINTS).mean)


@pytest.mark.parametrize(
    "options",
    [{"num_outputs": 2}, {"num_outputs": 1}, {"beta_transform": "softplus"}, {"likelihood": GaussianLikelihood()}],
    ids=str,
)
def test_options_of_the_model_come_back(options: dict[str, Any]) -> None:
    model = make_model(**options)
    after = reloaded(model)
    assert (bits(after), after.beta_transform) == (bits(model), model.beta_transform)


def test_a_model_in_single_precision_comes_back_to_the_bit() -> None:
    model = make_model().float()
    assert bits(reloaded(model)) == bits(model)


def test_a_site_noise_offset_comes_back() -> None:
    model = make_model()
    model.set_site_noise_offset(0.3)
    assert bits(reloaded(model)) == bits(model)


def test_a_frozen_part_of_the_coreset_stays_frozen() -> None:
    model = make_model()
    model.X_c.requires_grad_(False)
    assert bits(reloaded(model)) == bits(model)


def test_arrays_are_copies() -> None:
    model = make_model()
    arrays, _ = pack_model(model)
    before = arrays["X_c"].copy()
    with torch.no_grad():
        model.X_c.zero_()
    assert np.array_equal(arrays["X_c"], before)


def test_a_loaded_model_can_be_trained_further() -> None:
    model = reloaded(make_model())
    model.elbo(POINTS, POINTS[:, 0]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_prior_is_left_out_with_a_warning() -> None:
    kernel = RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0))
    with pytest.warns(CVGPWarning, match="priors of kernel are not stored"):
        pack_model(make_model(ScaleKernel(kernel)))


class OwnModel(cvgp.CVGP):
    pass


class OwnLikelihood(GaussianLikelihood):  # type: ignore[misc]
    pass


@pytest.mark.parametrize(
    "model",
    [
        OwnModel(cvgp.Coreset([[0.0]], [0.0], [1.0])),
        make_model(likelihood=OwnLikelihood()),
        torch.nn.Linear(1, 1),
    ],
    ids=["subclass", "likelihood", "another module"],
)
def test_another_kind_of_model_is_refused(model: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"can hold a cvgp\.CVGP with GPyTorch's GaussianLikelihood"):
        pack_model(model)


def with_nan(name: str) -> cvgp.CVGP:
    model = make_model()
    with torch.no_grad():
        dict(model.named_parameters())[name].fill_(torch.nan)
    return model


@pytest.mark.parametrize(
    "model",
    [
        with_nan("X_c"),
        with_nan("kernel.raw_outputscale"),
        make_model(RFFKernel(num_samples=3)),
        make_model(RBFKernel(ard_num_dims=NUM_DIMS + 1)),
        make_model(mean=LinearMean(NUM_DIMS + 1)),
    ],
    ids=["NaN input", "NaN scale", "no frequencies", "lengthscales", "slopes"],
)
def test_a_model_that_could_not_be_used_is_not_unpacked(model: cvgp.CVGP) -> None:
    with pytest.raises(FileFormatError):
        reloaded(model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", None),
        ("mean", {"class": "RBFKernel"}),
        ("likelihood.noise_covar", {}),
        ("beta_transform", "exp"),
        ("frozen", ["kernel"]),
        ("frozen", [[]]),
        ("frozen", "X_c"),
        ("extra", 0),
    ],
)
def test_a_forged_description_is_refused(name: str, value: object) -> None:
    arrays, spec = pack_model(make_model())
    with pytest.raises(FileFormatError):
        unpack_model(arrays, spec | {name: value})


@pytest.mark.parametrize("spec", [None, [], "model", {}])
def test_a_description_of_another_kind_is_refused(spec: object) -> None:
    with pytest.raises(FileFormatError):
        unpack_model(pack_model(make_model())[0], spec)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("X_c", np.zeros((0, NUM_DIMS))),
        ("X_c", np.zeros((5, 0))),
        ("X_c", np.zeros((0, 10**15))),
        ("X_c", np.zeros((5, NUM_DIMS + 1))),
        ("X_c", np.zeros((4, NUM_DIMS))),
        ("X_c", np.zeros((5, NUM_DIMS), dtype=np.int64)),
        ("y_c", np.zeros((5, 0))),
        ("y_c", np.full(5, np.inf)),
        ("raw_beta", np.full(5, 1e4)),
        ("site_noise_offset", np.zeros(1)),
        ("site_noise_offset", np.array(-1e9)),
        ("likelihood.noise_covar.raw_noise", np.full(1, 1e4)),
        ("likelihood.noise_covar.raw_noise_constraint.lower_bound", np.array(-1e9)),
        ("kernel.raw_outputscale", np.array(1e4)),
        ("kernel.active_dims", np.array([0, NUM_DIMS])),
        ("extra", np.zeros(1)),
    ],
)
def test_a_forged_array_is_refused(name: str, array: Any) -> None:
    arrays, spec = pack_model(make_model())
    with pytest.raises(FileFormatError):
        unpack_model(arrays | {name: array}, spec)


@pytest.mark.parametrize("name", pack_model(make_model())[0])
def test_a_missing_array_is_refused(name: str) -> None:
    arrays, spec = pack_model(make_model())
    del arrays[name]
    with pytest.raises(FileFormatError, match=f"no array '{name}'"):
        unpack_model(arrays, spec)
