from dataclasses import replace

import numpy as np
import pytest
import torch

from cvgp.errors import InvalidInputError
from cvgp.gp import bounds
from cvgp.gp.bounds.elbo import plain_elbo
from tests.gp.bounds.problems import (
    FULL_DATA,
    MINIBATCH,
    POINT_NOISE,
    Problem,
    data_side,
    elbo,
    make_problem,
    reference_elbo,
    tensor,
)

PROBLEMS = FULL_DATA | MINIBATCH


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_value_is_the_reference(problem: Problem) -> None:
    np.testing.assert_allclose(elbo(problem), reference_elbo(problem), rtol=1e-10)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_value_from_float32_data_is_near_the_reference(problem: Problem) -> None:
    np.testing.assert_allclose(elbo(problem, torch.float32), reference_elbo(problem), rtol=1e-5)


def test_weight_of_zero_is_a_point_that_is_not_there() -> None:
    p = make_problem()
    kept = np.array([0, 2, 3])
    without = replace(p, K_cc=p.K_cc[np.ix_(kept, kept)], K_cx=p.K_cx[kept], y_c=p.y_c[kept], beta=p.beta[kept])
    zero = replace(p, beta=np.where(np.arange(4) == 1, 0.0, p.beta))
    np.testing.assert_allclose(elbo(zero), elbo(without), rtol=1e-12)


BAD_MATRICES = {
    "K_cc not square": ({"K_cc": np.eye(5)[:4]}, r"must be \[M, M\]"),
    "no data": ({"K_cx": np.zeros((4, 0)), "K_xx": np.zeros((0, 0)), "y": np.zeros(0)}, "M and B at least 1"),
    "K_cx of another batch": ({"K_cx": np.ones((4, 11))}, r"K_cx \[M, B\]"),
    "y of one point": ({"y": np.zeros(1)}, "y must be"),
    "y_c of another length": ({"y_c": np.zeros(3)}, r"y_c \[4\] or \[4, Q\]"),
    "y_c of other outputs": ({"y_c": np.zeros((4, 2))}, "as many outputs as y"),
    "beta of another length": ({"beta": np.ones(3)}, r"w must be \[4\]"),
    "beta negative": ({"beta": np.array([1.0, -1.0, 1.0, 1.0])}, "finite and not negative"),
    "beta infinite": ({"beta": np.array([1.0, np.inf, 1.0, 1.0])}, "finite and not negative"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_MATRICES.values(), ids=BAD_MATRICES)
def test_bad_input_is_refused(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        elbo(make_problem(**changes))


@pytest.mark.parametrize("problem", [make_problem(), make_problem(noise=POINT_NOISE)], ids=["one noise", "by point"])
def test_value_and_gradient_are_those_of_the_plain_bound(problem: Problem) -> None:
    p, site_noise = problem, 0.5
    results = []
    for bound in (bounds.elbo, plain_elbo):
        leaves = [tensor(p.K_cc), *data_side(p), tensor(p.y_c), tensor(p.beta)]
        for leaf in leaves:
            leaf.requires_grad_()
        if bound is plain_elbo:
            value = plain_elbo(*leaves[:5], leaves[5] / site_noise, tensor(p.noise))
        else:
            value = bounds.elbo(*leaves, tensor(p.noise), site_noise=tensor(site_noise))
        results.append((value, *torch.autograd.grad(value, leaves)))
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-10)
