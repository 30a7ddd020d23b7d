import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cvgp.errors import InvalidInputError, JitterWarning
from cvgp.gp.neighbours.conditionals import condition_on_neighbours


def sets(n: int, k: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, k + 1, k + 3, dtype=torch.float64, generator=generator)
    return root @ root.mT, torch.rand(n, k, dtype=torch.float64, generator=generator) + 0.1


@given(n=st.integers(1, 4), k=st.integers(0, 5), seed=st.integers(0, 100))
def test_weights_and_variance_are_those_of_the_plain_formula(n: int, k: int, seed: int) -> None:
    C, rho = sets(n, k, seed)
    b, v = condition_on_neighbours(C, rho)
    for i in range(n):
        S = C[i, :-1, :-1] + torch.diag(1.0 / rho[i])
        expected = torch.linalg.inv(S) @ C[i, :-1, -1]
        torch.testing.assert_close(b[i], expected)
        torch.testing.assert_close(v[i], C[i, -1, -1] - C[i, -1, :-1] @ expected)


def test_gradients_are_those_of_differences() -> None:
    C, rho = sets(3, 4, 0)
    half = C.tril().requires_grad_()

    def values(lower: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        return condition_on_neighbours(lower + lower.mT, precision)

    assert torch.autograd.gradcheck(values, (half, rho.requires_grad_()))


def test_neighbour_of_precision_zero_is_none() -> None:
    C, rho = sets(3, 4, 0)
    without = [0, 1, 3, 4]
    b, v = condition_on_neighbours(C, rho.index_fill(1, torch.tensor(2), 0.0).requires_grad_())
    b_without, v_without = condition_on_neighbours(C[:, without][:, :, without], rho[:, [0, 1, 3]])
    torch.testing.assert_close(b[:, [0, 1, 3]], b_without)
    torch.testing.assert_close(v, v_without)
    assert bool((b[:, 2] == 0).all())


def test_gradient_of_a_neighbour_of_precision_zero_is_finite() -> None:
    C, rho = sets(3, 4, 0)
    rho[:, 2] = 0.0
    b, v = condition_on_neighbours(C.requires_grad_(), rho.requires_grad_())
    (b.sum() + v.sum()).backward()
    assert C.grad is not None
    assert rho.grad is not None
    assert bool(torch.isfinite(C.grad).all() and torch.isfinite(rho.grad).all())


def test_copies_with_almost_no_noise_share_their_weight() -> None:
    C = torch.ones(1, 21, 21, dtype=torch.float64)  # a row and twenty copies of it
    b, v = condition_on_neighbours(C, torch.full((1, 20), 1e8, dtype=torch.float64))
    torch.testing.assert_close(b, torch.full_like(b, 1 / 20), rtol=1e-6, atol=0.0)
    assert 0.0 <= v.item() < 1e-8


def test_matrix_that_is_not_positive_definite_is_mended_with_a_warning() -> None:
    C = torch.eye(3, dtype=torch.float64)[None]
    C[0, 0, 1] = C[0, 1, 0] = 1.0 + 3e-8
    with pytest.warns(JitterWarning, match="of the neighbours"):
        condition_on_neighbours(C, torch.full((1, 2), 1e8, dtype=torch.float64))


def test_shapes_that_do_not_fit_are_refused() -> None:
    C, rho = sets(3, 4, 0)
    with pytest.raises(InvalidInputError, match=r"C must be \[3, 4, 4\]; got \(3, 5, 5\)"):
        condition_on_neighbours(C, rho[:, :3])
