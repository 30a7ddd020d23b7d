from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.means import ConstantMean

from cvgp import CVGP, Coreset
from cvgp.data.arrays import MemorySource
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.objectives.full_batch import full_bound, solve_coreset
from cvgp.training.fit import fit_model
from cvgp.training.monitor import Watch
from cvgp.training.plan import Settings
from cvgp.training.small_data import fit_exact, holds_the_data, smaller_coreset
from tests import reference as ref
from tests.training.problems import make_model, make_source


def model_of_the_data(source: MemorySource, **options: object) -> CVGP:
    x, y, weight, _ = source.data
    coreset = Coreset(x, y, torch.ones(len(x)) if weight is None else weight)
    return CVGP(coreset, make_kernel("rbf", x.shape[1]), likelihood=gaussian_likelihood(0.1), **options)


def fit(model: CVGP, source: MemorySource, *, tol: float = 1e-6) -> None:
    fit_exact(model, source, Watch(), None, max_evaluations=100, tol=tol)


def hyperparameters(model: CVGP) -> list[float]:
    kernel = model.kernel
    return [kernel.base_kernel.lengthscale.item(), kernel.outputscale.item(), model.noise.item()]


def test_coreset_of_the_rows_holds_the_data() -> None:
    source = make_source(20)
    assert holds_the_data(model_of_the_data(source), source)


def test_coreset_of_as_many_other_points_does_not_hold_the_data() -> None:
    source = make_source(20)
    assert not holds_the_data(make_model(make_source(20, seed=1), 20), source)


def test_likelihood_has_no_slope_where_the_fit_ends() -> None:
    source = make_source(30)
    model = model_of_the_data(source)
    fit(model, source, tol=0.0)
    x, y = source.data.x.numpy(), source.data.y.numpy()
    lengthscale, outputscale, noise = hyperparameters(model)

    def value(log_factors: np.ndarray) -> float:
        by_length, by_output, by_noise = np.exp(log_factors)
        return ref.log_marginal(ref.rbf(x, x, lengthscale * by_length, outputscale * by_output), y, noise * by_noise)

    steps = 1e-4 * np.eye(3)
    slopes = [(value(step) - value(-step)) / 2e-4 for step in steps]
    np.testing.assert_allclose(slopes, 0.0, atol=2e-3)


def test_posterior_is_that_of_the_exact_gp() -> None:
    source = make_source(30)
    model = model_of_the_data(source, mean=ConstantMean().double())
    fit(model, source)
    x, y, x_s = source.data.x.numpy(), source.data.y.numpy(), np.linspace(-3.0, 3.0, 7)[:, None]
    lengthscale, outputscale, noise = hyperparameters(model)
    mean = model.mean.constant.item()
    K, K_s, K_ss = (ref.rbf(a, b, lengthscale, outputscale) for a, b in ((x, x), (x, x_s), (x_s, x_s)))
    expected, covariance = ref.exact_gp_predict(K, K_s, K_ss, y - mean, noise)
    prediction = model.posterior(torch.tensor(x_s))
    np.testing.assert_allclose(prediction.mean.detach(), expected + mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(prediction.variance.detach(), np.diag(covariance), rtol=1e-6, atol=1e-8)


def test_known_noise_enters_the_sites() -> None:
    known = torch.linspace(0.0, 0.5, 30, dtype=torch.float64)
    data = make_source(30).data
    source = MemorySource(data.x, data.y, noise_variance=known)
    model = model_of_the_data(source)
    fit(model, source)
    torch.testing.assert_close(model.site_precision.detach(), (model.noise + known).reciprocal().detach())


def test_copies_of_rows_are_no_proof_of_no_noise() -> None:
    data = make_source(40).data
    weight = torch.ones(40, dtype=torch.float64)
    learned = []
    for copies in (1.0, 3.0):
        source = MemorySource(data.x, data.y, weight.clone().index_fill_(0, torch.arange(5), copies))
        model = model_of_the_data(source)
        fit(model, source)
        learned.append(hyperparameters(model))
    assert learned[0] == learned[1]


def test_copies_of_rows_count_in_the_posterior() -> None:
    data = make_source(20).data
    source = MemorySource(data.x, data.y, torch.full((20,), 3.0, dtype=torch.float64))
    model = model_of_the_data(source)
    fit(model, source)
    torch.testing.assert_close(model.beta.detach(), torch.full((20,), 3.0, dtype=torch.float64))


def test_rows_of_small_weight_have_little_say_in_what_is_learned() -> None:
    data = make_source(60).data
    spoilt = torch.where(torch.arange(60) < 20, data.y + 3.0 * (-1.0) ** torch.arange(60), data.y)
    weight = torch.where(torch.arange(60) < 20, 1e-6, 1.0).to(torch.float64)
    source = MemorySource(data.x, spoilt, weight)
    model = model_of_the_data(source)
    fit(model, source)
    assert model.noise.item() < 0.05


def test_smooth_function_is_summarised_without_loss() -> None:
    source = make_source(80)
    model = model_of_the_data(source)
    fit(model, source)
    smaller = smaller_coreset(model, source, np.random.default_rng(0))
    assert smaller is not None
    solve_coreset(smaller, source.chunks(80))
    loss = full_bound(model, source.chunks(80), 80) - full_bound(smaller, source.chunks(80), 80)
    assert len(smaller.X_c) <= 40
    assert -1e-6 <= loss / 80 < 0.01


def test_rough_function_keeps_its_rows() -> None:
    source = make_source(40)
    model = model_of_the_data(source)
    model.kernel.base_kernel.lengthscale = torch.tensor(1e-3, dtype=torch.float64)
    assert smaller_coreset(model, source, np.random.default_rng(0)) is None


@pytest.mark.parametrize(
    ("places", "noise", "kept"),
    [(390, 0.1, 390), (410, 1.0, 400), (410, 0.1, None)],
    ids=["390 needed", "406 needed", "410 needed, and 400 far too few"],
)
def test_no_more_than_400_points_are_kept_unless_all_rows_are(places: int, noise: float, kept: int | None) -> None:
    x = (np.arange(places)[:, None] + [0.0, 1e-4, 2e-4]).reshape(-1, 1)  # three rows at each, far from the others
    source = MemorySource(torch.tensor(x), torch.zeros(len(x), dtype=torch.float64))
    model = model_of_the_data(source)
    model.kernel.base_kernel.lengthscale = torch.tensor(0.1, dtype=torch.float64)
    model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
    smaller = smaller_coreset(model, source, np.random.default_rng(0))
    assert (None if smaller is None else len(smaller.X_c)) == kept


def test_fit_of_the_data_reports_its_likelihood() -> None:
    source = make_source(30)
    report = fit_model(model_of_the_data(source), source, Settings(), Watch())
    lengthscale, outputscale, noise = hyperparameters(report.model)
    x, y = source.data.x.numpy(), source.data.y.numpy()
    expected = ref.log_marginal(ref.rbf(x, x, lengthscale, outputscale), y, noise)
    assert report.bound == pytest.approx(expected, rel=1e-5)  # the tighter bound's jitter


def test_fit_of_the_data_resumes_to_the_same_model(tmp_path: Path) -> None:
    source = make_source(30)

    def run(stop_at: int | None, folder: Path) -> list[float]:
        watch = Watch(callbacks=[lambda event: event.iteration == stop_at])
        report = fit_model(model_of_the_data(source), source, Settings(), watch, checkpoint_dir=str(folder))
        return hyperparameters(report.model)

    whole = run(None, tmp_path / "whole")
    run(4, tmp_path / "killed")
    assert run(None, tmp_path / "killed") == whole
