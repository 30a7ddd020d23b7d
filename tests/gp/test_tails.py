import numpy as np
import pytest
import torch
from scipy import stats

from cvgp.gp.tails import Tails, heavy, learn_tails, normal

ANY = torch.zeros(1, dtype=torch.float64)
HEAVY = heavy(ANY)


def naive_cdf(tails: Tails, r: np.ndarray) -> np.ndarray:
    parts = zip(tails.weights.tolist(), tails.multipliers.sqrt().tolist(), strict=True)
    return np.asarray(sum(w * stats.norm.cdf(r, scale=sd) for w, sd in parts))


def test_shape_has_variance_one() -> None:
    assert HEAVY.variance.item() == pytest.approx(1.0)
    assert HEAVY.weights.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("tails", [normal(ANY), HEAVY], ids=["normal", "heavy"])
def test_density_and_its_slope_are_those_of_the_mixture(tails: Tails) -> None:
    r = torch.tensor([0.0, 0.3, -2.0, 9.0], dtype=torch.float64)
    log_variance = torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    sd = (log_variance.exp()[:, None] * tails.multipliers).sqrt()  # [n, K]
    expected = (torch.distributions.Normal(0.0, sd).log_prob(r[:, None]) + tails.weights.log()).logsumexp(1)
    (slope,) = torch.autograd.grad(expected.sum(), log_variance)
    value, found = tails.log_density(r.square(), log_variance.detach().exp())
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(found, slope)


@pytest.mark.parametrize("tails", [normal(ANY), HEAVY], ids=["normal", "heavy"])
def test_quantiles_are_the_inverse_of_the_distribution_function(tails: Tails) -> None:
    levels = np.array([1e-6, 0.05, 0.25, 0.5, 0.9, 0.999])
    np.testing.assert_allclose(naive_cdf(tails, tails.quantiles(levels)), levels, rtol=1e-4)


def test_draws_keep_their_order_and_have_variance_one() -> None:
    z = np.random.default_rng(0).standard_normal(200_000)
    draws = HEAVY.from_normal(z)
    assert (np.argsort(draws) == np.argsort(z)).all()
    assert draws.var() == pytest.approx(1.0, rel=0.15)


def test_normal_residuals_have_nearly_normal_tails() -> None:
    square = torch.tensor(np.random.default_rng(0).standard_normal((4000, 1)) ** 2)
    tails = learn_tails(square, torch.ones(4000, dtype=torch.float64))
    np.testing.assert_allclose(tails.of_variance_one().quantiles([0.75, 0.95]), [0.674, 1.645], rtol=0.04)


def test_tails_of_a_student_t_are_learned() -> None:
    r = np.random.default_rng(0).standard_t(3, size=(20_000, 1))
    tails = learn_tails(torch.tensor(r**2), torch.ones(20_000, dtype=torch.float64))
    np.testing.assert_allclose(tails.quantiles([0.75, 0.95, 0.995]), stats.t.ppf([0.75, 0.95, 0.995], 3), rtol=0.05)


def test_weights_count_as_repeats() -> None:
    square = torch.tensor(np.random.default_rng(0).standard_t(3, size=(300, 1)) ** 2)
    weight = torch.ones(300, dtype=torch.float64)
    weight[:100] = 3.0
    repeated = torch.cat([square, square[:100], square[:100]])
    found, expected = learn_tails(square, weight), learn_tails(repeated, torch.ones(500, dtype=torch.float64))
    torch.testing.assert_close(found.weights, expected.weights)
