"""The Tanimoto kernel against its formula, row by row, and against autograd's own check of gradients."""

import numpy as np
import pytest
import torch

from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import diagonal, evaluate, make_kernel
from cvgp.gp.tanimoto import TanimotoKernel

RNG = np.random.default_rng(0)
BITS = (RNG.random((7, 20)) < 0.3).astype(np.float64)
COUNTS = RNG.poisson(1.5, (5, 20)).astype(np.float64)


def brute_force(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    values = np.ones((len(a), len(b)))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            if x.any() or y.any():
                values[i, j] = x @ y / (x @ x + y @ y - x @ y)
    return values


@pytest.mark.parametrize(("a", "b"), [(BITS, BITS), (BITS, COUNTS), (COUNTS, 0.0 * COUNTS), (0.0 * BITS, 0.0 * BITS)])
def test_values_are_those_of_the_formula(a: np.ndarray, b: np.ndarray) -> None:
    found = evaluate(TanimotoKernel(), torch.tensor(a), torch.tensor(b))
    assert found.dtype == torch.float64
    np.testing.assert_allclose(found, brute_force(a, b), rtol=1e-14)


def test_of_bits_it_is_the_share_that_two_sets_have_in_common() -> None:
    sets = [set(np.flatnonzero(row)) for row in BITS]
    expected = [[len(a & b) / len(a | b) for b in sets] for a in sets]
    x = torch.tensor(BITS)
    np.testing.assert_allclose(evaluate(TanimotoKernel(), x, x), expected, rtol=1e-14)


def test_the_prior_variance_is_the_outputscale() -> None:
    kernel = make_kernel("tanimoto", 20)
    kernel.outputscale = torch.tensor(2.5, dtype=torch.float64)
    np.testing.assert_allclose(diagonal(kernel, torch.tensor(COUNTS)).detach(), np.full(5, 2.5))


def test_it_has_no_negative_eigenvalues_for_any_real_rows() -> None:
    x = torch.tensor(RNG.standard_normal((40, 3)))
    assert torch.linalg.eigvalsh(evaluate(TanimotoKernel(), x, x)).min() > -1e-12


def test_gradients_in_the_inputs_are_those_of_differences() -> None:
    x, y = (torch.tensor(part, requires_grad=True) for part in (COUNTS + 0.3, BITS + 0.1))
    assert torch.autograd.gradcheck(lambda a, b: evaluate(TanimotoKernel(), a, b), (x, y))


def test_gradients_of_empty_rows_are_finite() -> None:
    x = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    evaluate(TanimotoKernel(), x, x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize("name", ["tanimoto+linear", "rbf*tanimoto", "tanimoto+tanimoto"])
def test_it_is_not_joined_to_kernels_that_need_scaled_inputs(name: str) -> None:
    with pytest.raises(InvalidInputError, match="'tanimoto' compares inputs as they are"):
        make_kernel(name, 4)
