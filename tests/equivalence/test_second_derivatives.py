"""Analytic backwards have no second derivatives: asking for one must not give a wrong answer."""

import pytest
import torch

import cvgp


def _model() -> tuple[cvgp.CVGP, torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1.0, 1.0, 8, dtype=torch.float64)[:, None]
    y = torch.sin(3.0 * x[:, 0])
    return cvgp.CVGP(cvgp.Coreset(x[::3], y[::3], torch.ones(3))), x, y


@pytest.mark.parametrize("bound", ["elbo", "tight_elbo", "collapsed_elbo", "power_evidence"])
def test_a_second_derivative_of_a_bound_is_refused(bound: str) -> None:
    model, x, y = _model()
    with pytest.raises(cvgp.CVGPError, match="first derivatives only"):
        torch.autograd.grad(getattr(model, bound)(x, y), model.X_c, create_graph=True)
