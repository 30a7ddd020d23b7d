import pytest
import torch

from cvgp.gp import bounds
from cvgp.gp.kernels import cross_matrix, diagonal, make_kernel, square_matrix
from cvgp.gp.linalg import add_jitter
from cvgp.gp.posterior import leave_one_out, leave_one_out_exact

NOISE = 0.3


def features(x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kernel = make_kernel("matern32", x.shape[1])
    with torch.no_grad():
        L_inv = bounds.whitener(add_jitter(square_matrix(kernel, z), 1e-10))
        return L_inv @ cross_matrix(kernel, z, x), diagonal(kernel, x)


def posterior(psi: torch.Tensor, y: torch.Tensor, rho: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    C_inv = torch.linalg.inv(torch.eye(len(psi), dtype=psi.dtype) + (psi * rho) @ psi.mT)
    return C_inv, C_inv @ (psi * rho) @ y


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 2, generator=generator, dtype=torch.float64)
    return x, torch.randn(30, 2, generator=generator, dtype=torch.float64)


def test_equals_the_posterior_of_the_other_rows(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    psi, k_xx = features(x, x[:7] + 0.1)
    rho = torch.linspace(0.5, 4.0, 30, dtype=torch.float64) / NOISE
    found = leave_one_out(psi, k_xx, y, rho, *posterior(psi, y, rho))
    for i in range(30):
        others = torch.arange(30) != i
        C_inv, mean = posterior(psi[:, others], y[others], rho[others])
        variance = k_xx[i] - psi[:, i] @ psi[:, i] + psi[:, i] @ C_inv @ psi[:, i]
        torch.testing.assert_close(found.residual[i], y[i] - psi[:, i] @ mean)
        torch.testing.assert_close(found.variance[i], variance)


def test_rows_as_points_give_the_exact_gps_formulas(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    psi, k_xx = features(x, x)
    rho = torch.full((30,), 1.0 / NOISE, dtype=torch.float64)
    found = leave_one_out(psi, k_xx, y, rho, *posterior(psi, y, rho))
    with torch.no_grad():
        K_inv = torch.linalg.inv(
            square_matrix(make_kernel("matern32", 2), x) + NOISE * torch.eye(30, dtype=torch.float64)
        )
    # Rasmussen and Williams (2006), equations 5.12 and 5.13.
    torch.testing.assert_close(found.residual, (K_inv @ y) / K_inv.diagonal()[:, None], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.variance + NOISE, 1.0 / K_inv.diagonal(), rtol=1e-5, atol=1e-6)


def test_a_row_that_decides_alone_stays_finite() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    found = leave_one_out(one, one[0], one, 1e14 * one[0], 1e-14 * one, one)
    assert torch.isfinite(found.residual).all()
    assert torch.isfinite(found.variance).all()


def test_exact_formulas_equal_the_gp_of_the_other_rows(rows: tuple[torch.Tensor, torch.Tensor]) -> None:
    x, y = rows
    with torch.no_grad():
        K = square_matrix(make_kernel("matern32", 2), x)
    rho = torch.linspace(0.0, 4.0, 30, dtype=torch.float64) / NOISE  # one row has no weight
    found = leave_one_out_exact(K, y, rho)
    for i in range(30):
        others = [j for j in range(1, 30) if j != i]
        weights = torch.linalg.solve(K[others][:, others] + (1.0 / rho[others]).diag(), K[others][:, i])
        torch.testing.assert_close(found.residual[i], y[i] - weights @ y[others])
        torch.testing.assert_close(found.variance[i], K[i, i] - weights @ K[others][:, i])


def test_an_exact_row_that_decides_alone_stays_finite() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    found = leave_one_out_exact(one, one, 1e14 * one[0])
    assert torch.isfinite(found.residual).all()
    assert torch.isfinite(found.variance).all()


@pytest.fixture
def clusters() -> list[torch.Tensor]:
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    return list(order.split([1, 4, 10, 15]))


def test_a_cluster_that_is_left_out_of_a_coreset(
    rows: tuple[torch.Tensor, torch.Tensor], clusters: list[torch.Tensor]
) -> None:
    x, y = rows
    psi, k_xx = features(x, x[:7] + 0.1)
    rho = torch.linspace(0.5, 4.0, 30, dtype=torch.float64) / NOISE
    found = leave_one_out(psi, k_xx, y, rho, *posterior(psi, y, rho), clusters)
    for group in clusters:
        others = torch.isin(torch.arange(30), group, invert=True)
        C_inv, mean = posterior(psi[:, others], y[others], rho[others])
        own = psi[:, group]
        variance = k_xx[group] - own.square().sum(0) + (own * (C_inv @ own)).sum(0)
        torch.testing.assert_close(found.residual[group], y[group] - own.mT @ mean)
        torch.testing.assert_close(found.variance[group], variance)


def test_a_cluster_that_is_left_out_of_an_exact_gp(
    rows: tuple[torch.Tensor, torch.Tensor], clusters: list[torch.Tensor]
) -> None:
    x, y = rows
    with torch.no_grad():
        K = square_matrix(make_kernel("matern32", 2), x)
    rho = torch.linspace(0.5, 4.0, 30, dtype=torch.float64) / NOISE
    found = leave_one_out_exact(K, y, rho, clusters)
    for group in clusters:
        others = torch.isin(torch.arange(30), group, invert=True)
        A = torch.linalg.inv(K[others][:, others] + torch.diag(1.0 / rho[others]))
        across = K[group][:, others]
        variance = K.diagonal()[group] - (across @ A * across).sum(1)
        torch.testing.assert_close(found.residual[group], y[group] - across @ A @ y[others])
        torch.testing.assert_close(found.variance[group], variance)
