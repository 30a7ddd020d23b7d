"""A coreset that is the data set, each point with a weight of one, is the exact GP."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cvgp import CVGP, Coreset
from tests import reference as ref
from tests.gp.bounds.problems import Problem, elbo, make_problem, tight

BOUNDS = {"elbo": elbo, "tight": tight}


def data_as_coreset(p: Problem, site_noise: float = 0.5) -> Problem:
    return replace(p, K_cc=p.K_xx, K_cx=p.K_xx, y_c=p.y, beta=site_noise / p.noise * np.ones(12), site_noise=site_noise)


@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("outputs", [None, 2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("noise", [0.3, np.linspace(0.2, 0.9, 12)], ids=["one noise", "noise by point"])
def test_bound_is_the_log_marginal(bound, outputs: int | None, noise: ref.Noise) -> None:
    p = data_as_coreset(make_problem(outputs=outputs, noise=noise))
    np.testing.assert_allclose(bound(p), ref.log_marginal(p.K_xx, p.y, noise), rtol=1e-9)


@pytest.mark.parametrize("name", ["elbo", "tight_elbo"])
@pytest.mark.parametrize("kernel", ["rbf", "matern12", "periodic"])
def test_bound_of_the_model_is_the_log_marginal(name: str, kernel: str) -> None:
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(9, 2)), rng.normal(size=9)
    model = CVGP(Coreset(X, y, np.ones(9)), kernel)
    x = torch.as_tensor(X)
    with torch.no_grad():
        value = getattr(model, name)(x, torch.as_tensor(y))
        K = model.kernel(x).to_dense().numpy()
    np.testing.assert_allclose(value, ref.log_marginal(K, y, model.noise.item()), rtol=1e-6)
