import math

import pytest
import torch

from cvgp.errors import FactorizationError, JitterWarning
from cvgp.gp.linalg import (
    backward_from,
    cholesky_above_identity,
    safe_cholesky,
    triangular_product,
    triangular_squares,
)

DTYPES = [torch.float32, torch.float64]


def random_matrix(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(3))


def positive_definite(M: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    A = random_matrix(M, M, dtype=dtype)
    return A @ A.mT + torch.eye(M, dtype=dtype)


def indefinite_by(amount: float) -> torch.Tensor:
    """A matrix [2, 2] of unit diagonal and smallest eigenvalue -amount."""
    return torch.tensor([[1.0, 1.0 + amount], [1.0 + amount, 1.0]], dtype=torch.float64)


# Small tools.


# The jitter ladder; a warning would be an error in every test that does not ask for one.


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_positive_definite_matrix_is_factorized_without_jitter(dtype: torch.dtype) -> None:
    A = positive_definite(5, dtype)
    L = safe_cholesky(A)
    torch.testing.assert_close(L @ L.mT, A)


def test_the_factor_is_that_of_the_matrix_with_the_reported_jitter() -> None:
    A = indefinite_by(0.5e-6)
    with pytest.warns(JitterWarning, match=r"1\.0e-06"):
        L = safe_cholesky(A)
    torch.testing.assert_close(L @ L.mT, A + 1e-6 * torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_end_of_the_ladder_is_an_error_that_says_what_was_tried(dtype: torch.dtype) -> None:
    with pytest.raises(FactorizationError, match=r"B \(2 x 2\) is not positive definite, even with 1\.0e-04 added"):
        safe_cholesky(indefinite_by(0.1).to(dtype), "B")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", [(0, 0), (2, 2), (2, 1)])
def test_values_that_are_not_finite_are_an_error_of_their_own(bad: float, index: tuple[int, int]) -> None:
    A = positive_definite(3)
    A[index] = A[index[::-1]] = bad
    with pytest.raises(FactorizationError, match=r"K_cc \(3 x 3\) holds NaN or infinite values"):
        safe_cholesky(A, "K_cc")


@pytest.mark.parametrize(("size", "columns"), [(5, 7), (131, 1), (64, 64), (131, 70)])
def test_a_triangular_product_and_its_squares_are_those_of_the_whole(size: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    L = torch.randn(size, size, generator=generator, dtype=torch.float64).tril()
    K = torch.randn(2, size, columns, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(triangular_squares(L, K), (L @ K).square().sum(-2))
    torch.testing.assert_close(triangular_product(L, K[0]), L @ K[0])


def test_backward_from_known_gradients_is_that_of_torch() -> None:
    def outputs(p: torch.Tensor) -> list[torch.Tensor]:
        return [p.square(), p.sum() * torch.ones(2, dtype=p.dtype)]

    gradients = [torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5, 4.0])]
    ours, theirs = (torch.tensor([1.0, 2.0, 5.0], requires_grad=True) for _ in range(2))
    backward_from(outputs(ours), gradients)
    torch.autograd.backward(outputs(theirs), gradients)
    assert ours.grad is not None
    assert torch.equal(ours.grad, theirs.grad)
    backward_from(outputs(ours), gradients)
    assert torch.equal(ours.grad, 2 * theirs.grad)


def test_eigenvalues_that_rounding_has_lost_are_raised_to_one() -> None:
    fine, lost = (
        torch.eye(3, dtype=torch.float64) * 2.0,
        torch.diag(torch.tensor([4.0, 1.0, -45.0], dtype=torch.float64)),
    )
    with pytest.warns(JitterWarning, match="1 of 2 were not positive definite"):
        L = cholesky_above_identity(torch.stack([fine, lost]))
    assert torch.allclose(L[0] @ L[0].mT, fine)
    assert torch.allclose(L[1] @ L[1].mT, torch.diag(torch.tensor([4.0, 1.0, 1.0], dtype=torch.float64)))
