"""Bad input of the BoTorch model gets an error that says what to do."""

from collections.abc import Callable

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood

from cvgp.adapters.botorch import CVGPModel
from cvgp.errors import InvalidInputError, InvalidTypeError
from tests.adapters.botorch.conftest import DOUBLE, gaussian_parts

Make = Callable[..., CVGPModel]
X6, Y6 = torch.rand(6, 2, **DOUBLE), torch.rand(6, 1, **DOUBLE)
ONES = torch.ones(6, 1, **DOUBLE)


@pytest.mark.parametrize(
    ("X_c", "y_c", "precision", "message"),
    [
        (X6[0], Y6, ONES, r"X_c must be \[..., M, D\]"),
        (X6[:0], Y6[:0], ONES[:0], "at least one point"),
        (X6, Y6[:5], ONES, r"y_c must be \[..., 6, m\]"),
        (X6, Y6, ONES[:5], r"precision \[..., 6\]"),
        (X6, Y6.expand(6, 3), ONES.expand(6, 2), "one column for all outputs or one for each of 3; got 2"),
        (X6.expand(2, 6, 2), Y6.expand(3, 6, 1), ONES, "must broadcast"),
        (X6, Y6, -ONES, "finite and not negative"),
        (X6, Y6, ONES / 0, "finite and not negative"),
        (X6 * torch.nan, Y6, ONES, "X_c holds 12 NaN"),
        (X6, Y6 * torch.inf, ONES, "y_c holds 6 NaN or infinite"),
    ],
)
def test_points_that_do_not_fit_are_refused(
    X_c: torch.Tensor, y_c: torch.Tensor, precision: torch.Tensor, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CVGPModel(X_c, y_c, precision, *gaussian_parts())


def test_arrays_are_refused_as_points() -> None:
    with pytest.raises(InvalidTypeError, match=r"X_c must be a torch.Tensor; got ndarray"):
        CVGPModel(X6.numpy(), Y6, ONES, *gaussian_parts())


def test_an_outcome_transform_that_has_seen_no_data_is_refused(make_model: Make) -> None:
    with pytest.raises(InvalidInputError, match="Standardize has not seen data"):
        make_model(outcome_transform=Standardize(m=1))


@pytest.mark.parametrize("X", [torch.rand(3, 1, **DOUBLE), torch.rand(3, **DOUBLE)])
def test_inputs_of_another_dimension_are_refused(make_model: Make, X: torch.Tensor) -> None:
    with pytest.raises(InvalidInputError, match=r"X must be \[..., n, 2\]"):
        make_model().posterior(X)


def test_inputs_that_are_not_finite_are_refused(make_model: Make) -> None:
    with pytest.raises(InvalidInputError, match="X holds 6 NaN"):
        make_model().posterior(torch.full((3, 2), torch.nan, **DOUBLE))


@pytest.mark.parametrize("outputs", [[2], [-3], []])
def test_outputs_that_there_are_not_are_refused(make_model: Make, outputs: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="Outputs are counted from 0 to 1"):
        make_model(outputs=2).posterior(X6, output_indices=outputs)


def test_observation_noise_of_another_shape_is_refused(make_model: Make) -> None:
    with pytest.raises(InvalidInputError, match=r"variances of shape \[..., 6, 1\]"):
        make_model().posterior(X6, observation_noise=torch.ones(4, 1, **DOUBLE))


@pytest.mark.parametrize(
    ("X", "Y", "noise", "message"),
    [
        (X6, Y6[:, 0], None, r"Y must be \[..., 6, 1\]; got \[6\]"),
        (X6, Y6[:5], None, r"Y must be \[..., 6, 1\]"),
        (X6, Y6.expand(6, 2), None, r"Y must be \[..., 6, 1\]"),
        (X6, Y6, ONES[:4], "noise must be a tensor of variances"),
        (X6, Y6, 0 * ONES, "above 0"),
        (X6.expand(2, 6, 2), Y6.expand(3, 6, 1), None, "must broadcast"),
        (X6[:, :1], Y6, None, r"X must be \[..., n, 2\]"),
    ],
)
def test_observations_that_do_not_fit_are_refused(
    make_model: Make, X: torch.Tensor, Y: torch.Tensor, noise: torch.Tensor | None, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_model().condition_on_observations(X, Y, noise=noise)


def test_a_model_in_training_mode_is_not_conditioned(make_model: Make) -> None:
    with pytest.raises(InvalidInputError, match=r"training mode.*model.eval\(\)"):
        make_model().train().condition_on_observations(X6, Y6)


@pytest.mark.parametrize(
    "likelihood",
    [BernoulliLikelihood(), FixedNoiseGaussianLikelihood(ONES[:, 0]), MultitaskGaussianLikelihood(num_tasks=2)],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_a_likelihood_without_noise_for_new_rows_has_no_fantasies(likelihood: object) -> None:
    model = CVGPModel(X6, Y6, ONES, RBFKernel().double(), ZeroMean(), likelihood)
    message = f"{type(likelihood).__name__} does not say how noisy a new observation is.*GaussianLikelihood"
    with pytest.raises(InvalidTypeError, match=message):
        model.condition_on_observations(X6, Y6)
    with pytest.raises(InvalidTypeError, match=message):
        model.posterior(X6, observation_noise=True)
    if not isinstance(likelihood, FixedNoiseGaussianLikelihood):  # of which BoTorch takes the mean of the fixed noises
        with pytest.raises(InvalidTypeError, match=message):
            model.fantasize(X6, SobolQMCNormalSampler(torch.Size([2])))
    assert model.condition_on_observations(X6, Y6, noise=ONES).posterior(X6).mean.shape == (6, 1)


def test_a_fit_has_nothing_to_set(make_model: Make) -> None:
    model = make_model()
    with pytest.raises(InvalidInputError, match="leave out optimizer_kwargs"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {}})


def test_a_batch_of_models_is_not_fitted(make_model: Make) -> None:
    model = make_model().condition_on_observations(torch.rand(3, 1, 2, **DOUBLE), torch.rand(3, 1, 1, **DOUBLE))
    with pytest.raises(InvalidInputError, match=r"A batch of models, \[3\]"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def test_modules_that_disagree_about_outputs_are_not_fitted() -> None:
    parts = RBFKernel(batch_shape=torch.Size([2])).double(), ConstantMean().double(), GaussianLikelihood().double()
    model = CVGPModel(X6, Y6.expand(6, 2), ONES, *parts)
    with pytest.raises(InvalidInputError, match=r"must all have batch_shape \[2\].*or none"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def test_data_that_are_no_dataset_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"must be a botorch.utils.datasets.SupervisedDataset; got dict"):
        CVGPModel.construct_inputs({})


def test_gpytorchs_fantasies_are_refused_where_units_would_be_confused(make_model: Make) -> None:
    model = make_model(input_transform=Normalize(d=2, bounds=torch.tensor([[0.0, 0.0], [9.0, 9.0]], **DOUBLE)))
    with pytest.raises(InvalidInputError, match="call condition_on_observations of each model"):
        model.get_fantasy_model(X6, Y6[:, 0])
