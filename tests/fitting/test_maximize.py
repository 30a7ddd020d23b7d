"""`cvgp.maximize`, beside an exact GP and Titsias' bound."""

import numpy as np
import pytest
import torch

import cvgp
from cvgp.errors import InvalidInputError
from tests import reference

X = np.random.default_rng(0).uniform(-3.0, 3.0, (60, 1))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * np.random.default_rng(1).normal(size=60)


def make_model(size: int = 12) -> cvgp.CVGP:
    return cvgp.CVGP(cvgp.Coreset.from_data(X, Y, size))


@pytest.mark.parametrize("bound", ["elbo", "tight"])
def test_the_bound_is_raised_to_about_the_evidence_of_its_own_kernel(bound: str) -> None:
    model = make_model()
    x, y = torch.tensor(X), torch.tensor(Y)
    before = model.elbo(x, y).item()
    value = cvgp.maximize(model, X, Y, bound=bound)
    assert value > before
    assert value == pytest.approx(model.elbo(x, y).item(), rel=1e-6)
    K = model.kernel(x).to_dense().detach().numpy()
    evidence = reference.log_marginal(K, Y, model.noise.item())
    assert evidence - 3.0 < value < evidence + 1e-6


def test_frozen_parameters_stay_and_sites_are_solved_for() -> None:
    model = make_model()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model.X_c.requires_grad_(True)
    noise = model.noise.item()
    cvgp.maximize(model, X, Y, max_iter=5)
    assert model.noise.item() == noise


@pytest.mark.parametrize(
    ("change", "message"),
    [({"X": X[:, :0]}, "."), ({"y": Y[:-1]}, "."), ({"bound": "upper"}, "bound"), ({"max_iter": 0}, "max_iter")],
)
def test_rows_and_options_are_checked(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cvgp.maximize(make_model(), **{"X": X, "y": Y} | change)
