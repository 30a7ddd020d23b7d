import pytest
import torch
from gpytorch.kernels import CosineKernel, RBFKernel, ScaleKernel

from cvgp.gp.kernels import evaluate, make_kernel
from cvgp.gp.slopes import typical_slopes

D = 3


@pytest.mark.parametrize("name", ["rbf", "rq", "linear", "periodic", "rbf+linear", "rbf*periodic", "linear*rbf+rq"])
def test_slopes_are_the_prior_variance_of_the_derivative(name: str) -> None:
    """These families have a derivative, and their constants are one."""
    kernel = make_kernel(name, D)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    at = torch.ones(1, D, dtype=torch.float64)

    def k(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return evaluate(kernel, x, other).sum()

    step = 1e-4
    found = typical_slopes(kernel, D)
    for d in range(D):
        move = torch.zeros(1, D, dtype=torch.float64)
        move[0, d] = step
        mixed = k(at + move, at + move) - k(at + move, at - move) - k(at - move, at + move) + k(at - move, at - move)
        assert found is not None
        assert found[d].square().item() == pytest.approx(mixed.item() / (4.0 * step**2), rel=1e-3)


def test_kernels_without_a_name_have_none() -> None:
    assert typical_slopes(CosineKernel(), D) is None
    assert typical_slopes(ScaleKernel(RBFKernel(active_dims=[0])), D) is None
    assert typical_slopes(make_kernel("rbf", D) + CosineKernel(), D) is None
