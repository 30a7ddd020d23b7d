from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvgp.errors import InvalidInputError
from cvgp.gp import bounds, sites
from cvgp.gp.bounds import gather, weigh, whitener
from cvgp.gp.kernels import cross_matrix, diagonal, make_kernel, square_matrix
from cvgp.gp.sites import nested_prediction
from tests.gp.bounds.problems import (
    FULL_DATA,
    Problem,
    data_side,
    elbo,
    how_data_count,
    make_problem,
    reference_best_outputs,
    statistics,
    tensor,
)


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
def test_elbo_has_no_slope_at_the_best_coreset(problem: Problem) -> None:
    p, coreset = problem, best(problem)
    y_c, w = coreset.y_c.reshape(p.y_c.shape).clone().requires_grad_(), coreset.w.clone().requires_grad_()
    options = {"site_noise": tensor(1.0), **how_data_count(p)}
    bounds.elbo(tensor(p.K_cc), *data_side(p), y_c, w, tensor(p.noise), **options).backward()
    # On the scale of the weight, or of the prior where the weight is small and a slope over log w vanishes anyway.
    step = coreset.w + 1.0 / tensor(p.K_cc).diagonal()
    torch.testing.assert_close(w.grad * step, torch.zeros_like(step), rtol=0.0, atol=1e-3)
    torch.testing.assert_close(y_c.grad, torch.zeros_like(y_c), rtol=0.0, atol=1e-9)


@given(log_beta=hnp.arrays(np.float64, 4, elements=st.floats(-12, 12)))
def test_value_is_no_less_than_at_any_other_weights(log_beta: np.ndarray) -> None:
    p = FULL_DATA["all of it"]
    value = best(p).value.item()
    other = replace(p, beta=np.exp(log_beta))
    assert elbo(replace(other, y_c=reference_best_outputs(other))) <= value + 1e-6


@given(log_start=hnp.arrays(np.float64, 4, elements=st.floats(-7, 7)))
def test_value_does_not_depend_on_the_start(log_start: np.ndarray) -> None:
    p = make_problem()
    from_here = best(replace(p, beta=np.exp(log_start))).value
    np.testing.assert_allclose(from_here, best(p).value, rtol=1e-5)


@pytest.mark.parametrize("start", [0.0, -1.0, np.nan])
def test_start_without_usable_weights_is_refused(start: float) -> None:
    with pytest.raises(InvalidInputError):
        best(make_problem(beta=np.full(4, start)))


NOISE = 0.05
SIZES = (1, 3, 8)
KERNEL = make_kernel("matern32", 2)


def problem(num_outputs: int) -> tuple[torch.Tensor, ...]:
    """Rows, outputs, points and new rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    y = np.stack([np.sin((q + 1) * x[:, 0]) + x[:, 1] for q in range(num_outputs)], 1)
    return tuple(torch.as_tensor(a) for a in (x, y, rng.normal(size=(8, 2)), rng.normal(size=(5, 2))))


@torch.no_grad()
def predict(num_outputs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    x, y, points, x_new = problem(num_outputs)
    L_inv = whitener(square_matrix(KERNEL, points))
    weighting = weigh(torch.tensor(NOISE, dtype=torch.float64), x[:, 0])
    K_cx = cross_matrix(KERNEL, points, x)
    found = gather(L_inv, K_cx, diagonal(KERNEL, x), y, weighting.precision, weighting.log_normalizer)
    psi = L_inv @ cross_matrix(KERNEL, points, x_new)
    return nested_prediction(found, psi, diagonal(KERNEL, x_new), torch.tensor(SIZES))


@torch.no_grad()
def dense(m: int, num_outputs: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of Titsias' posterior with the first m points alone, by plain inverses."""
    x, y, points, x_new = problem(num_outputs)
    c = points[:m]
    K, K_cx, K_cs = square_matrix(KERNEL, c), cross_matrix(KERNEL, c, x), cross_matrix(KERNEL, c, x_new)
    precision = torch.linalg.inv(K + K_cx @ K_cx.mT / NOISE)  # [m, m]
    mean = K_cs.mT @ precision @ K_cx @ y / NOISE
    variance = diagonal(KERNEL, x_new) - (K_cs * ((torch.linalg.inv(K) - precision) @ K_cs)).sum(0)
    return mean, variance


@pytest.mark.parametrize("num_outputs", [1, 2])
@torch.no_grad()
def test_moments_are_those_of_the_first_points_alone(num_outputs: int) -> None:
    means, variances = predict(num_outputs)
    for number, m in enumerate(SIZES):
        f_mean, f_var = dense(m, num_outputs)
        torch.testing.assert_close(means[number], f_mean)
        torch.testing.assert_close(variances[number], f_var)
