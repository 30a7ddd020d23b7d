import numpy as np
import pytest
import torch

from cvgp.optim.lbfgs import read_gradient, read_vector, write_vector


@pytest.fixture
def parameters() -> list[torch.Tensor]:
    first = torch.arange(6.0, dtype=torch.float32).reshape(2, 3).requires_grad_()
    second = torch.tensor(7.0, dtype=torch.float64, requires_grad=True)
    return [first, second]


def test_vector_is_the_concatenation_in_float64(parameters: list[torch.Tensor]) -> None:
    vector = read_vector(parameters)
    assert vector.dtype == np.float64
    np.testing.assert_array_equal(vector, np.arange(8.0)[[0, 1, 2, 3, 4, 5, 7]])


def test_written_vector_is_read_back(parameters: list[torch.Tensor]) -> None:
    vector = np.linspace(-1.0, 1.0, 7).astype(np.float32).astype(np.float64)
    write_vector(parameters, vector)
    np.testing.assert_array_equal(read_vector(parameters), vector)


def test_writing_keeps_shape_and_precision(parameters: list[torch.Tensor]) -> None:
    write_vector(parameters, np.zeros(7))
    assert [(tuple(p.shape), p.dtype) for p in parameters] == [((2, 3), torch.float32), ((), torch.float64)]


def test_a_parameter_without_gradient_counts_as_zero(parameters: list[torch.Tensor]) -> None:
    (2.0 * parameters[1]).backward()
    np.testing.assert_array_equal(read_gradient(parameters), [0.0] * 6 + [2.0])
