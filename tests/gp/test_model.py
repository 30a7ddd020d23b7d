import copy
import io
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel, PolynomialKernel, RBFKernel, RFFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, Mean
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from cvgp import CVGP, Coreset
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError
from cvgp.gp.kernels import KERNEL_NAMES, evaluate
from cvgp.gp.linalg import JITTER
from tests import reference as ref

N, M, D = 24, 5, 2
KERNELS: dict[str, Callable[[], Kernel | str]] = {
    **{name: (lambda name=name: name) for name in KERNEL_NAMES},
    "sum": lambda: (ScaleKernel(RBFKernel(ard_num_dims=D)) + LinearKernel()).double(),
    "product": lambda: (RBFKernel() * PeriodicKernel()).double(),
    "polynomial": lambda: PolynomialKernel(power=2).double(),
    "random features": lambda: RFFKernel(num_samples=10, num_dims=D).double(),
}
# K_cc of these has an inverse, which the reference needs.
FULL_RANK = [name for name in KERNELS if name != "linear"]
BOUNDS = ["elbo", "tight_elbo"]

rng = np.random.default_rng(11)
X = torch.tensor(rng.normal(size=(N, D)))
Y = torch.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * torch.tensor(rng.normal(size=N))
Y2 = torch.stack([Y, torch.cos(X[:, 1])], 1)
NEW_X = torch.tensor(rng.normal(size=(7, D)))
WEIGHT = torch.tensor(rng.uniform(0.5, 2.0, size=N))
CORESET = Coreset(rng.normal(size=(M, D)), rng.normal(size=M), rng.uniform(0.5, 8.0, size=M))
CORESET2 = Coreset(CORESET.X, rng.normal(size=(M, 2)), CORESET.beta)
CORESETS = pytest.mark.parametrize(("coreset", "y"), [(CORESET, Y), (CORESET2, Y2)], ids=["one output", "two outputs"])


def make_model(kernel: str = "rbf", coreset: Coreset = CORESET, **options: object) -> CVGP:
    torch.manual_seed(0)
    return CVGP(coreset, KERNELS[kernel](), **options)


def dense_matrices(model: CVGP, x: Tensor = X, jitter: float = 0.0) -> list[np.ndarray]:
    """K_cc, K_cx and K_xx, by GPyTorch in float64."""
    X_c = model.X_c.detach().double()
    kernel = copy.deepcopy(model.kernel).double()
    K_cc, K_cx, K_xx = (evaluate(kernel, *pair).detach().numpy() for pair in ((X_c, X_c), (X_c, x), (x, x)))
    return [K_cc + jitter * K_cc.diagonal().mean() * np.eye(len(K_cc)), K_cx, K_xx]


def constant_mean(value: float) -> Mean:
    mean = ConstantMean().double()
    mean.constant = value
    return mean


# The bounds, against the reference.


@CORESETS
@pytest.mark.parametrize("kernel", FULL_RANK)
def test_elbo_is_the_reference(kernel: str, coreset: Coreset, y: Tensor) -> None:
    model = make_model(kernel, coreset)
    expected = ref.elbo(*dense_matrices(model), coreset.y, coreset.beta, model.noise.item(), y.numpy())
    assert model.elbo(X, y).item() == pytest.approx(expected, rel=1e-6)


@CORESETS
@pytest.mark.parametrize("kernel", FULL_RANK)
def test_tight_elbo_is_the_reference(kernel: str, coreset: Coreset, y: Tensor) -> None:
    model = make_model(kernel, coreset)
    noise = model.noise.item()
    K_cc, K_cx, K_xx = dense_matrices(model, jitter=JITTER)
    m, S = ref.coreset_q(K_cc, coreset.y, coreset.beta, noise)
    expected = ref.tight_bound(m, S, K_cc, K_cx, K_xx, y.numpy(), noise)
    assert model.tight_elbo(X, y).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_parameter_of_every_kernel_gets_a_finite_gradient(kernel: str, bound: str) -> None:
    model = make_model(kernel, mean=constant_mean(0.1))
    getattr(model, bound)(X, Y).backward()
    parameters = dict(model.named_parameters())
    assert [name for name, p in parameters.items() if p.grad is None or not torch.isfinite(p.grad).all()] == []


@pytest.mark.parametrize("bound", ["elbo", "solve_coreset"])
def test_a_weight_of_two_is_the_point_twice(bound: str) -> None:
    weight = torch.ones(N, dtype=torch.float64)
    weight[3] = 2.0
    doubled = torch.cat([X, X[3:4]]), torch.cat([Y, Y[3:4]])
    weighted = getattr(make_model(), bound)(X, Y, sample_weight=weight)
    assert weighted.item() == pytest.approx(getattr(make_model(), bound)(*doubled).item(), rel=1e-8)


def test_the_elbo_with_known_noise_is_the_reference() -> None:
    model = make_model()
    known = WEIGHT / 10
    learned = model.noise.item()
    expected = ref.elbo(
        *dense_matrices(model), CORESET.y, CORESET.beta, learned + known.numpy(), Y.numpy(), noise_site=learned
    )
    assert model.elbo(X, Y, noise_variance=known).item() == pytest.approx(expected, rel=1e-8)


@CORESETS
@pytest.mark.parametrize("bound", BOUNDS)
def test_a_constant_mean_makes_the_bound_invariant_to_a_shift(bound: str, coreset: Coreset, y: Tensor) -> None:
    shifted = CVGP(Coreset(coreset.X, coreset.y + 3.0, coreset.beta), mean=constant_mean(3.0))
    expected = getattr(make_model(coreset=coreset), bound)(X, y).item()
    assert getattr(shifted, bound)(X, y + 3.0).item() == pytest.approx(expected, rel=1e-10)


# Predictions.


# The coreset as parameters.


@pytest.mark.parametrize("transform", ["log", "softplus"])
@given(beta=hnp.arrays(np.float64, 3, elements=st.floats(-30, 30).map(lambda exponent: 10.0**exponent)))
def test_weights_of_any_scale_come_back_from_the_model(transform: str, beta: np.ndarray) -> None:
    model = CVGP(Coreset(np.zeros((3, 1)), np.zeros(3), beta), beta_transform=transform)
    np.testing.assert_allclose(model.coreset.beta, beta, rtol=1e-12)


# Storing and moving.


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_state_dict_gives_the_identical_bound(kernel: str) -> None:
    model = make_model(kernel, mean=constant_mean(0.3))
    model.site_noise_offset.fill_(0.2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = CVGP(CORESET, KERNELS[kernel](), mean=ConstantMean().double())
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.elbo(X, Y).item() == model.elbo(X, Y).item()


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("kernel", FULL_RANK)
def test_a_float32_model_is_near_the_float64_one(kernel: str, bound: str) -> None:
    exact = getattr(make_model(kernel), bound)(X, Y).item()
    low = getattr(make_model(kernel).to(torch.float32), bound)(X.float(), Y.float()).item()
    assert low == pytest.approx(exact, rel=2e-3)


# The best coreset.


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_bound_that_solving_returns_is_the_elbo_afterwards(kernel: str) -> None:
    model = make_model(kernel, mean=constant_mean(0.4))
    value = model.solve_coreset(X, Y).item()
    assert model.elbo(X, Y).item() == pytest.approx(value, rel=1e-6)


def test_solving_uses_weights_and_noise_of_the_data() -> None:
    model = make_model()
    options = {"sample_weight": WEIGHT, "noise_variance": WEIGHT / 5}
    value = model.solve_coreset(X, Y, **options).item()
    assert model.elbo(X, Y, **options).item() == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("quantity", ["mean", "covariance_matrix"])
def test_sites_solved_with_jitter_give_the_same_predictions_without_it(quantity: str) -> None:
    model = make_model()
    jitter, w = 0.05, np.array([0.5, 10.0, 3.0, 100.0, 1.0])
    K_cc, K_cx, K_xx = dense_matrices(model, NEW_X)
    mean, covariance = ref.posterior(K_cc + jitter * np.eye(M), K_cx, K_xx, CORESET.y, w, 1.0)
    model.set_sites(torch.tensor(CORESET.y), torch.tensor(w), jitter=jitter)
    expected = {"mean": mean, "covariance_matrix": covariance}[quantity]
    np.testing.assert_allclose(getattr(model(NEW_X), quantity).detach().numpy(), expected, rtol=1e-9, atol=1e-10)


# Bad input: what is wrong, and what to do.


@pytest.mark.parametrize("bound", [*BOUNDS, "solve_coreset"])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X[:, 0], Y, r"x must be \[..., B, 2\], as the pseudo-inputs are; got \(24,\)"),
        (X[None], Y, r"x must be \[B, D\] with B >= 1"),
        (X, Y[:-1], r"y \[24\]; got \(24, 2\) and \(23,\)"),
        (X[:0], Y[:0], r"with B >= 1 and y \[0\]; got \(0, 2\)"),
        (X.float(), Y, r"share dtype and device; got torch\.float32 on cpu and torch\.float64 on cpu"),
        (X, Y.to("meta"), r"share dtype and device; got torch\.float64 on cpu and torch\.float64 on meta"),
        (X.long(), Y.long(), "floating-point tensor on cpu.*got torch.int64"),
        (torch.where(X > 1, math.nan, X), Y, "x holds .* NaN or infinite values; drop or impute"),
        (X, torch.where(Y > 0, math.nan, Y), "y holds .* NaN or infinite values; drop or impute"),
    ],
)
def test_data_that_do_not_fit_are_refused(bound: str, x: Tensor, y: Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        getattr(make_model(), bound)(x, y)


@pytest.mark.parametrize("bound", [*BOUNDS, "solve_coreset"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("sample_weight", torch.ones(3), r"\[24\].*\(3,\)"),
        ("sample_weight", -WEIGHT, "not negative"),
        ("noise_variance", torch.ones(3), r"\[24\].*\(3,\)"),
        ("noise_variance", -0.01 * WEIGHT, "not negative"),
    ],
)
def test_weights_and_noise_that_do_not_fit_are_refused(bound: str, option: str, value: Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        getattr(make_model(), bound)(X, Y, **{option: value})


def test_a_failed_solution_leaves_the_coreset_alone() -> None:
    model = make_model()
    with pytest.raises(CVGPError):
        model.solve_coreset(X, Y * math.nan)
    np.testing.assert_array_equal(model.coreset.y, CORESET.y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coreset": (CORESET.X, CORESET.y, CORESET.beta)}, r"coreset must be a cvgp\.Coreset; got tuple"),
        ({"kernel": 3}, r"kernel must be a name or a gpytorch\.kernels\.Kernel; got int"),
        ({"mean": 0.0}, r"mean must be a gpytorch\.means\.Mean; got float"),
        ({"likelihood": BernoulliLikelihood()}, "GaussianLikelihood; got BernoulliLikelihood"),
    ],
)
def test_parts_of_the_wrong_type_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidTypeError, match=message):
        CVGP(**({"coreset": CORESET} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "gaussian"}, r"Unknown kernel 'gaussian'\. Choose one of rbf, matern12"),
        ({"beta_transform": "exp"}, "beta_transform must be 'log' or 'softplus'; got 'exp'"),
        ({"coreset": Coreset(np.zeros((2, 1)), np.zeros(2), np.zeros(2))}, "At least one weight beta must be positive"),
        ({"likelihood": GaussianLikelihood(batch_shape=torch.Size([2]))}, "one noise variance.*got 2"),
    ],
)
def test_parts_that_cannot_be_used_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CVGP(**({"coreset": CORESET} | options))
