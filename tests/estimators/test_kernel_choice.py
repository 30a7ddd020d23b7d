"""What the estimator makes of `kernel`: priors, constraints, sums and products of names, and the automatic choice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import NormalPrior
from sklearn.base import clone

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import CVGPWarning
from cvgp.gp.kernels import evaluate
from cvgp.training.start import AUTO_KERNELS, starting_kernel

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(40, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.normal(size=40)


def fit(**options: Any) -> CVGPRegressor:
    return CVGPRegressor(**{"max_iter": 20, "random_state": 0, **options}).fit(X, Y)


def with_prior(sd: float) -> ScaleKernel:
    return ScaleKernel(RBFKernel(lengthscale_prior=NormalPrior(0.2, sd)))


SOLVERS: dict[str, dict[str, Any]] = {
    "exact": {},
    "full batch": {"n_coreset": 10},
    "minibatches": {"n_coreset": 10, "solver": "adam", "max_iter": 100},
}


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_strong_prior_pulls_the_lengthscale_to_its_mode(solver: str) -> None:
    free, pulled = (fit(kernel=with_prior(sd), **SOLVERS[solver]).model_ for sd in (100.0, 0.005))
    assert free.kernel.base_kernel.lengthscale.item() > 0.5
    assert pulled.kernel.base_kernel.lengthscale.item() == pytest.approx(0.2, abs=0.05)


def test_reported_bound_is_without_the_prior() -> None:
    kernel = ScaleKernel(MaternKernel(1.5))
    plain = fit(kernel=kernel)
    kernel.base_kernel.register_prior("lengthscale_prior", NormalPrior(1.0, 1e6), "lengthscale")
    flat = fit(kernel=kernel)  # its density is a constant: the same fit, another maximum
    assert flat.elbo_ == pytest.approx(plain.elbo_, abs=1e-3)
    last = [model.history_["bound"][-1] * len(Y) for model in (plain, flat)]
    assert last[1] - last[0] == pytest.approx(flat.model_.log_prior().item(), abs=1e-3)


def test_model_with_a_prior_is_saved_with_a_warning_that_says_what_is_missing(tmp_path: Path) -> None:
    model = fit(kernel=with_prior(0.1), n_coreset=10)
    with pytest.warns(CVGPWarning, match="priors of kernel are not stored"):
        model.save(tmp_path / "model.cvgp")
    loaded = cvgp.load(tmp_path / "model.cvgp")
    assert np.array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("solver", SOLVERS)
def test_interval_constraints_are_kept_by_the_search_for_a_start(solver: str) -> None:
    base = RBFKernel(ard_num_dims=2, lengthscale_constraint=Interval(0.4, 0.9))
    model = fit(kernel=ScaleKernel(base, outputscale_constraint=Interval(0.1, 2.0)), **SOLVERS[solver]).model_
    lengthscale = model.kernel.base_kernel.lengthscale
    assert bool(((lengthscale > 0.4) & (lengthscale < 0.9)).all())


def test_models_with_interval_constraints_are_merged() -> None:
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=Interval(0.4, 0.9)))
    models = [CVGPRegressor(10, kernel=kernel, max_iter=5, random_state=0).fit(scale * X, Y) for scale in (1.0, 100.0)]
    merged = cvgp.merge(models)
    assert 0.4 < merged.model_.kernel.base_kernel.lengthscale.item() < 0.9


@pytest.fixture(scope="module")
def of_a_sum() -> CVGPRegressor:
    return fit(kernel="rbf+matern32*periodic+linear", n_coreset=10)


def test_a_sum_of_names_is_fitted_and_reported(of_a_sum: CVGPRegressor) -> None:
    assert of_a_sum.kernel_name_ == "rbf+matern32*periodic+linear"
    assert of_a_sum.score(X, Y) > 0.5


def test_a_sum_of_names_is_saved_and_loaded(of_a_sum: CVGPRegressor, tmp_path: Path) -> None:
    of_a_sum.save(tmp_path / "model.cvgp")
    loaded = cvgp.load(tmp_path / "model.cvgp")
    assert loaded.kernel_name_ == of_a_sum.kernel_name_
    assert clone(loaded).kernel == of_a_sum.kernel
    assert np.array_equal(loaded.predict(X), of_a_sum.predict(X))


def test_a_sum_has_importances_and_no_single_set_of_lengthscales(of_a_sum: CVGPRegressor) -> None:
    assert of_a_sum.feature_importances_.sum() > 0.9
    assert of_a_sum.lengthscales_ is None


def test_terms_of_a_sum_start_with_equal_shares_of_the_variance() -> None:
    kernel = starting_kernel("rbf+linear*linear+matern32*periodic", 4, ard=True)
    corners = torch.ones(1, 4, dtype=torch.float64)
    assert [evaluate(term, corners, diag=True).item() for term in kernel.kernels] == pytest.approx([1 / 3] * 3)


def test_linear_part_carries_a_trend_beyond_the_data() -> None:
    x = np.linspace(0.0, 1.0, 60)[:, None]
    y = 3.0 * x[:, 0] + np.sin(12.0 * x[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=60)
    with_trend, without = (
        CVGPRegressor(kernel=kernel, random_state=0).fit(x, y).predict([[6.0]])[0] for kernel in ("rbf+linear", "rbf")
    )
    assert abs(with_trend - 18.0) < 3.0 < abs(without - 18.0)


@pytest.mark.parametrize("n_coreset", ["auto", 10])
def test_automatic_kernel_is_reported_saved_and_cloned(n_coreset: Any, tmp_path: Path) -> None:
    model = fit(kernel="auto", n_coreset=n_coreset)
    assert model.kernel_name_ in ("matern32", *AUTO_KERNELS)
    assert [event for event in model.history_["event"] if event.startswith(f"kernel {model.kernel_name_}")]
    model.save(tmp_path / "model.cvgp")
    loaded = cvgp.load(tmp_path / "model.cvgp")
    assert (loaded.kernel_name_, clone(loaded).kernel) == (model.kernel_name_, "auto")


def jagged(rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of one column, with a jump at every tenth of the other."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(rows, 2))
    steps = rng.normal(size=11)[np.floor(10 * x[:, 1]).astype(int)]
    return x, 2.0 * np.sin(3.0 * x[:, 0]) + steps + 0.02 * rng.normal(size=rows)


def test_by_default_a_function_with_jumps_gets_a_rough_part() -> None:
    x, y = jagged()
    model = CVGPRegressor(random_state=0, noise="constant", inputs="identity").fit(x[:300], y[:300])
    plain = CVGPRegressor(random_state=0, noise="constant", inputs="identity", kernel="matern32").fit(x[:300], y[:300])
    assert (model.kernel_name_, plain.kernel_name_) == ("matern32+matern12", "matern32")
    assert model.lengthscales_ is None
    error, without = (np.abs(fitted.predict(x[300:]) - y[300:]).mean() for fitted in (model, plain))
    assert error < 0.95 * without


@pytest.mark.parametrize(
    "options", [{"n_coreset": 20}, {"kernel": "matern32"}, {"early_stopping": True, "max_iter": 50}]
)
def test_a_rough_part_is_not_tried_where_few_points_have_to_do(options: dict[str, Any]) -> None:
    x, y = jagged(250)
    model = CVGPRegressor(random_state=0, noise="constant", neighbors=0, **{"max_iter": 10} | options).fit(x, y)
    assert not any("matern12" in phase for phase in model.history_["phase"])
