"""Each system against the naive reference, and what they share."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cvgp.errors import DivergenceError, InvalidInputError
from experiments.paper.methods import (
    CVGP,
    METHODS,
    PPGPR,
    SVGP,
    Baseline,
    ExactGP,
    RandomCVGP,
    Recipe,
    SparseGP,
    Start,
    SVGPBatchKL,
    full_batch,
    method_class,
    plain_start,
)
from tests import reference

SIZE = 6
DOUBLE = Recipe(steps=15, batch_size=16, dtype="float64", evaluations=5)
STOCHASTIC = [SVGP, SVGPBatchKL, PPGPR, CVGP, RandomCVGP]


def waves(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, 2))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.2 * rng.standard_normal(num_rows)


X, Y = waves(40)
X_NEW = waves(7, seed=1)[0]


@pytest.fixture(scope="module")
def start() -> Start:
    return plain_start(X, Y, SIZE)


def fitted(cls: type[Baseline], start: Start, **changes: Any) -> Any:
    settings = {"recipe": DOUBLE} | changes
    return cls(SIZE, **settings).fit(X, Y, start=start, validation=(X, Y))


def kernel(model: Baseline, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    learned = model.prior_kernel
    return reference.rbf(a, b, learned.base_kernel.lengthscale.item(), learned.outputscale.item())


# Against the reference


def test_exact_gp_is_the_textbooks(start: Start) -> None:
    model = fitted(ExactGP, start)
    K = kernel(model, X, X)
    mean, covariance = reference.exact_gp_predict(
        K, kernel(model, X, X_NEW), kernel(model, X_NEW, X_NEW), Y, model.noise
    )
    found = model.predict(X_NEW, joint=True)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8)
    np.testing.assert_allclose(found.f_covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(model.bound(), reference.log_marginal(K, Y, model.noise), rtol=1e-10)


def test_exact_gp_climbs_its_marginal_likelihood(start: Start) -> None:
    fixed = fitted(ExactGP, start, learn_prior=False)
    learned = fitted(ExactGP, start, recipe=replace(DOUBLE, evaluations=40))
    assert learned.bound() > fixed.bound()


def test_sparse_gp_predicts_with_titsias_optimum(start: Start) -> None:
    model = fitted(SparseGP, start)
    Z = model.inducing().X
    K_zz, K_zx, K_zn = (kernel(model, Z, points) for points in (Z, X, X_NEW))
    mean, covariance = reference.sgpr_predict(K_zz, K_zx, K_zn, kernel(model, X_NEW, X_NEW), Y, model.noise)
    found = model.predict(X_NEW, joint=True)
    # cvgp's jitter of 1e-8 on K_zz is not in the reference.
    np.testing.assert_allclose(found.mean, mean, atol=1e-6)
    np.testing.assert_allclose(found.f_covariance, covariance, atol=1e-6)
    expected = reference.titsias_bound(K_zz, K_zx, kernel(model, X, X), Y, model.noise)
    np.testing.assert_allclose(model.bound(), expected, rtol=1e-6)
    m, S = reference.titsias_q(K_zz, K_zx, Y, model.noise)
    np.testing.assert_allclose(model.kl(), reference.gaussian_kl(m, S, np.zeros_like(m), K_zz), rtol=1e-5)


def test_svgp_has_hensmans_bound(start: Start) -> None:
    model = fitted(SVGP, start)
    Z = model.inducing().X
    K_zz, K_zx = kernel(model, Z, Z), kernel(model, Z, X)
    m = model.inducing().y
    found = model.predict(Z, joint=True)
    expected = reference.svgp_elbo(m, found.f_covariance, K_zz, K_zx, kernel(model, X, X), Y, model.noise)
    np.testing.assert_allclose(model.bound(), expected, rtol=1e-5)
    kl = reference.gaussian_kl(m, found.f_covariance, np.zeros_like(m), K_zz)
    np.testing.assert_allclose(model.kl(), kl, rtol=1e-4)


@pytest.mark.parametrize("cls", [CVGP, RandomCVGP])
def test_cvgp_has_the_papers_bound(start: Start, cls: type[Baseline]) -> None:
    model = fitted(cls, start)
    X_c, y_c, beta = model.inducing()
    K_cc, K_cx = kernel(model, X_c, X_c), kernel(model, X_c, X)
    expected = reference.elbo(K_cc, K_cx, kernel(model, X, X), y_c, beta, model.noise, Y)
    np.testing.assert_allclose(model.bound(), expected, rtol=1e-8)
    np.testing.assert_allclose(model.kl(), reference.coreset_kl(K_cc, y_c, beta, model.noise), rtol=1e-8)


def test_ppgpr_maximizes_the_predictive_density(start: Start) -> None:
    model = fitted(PPGPR, start)
    found = model.predict(X)
    density = reference.gaussian_logpdf(Y, found.mean, np.diag(found.y_sd**2))
    np.testing.assert_allclose(model.bound(), density - model.kl(), rtol=1e-8)
    batch = model.source.data
    np.testing.assert_allclose(-model._loss(batch, len(Y)).item() * len(Y), model.bound(), rtol=1e-6)


def test_the_handicapped_svgp_weighs_its_kl_by_the_batch(start: Start) -> None:
    fair, handicapped = fitted(SVGP, start), fitted(SVGPBatchKL, start)
    handicapped.model.load_state_dict(fair.model.state_dict())
    handicapped.likelihood.load_state_dict(fair.likelihood.state_dict())
    batch = fair.source.data
    excess = (handicapped._loss(batch, len(Y)) - fair._loss(batch, len(Y))).item()
    np.testing.assert_allclose(excess, fair.kl() * (1 / DOUBLE.batch_size - 1 / len(Y)), rtol=1e-6)


@pytest.mark.parametrize("cls", [cls for cls in METHODS.values() if cls.is_bounded])
def test_bounds_stay_below_the_exact_marginal_likelihood(start: Start, cls: type[Baseline]) -> None:
    exact = fitted(ExactGP, start, learn_prior=False)
    assert fitted(cls, start, learn_prior=False).bound() <= exact.bound() + 1e-9


# What they share


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_joint_and_marginal_variances_agree(start: Start, cls: type[Baseline]) -> None:
    model = fitted(cls, start)
    joint = model.predict(X_NEW, joint=True)
    assert joint.f_covariance is not None
    np.testing.assert_allclose(np.diag(joint.f_covariance), model.predict(X_NEW).f_var, atol=1e-7)


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_the_mean_that_early_stopping_watches_is_that_of_predictions(start: Start, cls: type[Baseline]) -> None:
    model = fitted(cls, start)
    np.testing.assert_allclose(model.predict_mean(X_NEW), model.predict(X_NEW).mean, atol=1e-8)


@pytest.mark.parametrize("cls", [SVGP, SVGPBatchKL, PPGPR, CVGP, SparseGP])
def test_every_system_starts_from_the_same_centers_kernel_and_noise(start: Start, cls: type[Baseline]) -> None:
    seen: list[Any] = []
    model = cls(SIZE, recipe=DOUBLE)

    def look(step: int) -> None:
        if step == 0:
            # SparseGP's model is the coreset's; the others hold theirs under another name.
            inputs = (
                model.model.X_c if hasattr(model.model, "X_c") else model.model.variational_strategy.inducing_points
            )  # type: ignore[attr-defined]
            seen.append((inputs.detach().double().numpy().copy(), model.noise, model.prior_kernel.outputscale.item()))

    model.fit(X, Y, on_step=look)
    inputs, noise, outputscale = seen[0]
    np.testing.assert_allclose(inputs, start.coreset.X, rtol=1e-6)
    np.testing.assert_allclose([noise, outputscale], [start.noise, start.kernel.outputscale.item()], rtol=1e-6)


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_a_fixed_prior_stays_as_it_starts(start: Start, cls: type[Baseline]) -> None:
    model = fitted(cls, start, learn_prior=False)
    learned = [model.noise, model.prior_kernel.outputscale.item(), model.prior_kernel.base_kernel.lengthscale.item()]
    given = [start.noise, start.kernel.outputscale.item(), start.kernel.base_kernel.lengthscale.item()]
    np.testing.assert_allclose(learned, given, rtol=1e-6)


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_a_fit_repeats_itself_and_leaves_the_shared_start_alone(start: Start, cls: type[Baseline]) -> None:
    before = [p.detach().clone() for p in start.kernel.parameters()]
    first, second = (fitted(cls, start).predict(X_NEW).mean for _ in range(2))
    np.testing.assert_array_equal(first, second)
    torch.testing.assert_close([p.detach() for p in start.kernel.parameters()], before, rtol=0, atol=0)


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_every_system_learns_in_float32(cls: type[Baseline]) -> None:
    x, y = waves(300)
    model = cls(20, recipe=Recipe(steps=150, batch_size=100, learning_rate=0.1, evaluations=30)).fit(x, y)
    x_test, y_test = waves(200, seed=5)
    assert np.sqrt(np.mean((model.predict(x_test).mean - y_test) ** 2)) < 0.45  # a constant has 0.9, the noise 0.2


@pytest.mark.parametrize("cls", [CVGP, SVGP])
def test_weights_or_factors_too_large_for_float32_are_learned_again_in_float64(
    cls: type[CVGP], monkeypatch: pytest.MonkeyPatch
) -> None:
    def distrust(model: Baseline) -> None:
        if model.dtype is torch.float32:
            raise DivergenceError("on purpose")

    monkeypatch.setattr(cls, "_check_precision", distrust)
    model = cls(SIZE, recipe=replace(DOUBLE, dtype="float32")).fit(X, Y)
    assert model.dtype is torch.float64


# Early stopping, and what is refused


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_early_stopping_returns_to_the_best_validation_rmse(start: Start, cls: type[Baseline]) -> None:
    seen: list[float] = []
    recipe = Recipe(steps=None, epochs=12, batch_size=16, learning_rate=0.3, schedule="constant", dtype="float64",
                    patience=3, full_batch="adam")  # fmt: skip
    model = cls(SIZE, recipe=recipe)
    x_val, y_val = waves(30, seed=9)
    original = model.validation_rmse
    model.validation_rmse = lambda: seen.append(original()) or seen[-1]  # type: ignore[method-assign,func-returns-value]
    model.fit(X, Y, validation=(x_val, y_val), start=start)
    if hasattr(model, "_forget"):
        model._forget()
    rmse = np.sqrt(np.mean((model.predict(x_val).mean - y_val) ** 2))
    assert len(seen) > 1
    np.testing.assert_allclose(rmse, min(seen), rtol=1e-9)


def test_exact_gp_says_how_many_rows_it_takes(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    monkeypatch.setattr(full_batch, "EXACT_ROWS", 30)
    with pytest.raises(InvalidInputError, match="up to 30 training rows; got 40"):
        ExactGP().fit(X, Y, start=start)


def test_wrong_use_is_refused() -> None:
    for call, message in (
        (lambda: SparseGP().source, "SparseGP has not been fitted"),
        (lambda: CVGP().fit(X, Y[:-1]), "x of"),
        (lambda: CVGP().fit(X, np.where(np.arange(len(Y)) == 3, np.nan, Y)), "finite"),
        (lambda: CVGP(SIZE, recipe=replace(DOUBLE, patience=2)).fit(X, Y), "validation"),
        (lambda: Recipe(steps=10, epochs=10), "either steps or epochs"),
        (lambda: method_class("GPR"), "Unknown method 'GPR'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()
    assert method_class("svgp (kl per batch)") is SVGPBatchKL
