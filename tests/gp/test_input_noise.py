import pytest
import torch

from cvgp.gp.input_noise import Features, InputNoise, log_density


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def features() -> Features:
    return Features(torch.linspace(-1, 1, 5, dtype=torch.float64)[:, None], tensor(2.0))


def noise_of(features: Features, *, lowest: float = -50.0, highest: float = 50.0) -> InputNoise:
    gamma = torch.linspace(-1, 1, 5, dtype=torch.float64)
    return features.noise(torch.tensor(-2.0, dtype=torch.float64), gamma, tensor(lowest)[0], tensor(highest)[0])


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


def test_density_and_its_slope() -> None:
    g = tensor(-3.0, 0.0, 2.0).requires_grad_()
    square, variance = tensor(0.1, 4.0, 0.0), tensor(0.2, 0.0, 1.0)
    value, slope = log_density(g, square, variance)
    expected = torch.distributions.Normal(0.0, (variance + g.exp()).sqrt()).log_prob(square.sqrt())
    torch.testing.assert_close(value, expected)
    (by_autograd,) = torch.autograd.grad(expected.sum(), g)
    torch.testing.assert_close(slope.detach(), by_autograd)
