from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds import site_precision, weigh
from tests import reference as ref
from tests.gp.bounds.problems import Problem, elbo, make_problem, tensor, tight

Bound = Callable[[Problem], float]

ONES = torch.ones(4, dtype=torch.float64)


@pytest.mark.parametrize("noise", [0.3, np.linspace(0.2, 0.9, 12)], ids=["one noise", "noise by point"])
def test_integer_sample_weights_are_repeated_points(noise: float | np.ndarray) -> None:
    p = make_problem(noise=noise, site_noise=0.5)
    counts = np.arange(12) % 3
    repeated = p.rows(np.repeat(np.arange(12), counts))
    np.testing.assert_allclose(elbo(replace(p, sample_weight=counts.astype(float))), elbo(repeated), rtol=1e-11)


@pytest.mark.parametrize("bound", [elbo, tight], ids=["elbo", "tight"])
def test_sample_weight_of_zero_is_an_observation_that_is_not_there(bound: Bound) -> None:
    p = make_problem()
    without = p.rows(np.delete(np.arange(12), 5))
    weight = np.where(np.arange(12) == 5, 0.0, 1.0)
    np.testing.assert_allclose(bound(replace(p, sample_weight=weight)), bound(without), rtol=1e-11)


@pytest.mark.parametrize("bound", [elbo, tight], ids=["elbo", "tight"])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "sample weights"])
def test_mean_over_equal_minibatches_is_the_full_bound(bound: Bound, weighted: bool) -> None:
    p = make_problem(sample_weight=np.linspace(0.1, 3.0, 12) if weighted else None)
    batches = np.random.default_rng(0).permutation(12).reshape(4, 3)
    values = [bound(p.rows(index, num_data=12)) for index in batches]
    np.testing.assert_allclose(np.mean(values), bound(p), rtol=1e-11)


@pytest.mark.parametrize("bound", [elbo, tight], ids=["elbo", "tight"])
def test_kl_is_not_scaled_with_the_batch(bound: Bound) -> None:
    p = make_problem()
    # The data sum grows with num_data and the KL does not, so the line through two values meets zero data at -KL.
    without_data = 2 * bound(replace(p, num_data=12)) - bound(replace(p, num_data=24))
    np.testing.assert_allclose(without_data, -ref.coreset_kl(p.K_cc, p.y_c, p.beta, p.noise), rtol=1e-10)


@pytest.mark.parametrize("value", [0.0, -0.1, float("nan"), float("inf")])
@pytest.mark.parametrize("per_point", [False, True], ids=["scalar", "by point"])
def test_noise_that_is_no_variance_is_refused(value: float, per_point: bool) -> None:
    noise = tensor([0.1, 0.1, value, 0.1]) if per_point else tensor(value)
    with pytest.raises(InvalidInputError, match="every one must be positive and finite"):
        weigh(noise, ONES)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_sample_weight_that_is_no_weight_is_refused(value: float) -> None:
    with pytest.raises(InvalidInputError, match="Sample weights must be finite and not negative"):
        weigh(tensor(0.1), ONES, sample_weight=tensor([1.0, 1.0, value, 1.0]))


def test_noise_by_point_without_a_site_noise_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="site_noise must be given"):
        site_precision(ONES, 0.1 * ONES, None)
