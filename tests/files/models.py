"""Small models, and what it means that two of them are the same."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor, nn

import cvgp
from cvgp.gp.kernels import KERNEL_NAMES

NUM_DIMS = 3
POINTS = torch.tensor(np.random.default_rng(1).normal(size=(6, NUM_DIMS)))

KERNELS: dict[str, Callable[[], str | Kernel]] = {
    **{name: (lambda name=name: name) for name in KERNEL_NAMES},  # type: ignore[misc]
    "RBF of one lengthscale": lambda: RBFKernel(),
    "Matern 1/2 with ARD": lambda: MaternKernel(0.5, ard_num_dims=NUM_DIMS),
    "Matern 5/2": lambda: ScaleKernel(MaternKernel(2.5)),
    "rational quadratic": lambda: RQKernel(ard_num_dims=NUM_DIMS),
    "periodic": lambda: PeriodicKernel(ard_num_dims=NUM_DIMS),
    "linear with ARD": lambda: LinearKernel(ard_num_dims=NUM_DIMS),
    "polynomial": lambda: PolynomialKernel(power=2),
    "random features": lambda: RFFKernel(num_samples=4, num_dims=NUM_DIMS),
    "cosine of one column": lambda: CosineKernel(active_dims=[1]),
    "constant": lambda: ConstantKernel(),
    "two columns": lambda: ScaleKernel(MaternKernel(1.5, ard_num_dims=2, active_dims=[0, 2])),
    "scale of two columns": lambda: ScaleKernel(RBFKernel(ard_num_dims=2), active_dims=[2, 1]),
    "sum": lambda: ScaleKernel(RBFKernel()) + LinearKernel(),
    "product": lambda: RBFKernel(active_dims=[0]) * PeriodicKernel(active_dims=[1]),
    "sum of products": lambda: ScaleKernel(RBFKernel() * LinearKernel()) + RQKernel() * ConstantKernel(),
    "double precision": lambda: ScaleKernel(RBFKernel(ard_num_dims=NUM_DIMS)).double(),
}


def make_model(kernel: str | Kernel = "rbf", *, num_outputs: int | None = None, **options: Any) -> cvgp.CVGP:
    """A model whose parameters all differ from their defaults."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=5 if num_outputs is None else (5, num_outputs))
    model = cvgp.CVGP(cvgp.Coreset(rng.normal(size=(5, NUM_DIMS)), y, rng.uniform(1, 2, 5)), kernel, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.tensor(rng.uniform(0.0, 0.1, tuple(parameter.shape)))
    return model


def through_json(spec: Any) -> Any:
    return json.loads(json.dumps(spec, allow_nan=False))


def bits(module: nn.Module) -> dict[str, tuple[torch.dtype, bool, tuple[int, ...], bytes]]:
    """Every parameter and buffer, to the bit."""
    state: dict[str, Tensor] = module.state_dict(keep_vars=True)
    return {
        name: (value.dtype, value.requires_grad, tuple(value.shape), value.detach().numpy().tobytes())
        for name, value in state.items()
    }
