from collections.abc import Callable

import pytest
import torch

from cvgp.gp.input_noise import Features, InputNoise, believed_share, log_density
from cvgp.gp.tails import Tails, heavy, normal


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def features() -> Features:
    return Features(torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None], tensor(2.0))


def noise_of(features: Features, *, lowest: float = -50.0, highest: float = 50.0, f_scale: float = 1.0) -> InputNoise:
    gamma = torch.linspace(-1, 1, 5, dtype=torch.float64)
    one = tensor(1.0)
    return InputNoise(
        centres=features.centres,
        inverse_lengthscale=features.inverse_lengthscale,
        alpha=features.L_inv.mT @ gamma,
        level=tensor(-2.0)[0],
        lowest=tensor(lowest)[0],
        highest=tensor(highest)[0],
        doubt=tensor(0.1)[0],
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
    torch.testing.assert_close(noise_of(features).variance(x), (-2.0 + features.at(x) @ gamma).exp())


def test_features_are_those_of_a_gaussian_process_at_its_centres(features: Features) -> None:
    at = features.at(features.centres)
    r = 3.0**0.5 * 2.0 * (features.centres - features.centres.mT).abs()
    torch.testing.assert_close(at @ at.mT, (1.0 + r) * (-r).exp(), rtol=1e-5, atol=2e-6)


def test_far_away_the_noise_is_its_level(features: Features) -> None:
    assert noise_of(features).variance(tensor(1e6)[:, None]).log().item() == pytest.approx(-2.0)


def test_noise_stays_in_the_range_of_the_fit(features: Features) -> None:
    x = torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
    log_noise = noise_of(features, lowest=-2.2, highest=-1.9).variance(x).log()
    assert log_noise.min().item() == pytest.approx(-2.2)
    assert log_noise.max().item() == pytest.approx(-1.9)


def test_float32_inputs_give_float32_noise(features: Features) -> None:
    x = torch.linspace(-2, 2, 9)[:, None]
    low = noise_of(features).variance(x)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.double(), noise_of(features).variance(x.double()), rtol=1e-4, atol=1e-6)


def test_noise_beyond_the_base_is_never_negative(features: Features) -> None:
    noise = noise_of(features)
    x = torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
    torch.testing.assert_close(noise.beyond_base(x), (noise.variance(x) - 0.1).clamp_min(0.0))


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
