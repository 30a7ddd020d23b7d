from copy import deepcopy

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, ZeroMean

from cvgp import CVGP, Coreset
from cvgp.data.arrays import MemorySource
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.objectives.full_batch import titsias_value
from cvgp.training import start as start_module
from cvgp.training.fit import fit_model
from cvgp.training.initialise import initial_coreset
from cvgp.training.monitor import Watch
from cvgp.training.plan import Settings
from cvgp.training.start import (
    START_FACTORS,
    Start,
    raise_noise,
    search_start,
    typical_lengthscale,
)
from tests.training.problems import make_model, make_source, rmse


def prior(dims: int, name: str = "rbf") -> Kernel:
    kernel = make_kernel(name, dims)
    kernel.base_kernel.lengthscale = typical_lengthscale(dims)
    return kernel


def search(source: MemorySource, kernel: Kernel | None = None, watch: Watch | None = None, seed: int = 0) -> Start:
    kernel = prior(source.data.x.shape[1]) if kernel is None else kernel
    return search_start(kernel, ZeroMean(), source, np.random.default_rng(seed), watch or Watch())


def irrelevant_inputs(seed: int = 1) -> MemorySource:
    """A wiggle in one of eight inputs: too long a lengthscale sees nothing of it, too short a one memorises."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(300, 8))
    return MemorySource(torch.tensor(x), torch.tensor(np.sin(3.0 * x[:, 0]) + 0.05 * rng.normal(size=300)))


@pytest.fixture(scope="module")
def watched_search() -> tuple[Start, Watch]:
    watch = Watch()
    return search(irrelevant_inputs(), watch=watch), watch


def test_every_start_is_tried(watched_search: tuple[Start, Watch]) -> None:
    phases = {row["phase"] for row in watched_search[1].history}
    assert phases == {f"start x{factor:g}" for factor in START_FACTORS}


def test_starts_end_apart_when_many_inputs_are_irrelevant(watched_search: tuple[Start, Watch]) -> None:
    last = {row["phase"]: row["bound"] for row in watched_search[1].history}
    assert max(last.values()) - min(last.values()) > 0.5


def test_best_start_by_the_bound_is_kept(watched_search: tuple[Start, Watch], monkeypatch: pytest.MonkeyPatch) -> None:
    last = {row["phase"]: row["bound"] for row in watched_search[1].history}
    best = max(last, key=lambda phase: last[phase])
    monkeypatch.setattr(start_module, "START_FACTORS", (float(best.removeprefix("start x")),))
    alone = search(irrelevant_inputs())
    assert torch.equal(alone.kernel.base_kernel.lengthscale, watched_search[0].kernel.base_kernel.lengthscale)


def test_relevant_input_has_the_shortest_lengthscale(watched_search: tuple[Start, Watch]) -> None:
    assert watched_search[0].kernel.base_kernel.lengthscale.argmin().item() == 0


def test_search_learns_the_noise() -> None:
    assert search(make_source()).noise == pytest.approx(0.01, rel=0.5)


def test_arguments_stay_as_they_are() -> None:
    kernel = prior(1)
    before = deepcopy(kernel.state_dict())
    search(make_source(), kernel)
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())


def test_same_generator_gives_the_same_start() -> None:
    first, second = (search(make_source()) for _ in range(2))
    assert first.noise == second.noise


def test_mean_is_learned_with_the_rest() -> None:
    source = make_source()
    source.data.y.add_(5.0)
    found = search_start(prior(1), ConstantMean().double(), source, np.random.default_rng(0), Watch())
    assert found.mean.constant.item() == pytest.approx(5.0, abs=1.0)


def test_kernel_without_lengthscale_is_tried_once() -> None:
    watch = Watch()
    search(make_source(), make_kernel("linear", 1), watch)
    assert {row["phase"] for row in watch.history} == {"start x1"}


def test_no_more_than_a_subset_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_module, "SUBSET_ROWS", 20)
    sizes: list[int] = []

    def recorded(method: str, x: np.ndarray, *args: object, **options: object) -> Coreset:
        sizes.append(len(x))
        return initial_coreset(method, x, *args, **options)

    monkeypatch.setattr(start_module, "initial_coreset", recorded)
    search(make_source())
    assert sizes == [20]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_are_enough(rows: int) -> None:
    assert np.isfinite(search(make_source(rows)).noise)


def test_start_of_noiseless_data_can_still_learn_noise() -> None:
    x = torch.linspace(-2.0, 2.0, 40, dtype=torch.float64)[:, None]
    assert search(MemorySource(x, 0.0 * x[:, 0])).noise >= start_module.LEAST_START_NOISE


def test_fit_from_the_best_start_beats_the_worst_one(monkeypatch: pytest.MonkeyPatch) -> None:
    source, test = irrelevant_inputs(), irrelevant_inputs(seed=2)

    def fitted(factors: tuple[float, ...]) -> float:
        monkeypatch.setattr(start_module, "START_FACTORS", factors)
        start = search(source)
        x, y = source.data.x.numpy(), source.data.y.numpy()
        coreset = initial_coreset("kmeans", x, y, 20, np.random.default_rng(0))
        model = CVGP(coreset, start.kernel, mean=start.mean, likelihood=gaussian_likelihood(start.noise))
        raise_noise(model, source, np.random.default_rng(0))
        fit_model(model, source, Settings(max_iter=40, bound="elbo"), Watch())
        return rmse(model, test)

    errors = [fitted((factor,)) for factor in START_FACTORS]
    assert fitted(START_FACTORS) < 1.05 * min(errors) < 0.5 * max(errors)


def test_noise_is_raised_to_what_the_coreset_leaves_unexplained() -> None:
    source = make_source(frequency=6.0)
    model = make_model(source, size=3, noise=1e-5)
    raise_noise(model, source, np.random.default_rng(0))
    assert model.noise.item() >= 0.1


def test_raised_noise_has_the_better_bound() -> None:
    source = make_source(frequency=6.0)
    model = make_model(source, size=3, noise=1e-5)
    before = titsias_value(model, source.chunks(100))
    raise_noise(model, source, np.random.default_rng(0))
    assert titsias_value(model, source.chunks(100)) > before


def test_noise_that_suits_the_coreset_stays() -> None:
    source = make_source()
    model = make_model(source, size=20, noise=0.011)
    raise_noise(model, source, np.random.default_rng(0))
    assert model.noise.item() == pytest.approx(0.011, rel=1e-12)


def test_noise_is_never_lowered() -> None:
    source = make_source()
    model = make_model(source, size=20, noise=0.9)
    raise_noise(model, source, np.random.default_rng(0))
    assert model.noise.item() >= 0.9 - 1e-12


def test_site_noise_is_the_harmonic_mean_of_the_total() -> None:
    known = torch.tensor([0.1, 0.4, 1.0], dtype=torch.float64)
    source = MemorySource(known[:, None], known, noise_variance=known)
    assert source.harmonic_noise(0.2) == pytest.approx(3.0 / (1 / 0.3 + 1 / 0.6 + 1 / 1.2))


def test_sites_have_no_other_noise_where_none_is_known() -> None:
    assert make_source().harmonic_noise(0.2) == 0.2


def test_a_frozen_lengthscale_is_not_tried_at_other_values() -> None:
    kernel = prior(8)
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    found = search(irrelevant_inputs(), kernel)
    assert found.kernel.base_kernel.lengthscale.tolist() == kernel.base_kernel.lengthscale.tolist()
