"""Noise with outliers: density, quantiles and probabilities against sums over its two parts."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from cvgp.gp.noise import (
    Contamination,
    Features,
    InputNoise,
    Tails,
    believed_share,
    heavy,
    learn_tails,
    log_density,
    normal,
    with_rare,
)

NOISE = Contamination(0.1, np.array([9.0]))
VARIANCE = np.array([[0.5]])


def test_the_density_is_that_of_a_mixture() -> None:
    for error in (0.0, 1.5, -8.0):
        expected = 0.9 * stats.norm.pdf(error, scale=0.5**0.5) + 0.1 * stats.norm.pdf(error, scale=9.5**0.5)
        found = NOISE.log_density(np.array([[error]]), VARIANCE)
        assert found[0, 0] == pytest.approx(np.log(expected), rel=1e-12)


@pytest.mark.parametrize("level", [1e-4, 0.05, 0.3, 0.5, 0.99])
def test_a_quantile_has_its_probability_below_it(level: float) -> None:
    t = NOISE.quantile(level, VARIANCE)[0, 0]
    below = 0.9 * stats.norm.cdf(t, scale=0.5**0.5) + 0.1 * stats.norm.cdf(t, scale=9.5**0.5)
    assert below == pytest.approx(level, rel=1e-9)


def test_the_probability_of_an_outlier_is_that_of_bayes() -> None:
    error = np.array([[0.3], [4.0]])
    regular, wild = stats.norm.pdf(error, scale=0.5**0.5), stats.norm.pdf(error, scale=9.5**0.5)
    expected = (0.1 * wild / (0.9 * regular + 0.1 * wild))[:, 0]
    np.testing.assert_allclose(NOISE.probability(error, np.full((2, 1), 0.5)), expected, rtol=1e-10)


def test_an_error_beyond_all_measure_is_an_outlier_without_overflow() -> None:
    assert NOISE.probability(np.array([[1e9]]), VARIANCE)[0] == 1.0


ANY = torch.zeros(1, dtype=torch.float64)
HEAVY = heavy(ANY)


def naive_cdf(tails: Tails, r: np.ndarray) -> np.ndarray:
    parts = zip(tails.weights.tolist(), tails.multipliers.sqrt().tolist(), strict=True)
    return np.asarray(sum(w * stats.norm.cdf(r, scale=sd) for w, sd in parts))


@pytest.mark.parametrize("tails", [normal(ANY), HEAVY, with_rare(HEAVY, 0.01)], ids=["normal", "heavy", "rare"])
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


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def features() -> Features:
    return Features(torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None], tensor(2.0))


def noise_of(features: Features, *, lowest: float = -50.0, highest: float = 50.0, f_scale: float = 1.0) -> InputNoise:
    gamma = torch.linspace(-1, 1, 5, dtype=torch.float64)
    one = tensor(1.0)
    return InputNoise(
        centers=features.centers,
        inverse_lengthscale=features.inverse_lengthscale,
        alpha=features.L_inv.mT @ gamma,
        level=tensor(-2.0)[0],
        lowest=tensor(lowest)[0],
        highest=tensor(highest)[0],
        variance_discount=tensor(0.1)[0],
        f_scale=tensor(f_scale)[0],
        f_prior=tensor(2.0)[0],
        multipliers=one,
        weights=one,
        constant=tensor(0.5)[0],
        base=tensor(0.1)[0],
    )


def test_variance_is_that_of_the_features(features: Features) -> None:
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
    gamma = torch.linspace(-1, 1, 5, dtype=torch.float64)
    noise = noise_of(features)
    torch.testing.assert_close(noise.variance(x), (-2.0 + features.at(x) @ gamma).exp())
    torch.testing.assert_close(noise.variance(x, noise.placed(x.dtype)), noise.variance(x))


def test_features_are_those_of_a_gaussian_process_at_its_centers(features: Features) -> None:
    at = features.at(features.centers)
    r = 3.0**0.5 * 2.0 * (features.centers - features.centers.mT).abs()
    torch.testing.assert_close(at @ at.mT, (1.0 + r) * (-r).exp(), rtol=1e-5, atol=2e-6)


def test_noise_stays_in_the_range_of_the_fit(features: Features) -> None:
    x = torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
    log_noise = noise_of(features, lowest=-2.2, highest=-1.9).variance(x).log()
    assert log_noise.min().item() == pytest.approx(-2.2)
    assert log_noise.max().item() == pytest.approx(-1.9)


def test_small_variances_of_f_are_believed_less_than_large_ones() -> None:
    share = believed_share(tensor(0.0, 0.001, 0.1, 100.0), tensor(0.1)[0])
    torch.testing.assert_close(share, tensor(0.0, 0.001 / 0.101, 0.5, 100.0 / 100.1))
    assert (believed_share(tensor(0.0, 1.0), tensor(0.0)[0]) == tensor(0.0, 1.0)).all()


def test_far_from_all_rows_a_small_factor_of_the_variance_of_f_gives_way(features: Features) -> None:
    factor = noise_of(features, f_scale=0.2).f_factor(tensor(1e-3, 2.0))
    torch.testing.assert_close(factor, tensor(0.2 * 1e-3 / 0.101 + 0.8 * 2.5e-7, 0.2 * 2.0 / 2.1 + 0.8))
    larger = noise_of(features, f_scale=3.0).f_factor(tensor(2.0))
    torch.testing.assert_close(larger, tensor(3.0 * 2.0 / 2.1))


@pytest.mark.parametrize("make_tails", [normal, heavy])
def test_density_and_its_slopes(make_tails: Callable[[torch.Tensor], Tails]) -> None:
    tails = make_tails(tensor(0.0))
    g, f_var = tensor(-3.0, 0.0, 2.0).requires_grad_(), tensor(0.2, 0.1, 1.0).requires_grad_()
    square, known = tensor(0.1, 4.0, 0.0)[:, None].expand(3, 2), tensor(0.0, 0.3, 0.0)
    found = log_density(g, square, f_var, known, tails)
    expected = tails.log_density(square[:, 0], f_var + known + g.exp())[0]
    torch.testing.assert_close(found.value, expected)
    in_g, in_f_var = torch.autograd.grad(expected.sum(), [g, f_var])
    torch.testing.assert_close(found.in_log_noise.detach(), in_g)
    torch.testing.assert_close(found.in_f_var.detach(), in_f_var)
