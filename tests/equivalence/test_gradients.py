"""The analytic gradients against finite differences, and against autograd through the naive bounds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import cvgp
from cvgp.gp import bounds
from tests.equivalence import naive
from tests.gp.bounds.problems import (
    POINT_NOISE,
    SAMPLE_WEIGHT,
    Problem,
    data_side,
    how_data_count,
    make_problem,
    tensor,
)

Bound = Callable[..., Tensor]

NAMES = ["elbo", "tightening"]
SMALL = {"N": 5, "M": 3}
PROBLEMS = {
    "full data": make_problem(**SMALL),
    "minibatch with sample weights": make_problem(**SMALL, num_data=40, sample_weight=SAMPLE_WEIGHT[:5]),
    "noise by point": make_problem(**SMALL, noise=POINT_NOISE[:5], site_noise=0.5),
    "two outputs": make_problem(**SMALL, outputs=2),
}


def arguments(p: Problem, name: str) -> dict[str, Tensor]:
    """What the bound of this name is differentiated in."""
    K_cx, k_xx, y = data_side(p)
    shared = {"K_cc": tensor(p.K_cc), "K_cx": K_cx, "k_xx": k_xx}
    noise = {"noise": tensor(p.noise)}
    sites = {"y_c": tensor(p.y_c), "beta": tensor(p.beta)}
    if p.site_noise is not None and name != "tightening":
        noise["site_noise"] = tensor(p.site_noise)
    if name == "tightening":
        return shared | noise
    return shared | {"y": y} | sites | noise


def options(p: Problem, name: str) -> dict[str, Any]:
    chosen = how_data_count(p)
    if name == "tightening":
        chosen["num_outputs"] = p.num_outputs
    return chosen


def gradients(bound: Bound, inputs: dict[str, Tensor], **chosen: Any) -> dict[str, Tensor]:
    leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
    value = bound(**leaves, **chosen)
    return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))


ROUNDING = 1e-24
"""Weights of 1e-12 make gradients in K_cc of 1e-22 that are differences of much larger numbers."""


def assert_near(ours: dict[str, Tensor], theirs: dict[str, Tensor], rtol: float) -> None:
    """Each gradient agrees to a share of its largest element."""
    for name, expected in theirs.items():
        scale = expected.abs().max().item()
        torch.testing.assert_close(
            ours[name], expected, rtol=0.0, atol=rtol * scale + ROUNDING, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_the_finite_difference(problem: Problem, name: str) -> None:
    inputs, bound, chosen = arguments(problem, name), getattr(bounds, name), options(problem, name)
    leaves = [value.requires_grad_() for value in inputs.values()]
    assert torch.autograd.gradcheck(lambda *values: bound(**dict(zip(inputs, values, strict=True)), **chosen), leaves)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_the_naive_one(problem: Problem, name: str) -> None:
    inputs, chosen = arguments(problem, name), options(problem, name)
    ours, theirs = (gradients(getattr(module, name), inputs, **chosen) for module in (bounds, naive))
    assert_near(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_from_float32_data_is_near_the_naive_one(name: str) -> None:
    p = make_problem()
    inputs, chosen = arguments(p, name), options(p, name)
    single = {key: value.to(torch.float32) if key in ("K_cx", "k_xx", "y") else value for key, value in inputs.items()}
    ours = gradients(getattr(bounds, name), single, **chosen)
    assert_near({k: v.double() for k, v in ours.items()}, gradients(getattr(naive, name), inputs, **chosen), rtol=1e-4)


SMALL_WEIGHTS = {"one of 1e-12": (1e-12, 1.0, 2.0, 3.0), "all of 1e-12": (1e-12,) * 4}
ZERO_WEIGHTS = {"one of zero": (0.0, 1.0, 2.0, 3.0), "two of zero": (0.0, 1.0, 0.0, 3.0), "all of zero": (0.0,) * 4}
BOTH = SMALL_WEIGHTS | ZERO_WEIGHTS


@pytest.mark.parametrize("beta", BOTH.values(), ids=BOTH)
@pytest.mark.parametrize("outputs", [None, 2], ids=["one output", "two outputs"])
def test_elbo_gradient_at_small_weights_is_the_naive_one(beta: tuple[float, ...], outputs: int | None) -> None:
    p = make_problem(beta=np.array(beta), outputs=outputs, sample_weight=SAMPLE_WEIGHT, num_data=40)
    inputs, chosen = arguments(p, "elbo"), options(p, "elbo")
    assert_near(gradients(bounds.elbo, inputs, **chosen), gradients(naive.elbo, inputs, **chosen), rtol=1e-9)


def test_elbo_gradient_at_duplicate_pseudo_inputs_is_the_naive_one() -> None:
    p = make_problem()
    twice = np.array([0, 1, 2, 3, 3])
    double = replace(p, K_cc=p.K_cc[np.ix_(twice, twice)], K_cx=p.K_cx[twice], y_c=p.y_c[twice], beta=p.beta[twice])
    inputs = arguments(double, "elbo")
    assert_near(gradients(bounds.elbo, inputs), gradients(naive.elbo, inputs), rtol=1e-9)


def _model() -> tuple[cvgp.CVGP, torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1.0, 1.0, 8, dtype=torch.float64)[:, None]
    y = torch.sin(3.0 * x[:, 0])
    return cvgp.CVGP(cvgp.Coreset(x[::3], y[::3], torch.ones(3))), x, y


@pytest.mark.parametrize("bound", ["elbo", "tight_elbo"])
def test_a_second_derivative_of_a_bound_is_refused(bound: str) -> None:
    model, x, y = _model()
    with pytest.raises(cvgp.CVGPError, match="first derivatives only"):
        torch.autograd.grad(getattr(model, bound)(x, y), model.X_c, create_graph=True)
