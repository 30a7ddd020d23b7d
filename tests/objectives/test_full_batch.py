import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, ScaleKernel
from gpytorch.means import ConstantMean
from torch import Tensor

from cvgp import CVGP, Coreset
from cvgp import objectives as full_data
from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.gp.kernels import evaluate, gaussian_likelihood, make_kernel
from cvgp.objectives import (
    TitsiasObjective,
    full_bound,
    searched_parameters,
    solve_coreset,
    titsias_value,
)

N, M, D, CHUNK = 23, 5, 2, 8

rng = np.random.default_rng(5)
X, X_C = rng.normal(size=(N, D)), rng.normal(size=(M, D))
Y = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=N)
Y2 = np.stack([Y, np.cos(X[:, 1])], 1)
WEIGHT, NOISE = rng.uniform(0.2, 3.0, size=N), rng.uniform(0.01, 0.5, size=N)


@dataclass(frozen=True)
class Case:
    """A model's ingredients and the data that it is asked about."""

    y: np.ndarray
    weight: np.ndarray | None = None
    noise: np.ndarray | None = None
    kernel: Callable[[], Kernel] = lambda: make_kernel("matern52", D)

    def model(self) -> CVGP:
        torch.manual_seed(0)
        y_c = np.random.default_rng(1).normal(size=(M, *self.y.shape[1:]))
        mean = ConstantMean().double().initialize(constant=0.2)
        coreset = Coreset(X_C, y_c, np.linspace(0.5, 6.0, M))
        model = CVGP(coreset, self.kernel(), mean=mean, likelihood=gaussian_likelihood(0.2))
        if self.noise is not None:
            model.site_noise_offset.fill_(0.3)
        return model

    def source(self) -> MemorySource:
        arrays = (X, self.y, self.weight, self.noise)
        return MemorySource(*(None if a is None else torch.tensor(a) for a in arrays))

    def chunks(self) -> Iterable[Rows[Tensor]]:
        return self.source().chunks(CHUNK)

    def whole(self) -> dict[str, Tensor | None]:
        data = self.source().data
        return {"x": data.x, "y": data.y, "sample_weight": data.sample_weight, "noise_variance": data.noise_variance}


CASES = {
    "plain": Case(Y),
    "sample weights": Case(Y, weight=WEIGHT),
    "noise by point": Case(Y, noise=NOISE),
    "two outputs": Case(Y2),
    "a kernel without a fused path": Case(
        Y, kernel=lambda: (ScaleKernel(RBFKernel(ard_num_dims=D)) + LinearKernel()).double()
    ),
    "all of it": Case(Y2, weight=WEIGHT, noise=NOISE),
}
EVERY_CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
BOUNDS: dict[str, dict[str, Any]] = {"elbo": {}, "tight": {"tight": True}}
EVERY_BOUND = pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
EVERY_MEMORY = pytest.mark.parametrize("keep", [True, False], ids=["kept", "recomputed"])


def dense_bound(model: CVGP, case: Case, *, tight: bool = False) -> Tensor:
    """Titsias' collapsed bound with N x N matrices, by autograd: log N(y | 0, Q + V) less the trace term."""
    x, y = torch.tensor(X), torch.tensor(case.y).reshape(N, -1)
    K_cc, K_cx = model.jittered_covariance(), evaluate(model.kernel, model.X_c, x)
    Q = K_cx.mT @ torch.linalg.solve(K_cc, K_cx)
    weight = torch.ones(N, dtype=torch.float64) if case.weight is None else torch.tensor(case.weight)
    noise = model.noise.expand(N) if case.noise is None else model.noise + torch.tensor(case.noise)
    unexplained = evaluate(model.kernel, x, diag=True) - Q.diagonal()
    trace = (weight * unexplained / noise).log1p().sum() if tight else (weight * unexplained / noise).sum()
    V = noise / weight
    residual = y - model.mean(x)[:, None]
    total = torch.zeros((), dtype=torch.float64)
    for column in residual.T:
        joint = torch.distributions.MultivariateNormal(torch.zeros(N, dtype=torch.float64), Q + V.diag())
        # A weight repeats an observation; the Gaussian with variance V = noise / weight lacks the others' normalizers.
        missing = 0.5 * (2.0 * math.pi * V).log().sum() - 0.5 * (weight * (2.0 * math.pi * noise).log()).sum()
        total = total + joint.log_prob(column) + missing - 0.5 * trace
    return total


def value_and_gradients(case: Case, **bound: Any) -> tuple[float, list[Tensor]]:
    model = case.model()
    value = TitsiasObjective(model, case.chunks, N, **bound).value_and_backward()
    return value, [p.grad for p in searched_parameters(model)]


@pytest.fixture
def memory(keep: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_data, "KEEP_BYTES", 1e9 if keep else 0)


@EVERY_BOUND
@EVERY_CASE
def test_objective_is_the_dense_bound(case: Case, bound: dict[str, Any]) -> None:
    expected = dense_bound(case.model(), case, **bound).item()
    assert value_and_gradients(case, **bound)[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.usefixtures("memory")
@EVERY_MEMORY
@EVERY_BOUND
@EVERY_CASE
def test_gradient_is_that_of_the_dense_bound(case: Case, bound: dict[str, Any]) -> None:
    model = case.model()
    dense_bound(model, case, **bound).backward()
    for found, parameter in zip(value_and_gradients(case, **bound)[1], searched_parameters(model), strict=True):
        torch.testing.assert_close(found, parameter.grad, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("memory")
@EVERY_MEMORY
@EVERY_BOUND
def test_objective_does_not_depend_on_the_chunks(bound: dict[str, Any]) -> None:
    case = CASES["all of it"]
    expected, gradients = value_and_gradients(case, **bound)
    model = case.model()
    value = TitsiasObjective(model, lambda: case.source().chunks(N), N, **bound).value_and_backward()
    assert value == pytest.approx(expected, rel=1e-9)
    for p, gradient in zip(searched_parameters(model), gradients, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-9, atol=1e-10)


@EVERY_CASE
def test_titsias_value_is_the_objectives(case: Case) -> None:
    expected = value_and_gradients(case)[0]
    assert titsias_value(case.model(), case.chunks()) == pytest.approx(expected, rel=1e-9)


@EVERY_BOUND
@EVERY_CASE
def test_full_bound_is_the_models_on_all_data(case: Case, bound: dict[str, Any]) -> None:
    model = case.model()
    data = case.whole()
    value = model.tight_elbo if "tight" in bound else model.elbo
    expected = value(data.pop("x"), data.pop("y"), **data).item()
    assert full_bound(model, case.chunks(), N, **bound) == pytest.approx(expected, rel=1e-9)


@EVERY_CASE
def test_coreset_solved_over_chunks_is_that_of_the_data_in_memory(case: Case) -> None:
    chunked = case.model()
    at_once = deepcopy(chunked)
    solve_coreset(chunked, case.chunks())
    data = case.whole()
    at_once.solve_coreset(data.pop("x"), data.pop("y"), **data)
    points = torch.tensor(X)
    torch.testing.assert_close(chunked.posterior(points).mean, at_once.posterior(points).mean, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(chunked.beta, at_once.beta, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_statistics_at_another_noise_are_those_of_a_pass_with_it(weight: np.ndarray | None) -> None:
    case = Case(Y2, weight)
    model, total = case.model(), float(N) if weight is None else weight.sum()
    before, noise = full_data.statistics(model, case.chunks()), model.noise.item()
    model.likelihood.noise = torch.tensor(0.7, dtype=torch.float64)
    after = full_data.statistics(model, case.chunks())
    for known, found in zip(after, before.at_noise(noise, 0.7, total), strict=True):
        torch.testing.assert_close(found, known)
