from copy import deepcopy

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, ZeroMean

from cvgp import CVGP
from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.gp.kernels import NOISE_FLOOR, make_kernel
from cvgp.objectives.full_batch import titsias_value
from cvgp.training import kernel_search as search_module
from cvgp.training.candidates import Start
from cvgp.training.densities import constant_density, mean_density
from cvgp.training.kernel_search import START_FACTORS, raise_noise, search_start
from cvgp.training.monitor import Watch
from cvgp.training.start import typical_lengthscale
from tests.training.problems import make_model, make_source


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


@pytest.mark.parametrize(("margin", "is_enough"), [(1e9, True), (-1e9, False)])
def test_other_coresets_are_tried_unless_the_first_is_as_good_as_the_exact_gp(
    margin: float, is_enough: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "AS_GOOD", margin)
    watch = Watch()
    search(make_source(), prior(1), watch)
    kinds = ("start",) if is_enough else ("start", "start coreset")
    phases = {f"{kind} x{factor:g}" for kind in kinds for factor in START_FACTORS}
    assert {row["phase"] for row in watch.history} == phases | {"start coreset"}


def test_only_the_best_of_several_starts_learns_from_all_rows_that_may_be_learned_from() -> None:
    watch = Watch()
    search(make_source(700, dims=2), watch=watch)
    starts = [row["phase"] for row in watch.history if not row["phase"].startswith("start coreset")]
    assert list(dict.fromkeys(starts)) == [*(f"start x{factor:g}" for factor in START_FACTORS), "start"]
    assert max(starts.count(f"start x{factor:g}") for factor in START_FACTORS) <= search_module.RACE_EVALUATIONS


def light_rows(weight: float) -> MemorySource:
    """80 rows of a sine, each of which counts little."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-3.0, 3.0, size=(80, 1))
    y = np.sin(1.5 * x[:, 0]) + 0.05 * rng.normal(size=80)
    return MemorySource(torch.tensor(x), torch.tensor(y / y.std()), torch.full((80,), weight, dtype=torch.float64))


@pytest.mark.parametrize("exact", [True, False])
def test_rows_of_small_weight_do_not_start_as_noise(exact: bool) -> None:
    watch = Watch()
    found = search_start(
        prior(1, "matern32"), ZeroMean(), light_rows(0.2), np.random.default_rng(0), watch, is_exact=lambda _: exact
    )
    assert found.noise < 0.1


def test_a_part_of_the_rows_counts_as_all_but_no_row_as_more_than_one() -> None:
    half = slice(40)
    for weight, total, expected in [(0.2, 16.0, 0.4), (0.2, 1e6, 1.0), (3.0, 240.0, 3.0)]:
        found = search_module._counting_as(light_rows(weight).data.take(half), total).sample_weight
        torch.testing.assert_close(found, torch.full((40,), expected, dtype=torch.float64))


def test_no_coreset_is_tried_where_every_row_is_to_be_a_point() -> None:
    watch, asked = Watch(), list[Start]()

    def is_exact(by_rows: Start) -> bool:
        asked.append(by_rows)
        return True

    source = make_source(60)
    found = search_start(prior(1), ZeroMean(), source, np.random.default_rng(0), watch, is_exact=is_exact)
    assert found.for_all_rows
    assert [start.kernel for start in asked] == [found.kernel]
    assert {row["phase"] for row in watch.history} == {f"start x{factor:g}" for factor in START_FACTORS}


def test_best_start_is_kept_by_the_density_of_unseen_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    densities = []
    for factor in START_FACTORS:
        monkeypatch.setattr(search_module, "START_FACTORS", (factor,))
        densities.append(search(irrelevant_inputs()).density)
    monkeypatch.setattr(search_module, "START_FACTORS", START_FACTORS)
    assert search(irrelevant_inputs()).density == pytest.approx(max(densities), abs=1e-3)


def test_density_of_a_start_is_that_of_rows_it_has_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """On pure noise in many columns, what is learned from some rows says nothing of others."""
    rng = np.random.default_rng(0)
    noise = MemorySource(torch.tensor(rng.normal(size=(60, 40))), torch.tensor(rng.normal(size=60)))
    assert search(noise).density < constant_density(noise.data) + 0.3


def test_four_columns_of_many_are_found() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(1200, 32))
    y = np.sin(2.0 * x[:, 3]) + 0.7 * x[:, 7] * x[:, 11] + 0.8 * np.cos(1.5 * x[:, 20])
    source = MemorySource(torch.tensor(x), torch.tensor((y - y.mean()) / y.std() + 0.2 * rng.normal(size=1200)))
    found = search(source, prior(32, "matern32"))
    assert set(found.kernel.base_kernel.lengthscale[0].argsort()[:4].tolist()) == {3, 7, 11, 20}
    assert found.density > constant_density(source.data) + 0.8


def test_density_of_a_constant_is_that_of_its_normal() -> None:
    y = make_source().data.y
    expected = torch.distributions.Normal(y.mean(), y.std(correction=0)).log_prob(y).mean()
    assert constant_density(make_source().data) == pytest.approx(expected.item())


def test_mean_density_counts_rows_by_their_weight() -> None:
    data = make_source(20).data
    weight = torch.arange(1.0, 21.0, dtype=torch.float64)
    model = make_model(make_source(20))
    repeated = data.take(torch.arange(20).repeat_interleave(weight.long()))
    weighted = mean_density(model, data._replace(sample_weight=weight))
    assert weighted == pytest.approx(mean_density(model, repeated))


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
    assert {row["phase"] for row in watch.history} == {"start x1", "start coreset"}


def test_no_more_than_a_subset_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "EXACT_ROWS", 20)
    sizes: list[int] = []

    class Recorded(search_module.ExactObjective):
        def __init__(self, model: CVGP, rows: Rows[torch.Tensor]) -> None:
            sizes.append(len(rows.x))
            super().__init__(model, rows)

    monkeypatch.setattr(search_module, "ExactObjective", Recorded)
    search(make_source())
    assert set(sizes) == {20}


def test_search_takes_its_share_of_a_time_limit() -> None:
    watch = Watch(max_time=1e-6)
    search(irrelevant_inputs(), watch=watch)
    assert {row["phase"] for row in watch.history} == {"start x1"}


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_are_enough(rows: int) -> None:
    assert np.isfinite(search(make_source(rows)).noise)


def test_start_of_noiseless_data_can_still_learn_noise() -> None:
    x = torch.linspace(-2.0, 2.0, 40, dtype=torch.float64)[:, None]
    assert search(MemorySource(x, 0.0 * x[:, 0])).noise >= search_module.LEAST_START_NOISE * NOISE_FLOOR


def test_noise_is_raised_to_what_the_coreset_leaves_unexplained() -> None:
    source = make_source(frequency=6.0)
    model = make_model(source, size=3, noise=1e-5)
    raise_noise(model, source.data)
    assert model.noise.item() >= 0.1


def test_raised_noise_has_the_better_bound() -> None:
    source = make_source(frequency=6.0)
    model = make_model(source, size=3, noise=1e-5)
    before = titsias_value(model, source.chunks(100))
    raise_noise(model, source.data)
    assert titsias_value(model, source.chunks(100)) > before


def test_noise_that_suits_the_coreset_stays() -> None:
    source = make_source()
    model = make_model(source, size=20, noise=0.011)
    raise_noise(model, source.data)
    assert model.noise.item() == pytest.approx(0.011, rel=1e-12)


def test_noise_is_never_lowered() -> None:
    source = make_source()
    model = make_model(source, size=20, noise=0.9)
    raise_noise(model, source.data)
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
