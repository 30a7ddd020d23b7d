from dataclasses import replace

import numpy as np
import pytest
import torch

from cvgp.errors import InvalidInputError
from cvgp.gp import bounds
from tests import reference as ref
from tests.gp.bounds.problems import POINT_NOISE, Problem, make_problem, tensor

PROBLEMS = {
    "one output": make_problem(),
    "two outputs": make_problem(outputs=2),
    "noise by point": make_problem(noise=POINT_NOISE, site_noise=0.5),
}


def log_marginal(p: Problem, dtype: torch.dtype = torch.float64) -> float:
    weight = None if p.sample_weight is None else tensor(p.sample_weight)
    return bounds.log_marginal(tensor(p.K_xx, dtype), tensor(p.y, dtype), tensor(p.noise), sample_weight=weight).item()


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_value_is_the_reference(problem: Problem) -> None:
    np.testing.assert_allclose(
        log_marginal(problem), ref.log_marginal(problem.K_xx, problem.y, problem.noise), rtol=1e-10
    )


def test_weight_of_two_is_the_observation_twice() -> None:
    p = make_problem()
    twice = p.rows(np.repeat(np.arange(12), 2))
    np.testing.assert_allclose(log_marginal(replace(p, sample_weight=np.full(12, 2.0))), log_marginal(twice), rtol=1e-9)


@pytest.mark.parametrize("outputs", [1, 2])
def test_gradient_is_that_of_differences(outputs: int) -> None:
    p = make_problem(outputs=outputs, N=5)
    arguments = [tensor(a).requires_grad_() for a in (p.K_xx, p.y, np.linspace(0.2, 0.9, 5))]
    weight = tensor(np.linspace(0.5, 3.0, 5))

    def value(K: torch.Tensor, y: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return bounds.log_marginal(0.5 * (K + K.mT), y, noise, sample_weight=weight)

    assert torch.autograd.gradcheck(value, arguments)


def test_outputs_that_do_not_fit_the_matrix_are_refused() -> None:
    p = make_problem()
    with pytest.raises(InvalidInputError, match="y must be"):
        log_marginal(replace(p, y=p.y[:3]))
