import numpy as np
import pytest
import torch
from gpytorch.means import ConstantMean, LinearMean, Mean

from cvgp.data.rows import Rows
from cvgp.training.mean_start import sensible_mean, squared_error

rng = np.random.default_rng(0)
X = 1e4 * rng.normal(size=(50, 2))
Y = X @ [2e-4, -1e-4] + 3.0 + np.sin(rng.normal(size=50))
WEIGHT = rng.uniform(0.1, 2.0, size=50)


def rows(weight: np.ndarray | None = None, count: int = 50) -> Rows[torch.Tensor]:
    made = Rows(torch.tensor(X), torch.tensor(Y), None if weight is None else torch.tensor(weight), None)
    return made.take(slice(count))


def linear(weights: list[float], bias: float = 0.0) -> LinearMean:
    mean = LinearMean(2).double()
    mean.weights.data = torch.tensor(weights, dtype=torch.float64)[:, None]
    mean.bias.data = torch.tensor([bias], dtype=torch.float64)
    return mean


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_a_mean_far_from_the_rows_begins_at_least_squares(weight: np.ndarray | None) -> None:
    found = sensible_mean(linear([1.0, -0.5]), rows(weight))
    root = np.ones(50) if weight is None else np.sqrt(weight)
    expected = np.linalg.lstsq(root[:, None] * np.column_stack([X, np.ones(50)]), root * Y, rcond=None)[0]
    got = torch.cat([found.weights[:, 0], found.bias]).detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_given_mean_stays_as_it_is() -> None:
    given = linear([1.0, -0.5])
    sensible_mean(given, rows())
    np.testing.assert_array_equal(given.weights.detach().numpy()[:, 0], [1.0, -0.5])


def frozen() -> Mean:
    mean = linear([1.0, -0.5])
    for parameter in mean.parameters():
        parameter.requires_grad_(False)
    return mean


@pytest.mark.parametrize(
    ("mean", "count"),
    [(linear([1e-4, 0.0], 3.0), 50), (frozen(), 50), (linear([1.0, -0.5]), 5)],
    ids=["nearer than a constant", "frozen", "too few rows"],
)
def test_a_mean_is_left_alone_that_is(mean: Mean, count: int) -> None:
    assert sensible_mean(mean, rows(count=count)) is mean


def test_of_several_outputs_a_mean_learns_the_average() -> None:
    both = rows()._replace(y=torch.tensor(np.column_stack([Y, Y + 2.0])))
    found = sensible_mean(ConstantMean().double(), both)
    assert found.constant.item() == pytest.approx(Y.mean() + 1.0)


class Bump(Mean):
    """Not linear in its parameter, and flat far from zero."""

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("height", torch.nn.Parameter(torch.tensor(6.0, dtype=torch.float64)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1e3 * torch.tanh(self.height).expand(len(x))


def test_a_step_that_leads_farther_is_not_taken() -> None:
    mean, data = Bump(), rows()
    found = sensible_mean(mean, data)
    assert squared_error(found, data) <= squared_error(mean, data)
