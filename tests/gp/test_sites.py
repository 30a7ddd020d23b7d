from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvgp.errors import InvalidInputError
from cvgp.gp import bounds, sites
from tests import reference as ref
from tests.gp.bounds.problems import FULL_DATA, Problem, collapsed, elbo, make_problem, statistics, tensor


def best(p: Problem) -> sites.BestCoreset:
    return sites.best_coreset(tensor(p.K_cc), statistics(p), tensor(p.w))


def at(p: Problem, coreset: sites.BestCoreset) -> Problem:
    """The problem with these pseudo-outputs, and these precisions as weights on a site noise of one."""
    return replace(p, y_c=coreset.y_c.reshape(p.y_c.shape).numpy(), beta=coreset.w.numpy(), site_noise=1.0)


@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
def test_elbo_at_the_best_coreset_is_its_value(problem: Problem) -> None:
    coreset = best(problem)
    np.testing.assert_allclose(elbo(at(problem, coreset)), coreset.value, rtol=1e-9)


@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
def test_elbo_has_no_slope_in_the_weights_at_the_best_coreset(problem: Problem) -> None:
    w = best(problem).w
    slope = bounds.solve_collapsed(tensor(problem.K_cc), w, statistics(problem)).d_w
    # On the scale of the weight, or of the prior where the weight is small and a slope over log w vanishes anyway.
    step = w + 1.0 / tensor(problem.K_cc).diagonal()
    torch.testing.assert_close(slope * step, torch.zeros_like(w), rtol=0.0, atol=1e-3)


def test_elbo_has_no_slope_in_the_pseudo_outputs_at_the_best_coreset() -> None:
    p = FULL_DATA["all of it"]
    coreset = best(p)
    y_c = coreset.y_c.clone().requires_grad_()
    K_cx, k_xx, y = (tensor(a) for a in (p.K_cx, np.diag(p.K_xx).copy(), p.y))
    weight = tensor(p.sample_weight)
    value = bounds.elbo(
        tensor(p.K_cc), K_cx, k_xx, y, y_c, coreset.w, tensor(p.noise), site_noise=tensor(1.0), sample_weight=weight
    )
    value.backward()
    torch.testing.assert_close(y_c.grad, torch.zeros_like(y_c), rtol=0.0, atol=1e-9)


@given(log_beta=hnp.arrays(np.float64, 4, elements=st.floats(-12, 12)))
def test_value_is_no_less_than_at_any_other_weights(log_beta: np.ndarray) -> None:
    p = FULL_DATA["all of it"]
    value = best(p).value.item()
    assert collapsed(replace(p, beta=np.exp(log_beta))) <= value + 1e-6


@given(log_start=hnp.arrays(np.float64, 4, elements=st.floats(-7, 7)))
def test_value_does_not_depend_on_the_start(log_start: np.ndarray) -> None:
    p = make_problem()
    from_here = best(replace(p, beta=np.exp(log_start))).value
    np.testing.assert_allclose(from_here, best(p).value, rtol=1e-5)


def test_value_is_no_more_than_the_titsias_optimum() -> None:
    p = make_problem()
    full = bounds.titsias_optimum(tensor(p.K_cc), statistics(p))
    assert best(p).value < full.value


def test_weight_of_zero_at_the_start_can_grow() -> None:
    p = make_problem()
    from_zero = best(replace(p, beta=np.array([0.0, 1.0, 1.0, 1.0])))
    np.testing.assert_allclose(from_zero.value, best(p).value, rtol=1e-5)


@pytest.mark.parametrize("start", [0.0, -1.0, np.nan])
def test_start_without_usable_weights_is_refused(start: float) -> None:
    with pytest.raises(InvalidInputError):
        best(make_problem(beta=np.full(4, start)))


def test_best_coreset_is_the_data_where_the_pseudo_inputs_are() -> None:
    p = make_problem(M=4, N=4)
    same = replace(p, K_cx=p.K_cc, K_xx=p.K_cc)
    np.testing.assert_allclose(best(same).value, ref.log_marginal(p.K_cc, p.y, 0.3), rtol=1e-6)
