import numpy as np
import pytest
import torch

from cvgp.gp.bounds import gather, weigh, whitener
from cvgp.gp.kernels import cross_matrix, diagonal, make_kernel, square_matrix
from cvgp.gp.nested import NestedPrediction, nested_prediction

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
def predict(num_outputs: int = 1) -> NestedPrediction:
    x, y, points, x_new = problem(num_outputs)
    L_inv = whitener(square_matrix(KERNEL, points))
    weighting = weigh(torch.tensor(NOISE, dtype=torch.float64), x[:, 0])
    K_cx = cross_matrix(KERNEL, points, x)
    found = gather(L_inv, K_cx, diagonal(KERNEL, x), y, weighting.precision, weighting.log_normaliser)
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


@pytest.mark.parametrize("number", range(len(SIZES)))
@pytest.mark.parametrize("num_outputs", [1, 2])
def test_mean_is_that_of_the_first_points_alone(number: int, num_outputs: int) -> None:
    torch.testing.assert_close(predict(num_outputs).f_mean[number], dense(SIZES[number], num_outputs)[0])


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_variance_is_that_of_the_first_points_alone(number: int) -> None:
    torch.testing.assert_close(predict().f_var[number], dense(SIZES[number])[1])


@pytest.mark.parametrize("number", range(len(SIZES)))
@torch.no_grad()
def test_prior_variance_that_is_left_is_that_of_the_first_points_alone(number: int) -> None:
    *_, points, x_new = problem(1)
    c = points[: SIZES[number]]
    K_cs = cross_matrix(KERNEL, c, x_new)
    explained = (K_cs * torch.linalg.solve(square_matrix(KERNEL, c), K_cs)).sum(0)
    torch.testing.assert_close(predict().f_prior_left[number], diagonal(KERNEL, x_new) - explained)
