from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvgp.gp import bounds
from tests.gp.bounds.problems import (
    FULL_DATA,
    MINIBATCH,
    SAMPLE_WEIGHT,
    Problem,
    data_side,
    elbo,
    make_problem,
    reference_tight,
    tensor,
    tight,
)

PROBLEMS = FULL_DATA | MINIBATCH


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_elbo_with_the_tightening_is_the_reference(problem: Problem) -> None:
    np.testing.assert_allclose(tight(problem), reference_tight(problem), rtol=1e-9)


@given(weight=st.floats(1e-3, 1e3), unexplained=st.floats(1e-3, 1e3))
def test_bound_stays_below_its_target_for_every_sample_weight(weight: float, unexplained: float) -> None:
    # One observation y = 0, independent of the pseudo-input, in a coreset without weight: q is the prior, and
    # the target, the log of the integral of p(f) N(0 | f, noise)^weight, has a closed form.
    one, zero, noise = np.ones((1, 1)), np.zeros(1), 0.1
    p = Problem(one, 0 * one, unexplained * one, zero, zero, zero, noise, sample_weight=np.array([weight]))
    target = -0.5 * weight * np.log(2 * np.pi * noise) - 0.5 * np.log1p(weight * unexplained / noise)
    assert tight(p) <= target + 1e-9 * (1 + abs(target))


def test_optimal_pseudo_outputs_are_the_papers() -> None:
    p = make_problem()
    moved = replace(p, y_c=p.y_c + 1.0)
    np.testing.assert_allclose(tight(moved) - tight(p), elbo(moved) - elbo(p), rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("outputs", [1, 2])
def test_second_pass_has_the_gradient_of_both_parts(outputs: int, dtype: torch.dtype) -> None:
    p = make_problem(outputs=outputs, sample_weight=SAMPLE_WEIGHT)
    K_cc, weight = tensor(p.K_cc), tensor(p.sample_weight)
    K_cx, k_xx, y = (t.requires_grad_() for t in data_side(p))
    L_inv = bounds.whitener(K_cc)
    weighting = bounds.weigh(tensor(p.noise), k_xx.detach(), sample_weight=weight)
    precision = weighting.precision.clone().requires_grad_()
    stats = bounds.gather(L_inv, K_cx.detach(), k_xx.detach(), y.detach(), precision.detach(), weighting.log_normalizer)
    solution = bounds.solve_titsias(stats, L_inv)

    psi = L_inv @ K_cx
    residual, explained = y - psi.mT @ solution.C_inv_b, psi.square().sum(0)
    f_var = k_xx - explained + (psi * (solution.C_inv @ psi)).sum(0)
    fit = -0.5 * (precision * (residual.square().sum(1) + outputs * f_var)).sum()  # at the best sites, held fixed
    u = (k_xx - explained) * precision
    gain = 0.5 * outputs * (u - u.log1p()).sum()
    expected = torch.autograd.grad(fit + gain, [K_cx, k_xx, y, precision])

    inputs = (t.detach().to(dtype) for t in (psi, k_xx, y, precision))
    part = bounds.tight_data_gradient(solution, L_inv, *inputs)
    rtol = 1e-10 if dtype == torch.float64 else 1e-3
    assert part.gain.item() == pytest.approx(gain.item(), rel=rtol)
    for found, g in zip(part.gradient, expected, strict=True):
        torch.testing.assert_close(found.to(torch.float64), g, rtol=rtol, atol=rtol * g.abs().max().item())
