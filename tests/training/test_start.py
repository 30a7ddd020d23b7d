from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel
from gpytorch.means import ConstantMean, LinearMean, ZeroMean

from cvgp import CVGP, Coreset, CVGPRegressor
from cvgp.data.arrays import MemorySource
from cvgp.data.split import SharedSource
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.objectives.exact import ExactObjective
from cvgp.objectives.full_batch import TitsiasObjective
from cvgp.training import kernel_search
from cvgp.training.kernel_search import Start
from cvgp.training.monitor import Watch
from cvgp.training.size import SMALLEST
from cvgp.training.start import (
    DEFAULT_KERNEL,
    begin_model,
    rows_to_place_by,
    starting_kernel,
    starting_mean,
    typical_lengthscale,
    wants_all_rows,
)
from tests.parallel.groups import ThreadGroup, run_in_threads
from tests.training.problems import make_source


def begin(source: MemorySource, size: int | None = 7, seed: int = 0, **options: Any) -> CVGP:
    kernel = starting_kernel("rbf", source.data.x.shape[1], ard=True)
    return begin_model(source, kernel, ZeroMean(), np.random.default_rng(seed), Watch(), size=size, **options)


def test_kernel_by_name_begins_at_a_typical_lengthscale() -> None:
    lengthscale = starting_kernel("rbf", 3, ard=True).base_kernel.lengthscale
    torch.testing.assert_close(lengthscale.detach(), torch.full((1, 3), typical_lengthscale(3), dtype=torch.float64))


def test_kernel_of_no_name_is_the_default() -> None:
    named, unnamed = (starting_kernel(name, 2, ard=True) for name in (DEFAULT_KERNEL, None))
    assert (type(named.base_kernel), named.base_kernel.nu) == (type(unnamed.base_kernel), unnamed.base_kernel.nu)


def test_isotropic_kernel_has_one_lengthscale() -> None:
    assert starting_kernel("rbf", 3, ard=False).base_kernel.lengthscale.numel() == 1


def test_given_kernel_is_copied() -> None:
    kernel = RBFKernel() + LinearKernel()
    copy = starting_kernel(kernel, 2, ard=True)
    assert copy is not kernel
    assert {p.dtype for p in copy.parameters()} == {torch.float64}
    assert {p.dtype for p in kernel.parameters()} == {torch.float32}


def test_kernel_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="GPyTorch kernel"):
        starting_kernel(3, 2, ard=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "kind"), [("zero", ZeroMean), ("constant", ConstantMean)])
def test_mean_by_name(name: str, kind: type) -> None:
    assert isinstance(starting_mean(name), kind)


def test_given_mean_is_copied() -> None:
    mean = LinearMean(2)
    assert starting_mean(mean) is not mean


def test_unknown_mean_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="'zero', 'constant'"):
        starting_mean("median")


def test_model_begins_with_the_size_that_is_asked_for() -> None:
    assert len(begin(make_source()).X_c) == 7


def test_size_is_chosen_where_none_is_asked_for() -> None:
    assert len(begin(make_source(frequency=6.0), None).X_c) >= SMALLEST


def test_given_coreset_is_where_the_model_begins() -> None:
    given = Coreset([[-1.0], [0.5]], [0.3, 0.4], [10.0, 20.0])
    coreset = begin(make_source(), init=given).coreset
    np.testing.assert_array_equal(coreset.X, given.X)
    np.testing.assert_array_equal(coreset.y, given.y)
    np.testing.assert_allclose(coreset.beta, given.beta)


def test_weights_of_the_first_coreset_add_up_to_the_rows() -> None:
    assert begin(make_source()).beta.sum().item() == pytest.approx(100.0)


def test_noise_suits_a_coreset_that_is_too_small() -> None:
    assert begin(make_source(frequency=6.0), 2).noise.item() >= 0.1


def test_first_sites_are_as_precise_as_the_rows_that_they_stand_for() -> None:
    data = make_source().data
    known = torch.linspace(0.1, 1.0, 100, dtype=torch.float64)
    model = begin(MemorySource(data.x, data.y, None, known))
    expected = (1.0 / (model.noise + known)).sum()
    assert model.site_precision.sum().item() == pytest.approx(expected.item())


@pytest.mark.parametrize("transform", ["log", "softplus"])
def test_transform_of_the_weights_is_that_which_is_asked_for(transform: str) -> None:
    assert begin(make_source(), beta_transform=transform).beta_transform == transform


def test_same_generator_begins_the_same() -> None:
    first, second = (begin(make_source()).state_dict() for _ in range(2))
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("init", ["kmeans", "random"])
def test_processes_that_draw_other_numbers_begin_with_those_of_the_first(init: Any) -> None:
    def start(group: ThreadGroup) -> list[list[float]]:
        whole = make_source(60, dims=2)
        source = SharedSource(whole.part(*((0, 50) if group.rank == 0 else (50, 60))), group)
        kernel = starting_kernel("rbf", 2, ard=True)
        watch = Watch(group=group)
        rng = np.random.default_rng(group.rank)
        model = begin_model(source, kernel, ZeroMean(), rng, watch, size=None if init == "kmeans" else 7, init=init)
        return [p.detach().reshape(-1).tolist() for p in model.parameters()]

    first, second = run_in_threads(2, start)
    assert first == second


def rows_and_start(num_rows: int, lengthscale: float, dims: int = 8) -> tuple[MemorySource, Start]:
    kernel = starting_kernel("rbf", dims, ard=True)
    kernel.base_kernel.lengthscale = lengthscale
    return make_source(num_rows, dims=dims), Start(kernel, ZeroMean(), 0.01, 0.0)


@pytest.mark.parametrize(
    ("num_rows", "lengthscale", "expected"),
    [(100, 50.0, True), (1500, 50.0, False), (1500, 0.01, True), (2900, 0.01, False)],
)
def test_all_rows_are_wanted_where_they_are_few_or_most_are_needed(
    num_rows: int, lengthscale: float, expected: bool
) -> None:
    source, start = rows_and_start(num_rows, lengthscale)
    assert wants_all_rows(start, source, np.random.default_rng(0), None) is expected


def work_of_fit(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Multiplications in the evaluations of a default fit to a sine, and its error."""
    work = []
    for objective in (ExactObjective, TitsiasObjective):

        def counted(self: Any, scale: float = 1.0, original: Any = objective.value_and_backward) -> float:
            size = len(self.model.X_c)
            work.append(size**3 + num_rows * size**2)
            return original(self, scale)

        monkeypatch.setattr(objective, "value_and_backward", counted)
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, size=(num_rows, 1))
    model = CVGPRegressor(random_state=0).fit(x, np.sin(x[:, 0]) + rng.normal(0.0, 0.3, num_rows))
    grid = np.linspace(0.5, 9.5, 50)[:, None]
    return sum(work), np.abs(model.predict(grid) - np.sin(grid[:, 0])).max()


def test_fits_on_both_sides_of_2000_rows_take_similar_work_and_are_as_good(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fewer in {"EXACT_ROWS": 100, "EVALUATIONS": 15, "CORESET_EVALUATIONS": 4}.items():
        monkeypatch.setattr(kernel_search, name, fewer)  # a quicker start
    (below, error_below), (above, error_above) = (work_of_fit(n, monkeypatch) for n in (1990, 2010))
    assert 0.5 < above / below < 2.0
    assert max(error_below, error_above) < 0.1


def test_kmeans_sees_fewer_rows_where_the_limit_is_short_or_the_machine_slow() -> None:
    source = make_source(5000)
    limits = [Watch(limit) for limit in (None, 60.0, 1e-3)]
    slow = Watch(60.0)
    slow.measure(1.0, 1e6)
    seen = [rows_to_place_by(source, 100, watch) for watch in (*limits, slow)]
    assert seen == [4000, 4000, 200, 200]
