import torch
from torch import Tensor

from cvgp.gp.autograd import backward_from


def test_backward_from_known_gradients_is_that_of_torch() -> None:
    def outputs(p: Tensor) -> list[Tensor]:
        return [p.square(), p.sum() * torch.ones(2, dtype=p.dtype)]

    gradients = [torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0.5, 4.0])]
    ours, theirs = (torch.tensor([1.0, 2.0, 5.0], requires_grad=True) for _ in range(2))
    backward_from(outputs(ours), gradients)
    torch.autograd.backward(outputs(theirs), gradients)
    assert ours.grad is not None
    assert torch.equal(ours.grad, theirs.grad)
    backward_from(outputs(ours), gradients)
    assert torch.equal(ours.grad, 2 * theirs.grad)
