from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvgp.errors import InvalidInputError
from cvgp.gp import bounds, sites
from tests import reference as ref
from tests.gp.bounds.problems import (
    FULL_DATA,
    MINIBATCH,
    POINT_NOISE,
    SAMPLE_WEIGHT,
    Problem,
    collapsed,
    data_side,
    make_problem,
    power_evidence,
    power_statistics,
    reference_power_evidence,
    tensor,
)

PROBLEMS = FULL_DATA | MINIBATCH
UNWEIGHTED = {name: p for name, p in FULL_DATA.items() if p.sample_weight is None}
POWERS = [1e-3, 0.5, 1.0]
EVERY_POWER = pytest.mark.parametrize("power", POWERS)


def best_value(p: Problem, power: float, dtype: torch.dtype = torch.float64) -> float:
    """The estimate at the best full site covariance."""
    L_inv = bounds.whitener(tensor(p.K_cc))
    return bounds.solve_titsias(power_statistics(p, power, dtype), L_inv).value.item()


@EVERY_POWER
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_value_is_the_reference(problem: Problem, power: float) -> None:
    np.testing.assert_allclose(power_evidence(problem, power), reference_power_evidence(problem, power), rtol=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_value_from_float32_data_is_near_the_reference(problem: Problem) -> None:
    np.testing.assert_allclose(
        power_evidence(problem, dtype=torch.float32), reference_power_evidence(problem), rtol=1e-5
    )


@EVERY_POWER
@pytest.mark.parametrize("problem", UNWEIGHTED.values(), ids=UNWEIGHTED)
def test_best_value_is_the_dense_one(problem: Problem, power: float) -> None:
    p = problem
    expected = ref.power_evidence(p.K_cc, p.K_cx, p.K_xx, p.y, p.noise, power)
    np.testing.assert_allclose(best_value(p, power), expected, rtol=1e-9)
    np.testing.assert_allclose(best_value(p, power, torch.float32), expected, rtol=1e-5)


@pytest.mark.parametrize("problem", UNWEIGHTED.values(), ids=UNWEIGHTED)
def test_small_power_is_the_bound_of_titsias(problem: Problem) -> None:
    p = problem
    expected = ref.titsias_bound(p.K_cc, p.K_cx, p.K_xx, p.y, p.noise)
    np.testing.assert_allclose(best_value(p, 1e-9), expected, rtol=1e-7)


@pytest.mark.parametrize("problem", UNWEIGHTED.values(), ids=UNWEIGHTED)
def test_power_of_one_is_fitc(problem: Problem) -> None:
    p = problem
    expected = ref.fitc_log_marginal(p.K_cc, p.K_cx, p.K_xx, p.y, p.noise)
    np.testing.assert_allclose(best_value(p, 1.0), expected, rtol=1e-9)


@given(low=st.floats(1e-3, 1.0), high=st.floats(1e-3, 1.0), seed=st.integers(0, 99))
def test_it_grows_with_the_power(low: float, high: float, seed: int) -> None:
    p = make_problem(outputs=2, noise=POINT_NOISE, site_noise=0.5, sample_weight=SAMPLE_WEIGHT, seed=seed)
    low, high = sorted((low, high))
    assert best_value(p, low) <= best_value(p, high) + 1e-9
    assert power_evidence(p, low) <= best_value(p, low)


def test_it_may_lie_above_the_log_marginal() -> None:
    # Outputs of one input differ by noise alone. Here their unexplained parts may differ as well, which costs less.
    p = replace(make_problem().rows(np.array([3, 3, 3, 3])), y=np.array([2.0, -2.0, 2.0, -2.0]))
    assert best_value(p, 1.0) > ref.log_marginal(p.K_xx, p.y, p.noise)


@EVERY_POWER
@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
def test_best_diagonal_sites_attain_the_value_of_their_statistics(problem: Problem, power: float) -> None:
    best = sites.best_coreset(tensor(problem.K_cc), power_statistics(problem, power), tensor(problem.w))
    at_best = replace(problem, y_c=best.y_c.numpy().reshape(problem.y_c.shape), beta=best.w.numpy(), site_noise=1.0)
    np.testing.assert_allclose(power_evidence(at_best, power), best.value.item(), rtol=1e-9)


@EVERY_POWER
def test_best_diagonal_sites_are_a_maximum(power: float) -> None:
    p = FULL_DATA["all of it"]
    best = sites.best_coreset(tensor(p.K_cc), power_statistics(p, power), tensor(p.w))
    rng = np.random.default_rng(0)
    for _ in range(20):
        y_c = best.y_c.numpy() + 0.1 * rng.normal(size=best.y_c.shape)
        moved = replace(p, y_c=y_c, beta=best.w.numpy() * rng.lognormal(0.0, 0.2, size=4), site_noise=1.0)
        assert power_evidence(moved, power) < best.value.item()


@EVERY_POWER
def test_minibatches_at_the_best_sites_add_up_to_the_value_of_all_rows(power: float) -> None:
    p = make_problem(outputs=2, noise=POINT_NOISE, site_noise=0.5)
    L_K = np.linalg.cholesky(p.K_cc)
    solution = bounds.solve_titsias(power_statistics(p, power), bounds.whitener(tensor(p.K_cc)))
    m, S = L_K @ solution.C_inv_b.numpy(), L_K @ solution.C_inv.numpy() @ L_K.T
    batches = [p.rows(np.arange(start, start + 3)) for start in range(0, 12, 3)]
    values = [ref.power_evidence_of_q(m, S, b.K_cc, b.K_cx, b.K_xx, b.y, b.noise, power, num_data=12) for b in batches]
    np.testing.assert_allclose(np.mean(values), solution.value.item(), rtol=1e-9)


@EVERY_POWER
def test_mean_over_equal_minibatches_is_the_value_of_all_rows(power: float) -> None:
    p = FULL_DATA["all of it"]
    batches = [p.rows(np.arange(start, start + 3), num_data=12) for start in range(0, 12, 3)]
    np.testing.assert_allclose(np.mean([power_evidence(b, power) for b in batches]), power_evidence(p, power))


@given(counts=st.lists(st.integers(0, 3), min_size=12, max_size=12).filter(any), power=st.floats(1e-3, 1.0))
def test_weight_is_the_number_of_times_that_a_row_is_there(counts: list[int], power: float) -> None:
    p = make_problem(outputs=2, noise=POINT_NOISE, site_noise=0.5)
    weighted = replace(p, sample_weight=np.array(counts, dtype=float))
    repeated = p.rows(np.repeat(np.arange(12), counts))
    np.testing.assert_allclose(power_evidence(weighted, power), power_evidence(repeated, power), rtol=1e-9)
    for found, expected in zip(power_statistics(weighted, power), power_statistics(repeated, power), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@given(low=st.floats(1e-3, 1.0), high=st.floats(1e-3, 1.0))
def test_power_does_not_matter_where_the_pseudo_inputs_explain_all(low: float, high: float) -> None:
    p = make_problem()
    at_sites = replace(p, K_cx=p.K_cc, K_xx=p.K_cc, y=p.y_c)
    np.testing.assert_allclose(best_value(at_sites, low), best_value(at_sites, high), rtol=1e-9)
    np.testing.assert_allclose(best_value(at_sites, low), ref.log_marginal(p.K_cc, p.y_c, p.noise), rtol=1e-9)


def test_rounding_below_zero_is_no_unexplained_variance() -> None:
    p = make_problem()
    K_xx = p.K_cc - 1e-9 * np.eye(4)
    at_sites = replace(p, K_cx=p.K_cc, K_xx=K_xx, y=p.y_c)
    np.testing.assert_allclose(power_evidence(at_sites, 0.5), power_evidence(at_sites, 1.0), rtol=1e-14)
    assert best_value(at_sites, 0.5) == best_value(at_sites, 1.0)
    assert best_value(at_sites, 0.5) >= collapsed(at_sites)


@pytest.mark.parametrize("power", [0.0, -0.5, 1.5, float("nan"), float("inf")])
def test_power_that_is_no_share_is_refused(power: float) -> None:
    with pytest.raises(InvalidInputError, match="power must be above 0 and at most 1"):
        power_evidence(make_problem(), power)
    with pytest.raises(InvalidInputError, match="power must be above 0 and at most 1"):
        power_statistics(make_problem(), power)


@pytest.mark.parametrize("noise", [0.0, -0.1, np.linspace(-0.1, 0.5, 12)], ids=["zero", "negative", "some negative"])
def test_noise_that_is_no_variance_is_refused(noise: ref.Noise) -> None:
    with pytest.raises(InvalidInputError, match="noise holds variances"):
        power_evidence(make_problem(noise=noise, site_noise=0.5))


@pytest.mark.parametrize("position", range(7), ids=["K_cc", "K_cx", "k_xx", "y", "y_c", "beta", "noise"])
def test_mixed_devices_are_refused(position: int) -> None:
    p = make_problem()
    arguments = [tensor(p.K_cc), *data_side(p), tensor(p.y_c), tensor(p.beta), tensor(p.noise)]
    arguments[position] = arguments[position].to("meta")
    with pytest.raises(InvalidInputError, match="must be on"):
        bounds.power_evidence(*arguments, 0.5)


def test_pseudo_outputs_of_another_number_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="as many outputs as y"):
        power_evidence(make_problem(y_c=np.zeros((4, 2))))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("outputs", [1, 2])
@EVERY_POWER
def test_second_pass_has_the_gradient_at_the_best_sites(outputs: int, power: float, dtype: torch.dtype) -> None:
    p = make_problem(outputs=outputs, noise=POINT_NOISE, site_noise=0.5, sample_weight=SAMPLE_WEIGHT)
    weight, L_inv = tensor(p.sample_weight), bounds.whitener(tensor(p.K_cc))
    solution = bounds.solve_titsias(power_statistics(p, power), L_inv)

    K_cx, k_xx, y, noise = (t.requires_grad_() for t in (*data_side(p), tensor(p.noise)))
    psi = L_inv @ K_cx
    unexplained = k_xx - psi.square().sum(0)
    t = noise + power * unexplained
    misfit = (y - psi.mT @ solution.C_inv_b).square().sum(1) + outputs * (psi * (solution.C_inv @ psi)).sum(0)
    constant = (1.0 - power) / (2.0 * power) * (1.0 + power * unexplained / noise).log()
    value = -(weight * (0.5 * misfit / t + outputs * (0.5 * t.log() + constant))).sum()  # at the best q(u), held fixed
    expected = torch.autograd.grad(value, [K_cx, k_xx, y, noise])

    inputs = (t.detach().to(dtype) for t in (psi, k_xx, y, noise))
    part = bounds.power_data_gradient(solution, L_inv, *inputs, power, sample_weight=weight)
    rtol = 1e-10 if dtype == torch.float64 else 1e-3
    for found, g in zip(part[:-1], expected, strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.to(torch.float64), g, rtol=rtol, atol=rtol * g.abs().max().item())
