import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgp import CVGP, Coreset
from cvgp.data.arrays import MemorySource
from cvgp.data.split import SharedSource
from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.objectives.full_batch import full_bound, statistics
from cvgp.training.grow import Grown, grow_model
from tests import reference as ref
from tests.parallel.groups import ThreadGroup, run_in_threads

N, NOISE = 50, 0.04
rng = np.random.default_rng(3)
X = rng.uniform(-3.0, 3.0, size=(N, 1))
Y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=N)
NEW = np.linspace(-3.5, 3.5, 9)[:, None]
WEIGHT = rng.integers(1, 4, size=N).astype(np.float64)
KNOWN = rng.uniform(0.0, 0.1, size=N)


def source(y: np.ndarray = Y, weight: np.ndarray | None = None, known: np.ndarray | None = None) -> MemorySource:
    arrays = (X, y, weight, known)
    return MemorySource(*(None if a is None else torch.as_tensor(a) for a in arrays))


def make_model(points: np.ndarray, outputs: tuple[int, ...] = ()) -> CVGP:
    """A model with points [M, 1] whose sites have yet to be solved for."""
    coreset = Coreset(points, np.zeros((len(points), *outputs)), np.ones(len(points)))
    return CVGP(coreset, make_kernel("matern32", 1), likelihood=gaussian_likelihood(NOISE))


def grow(model: CVGP, size: int, data: MemorySource | None = None, seed: int = 0) -> Grown:
    return grow_model(model, data or source(), size, np.random.default_rng(seed))


OTHER = np.array([[-1.0], [0.5], [2.0]])
CASES = {
    "rows": (source(), Y, np.full(N, NOISE)),
    "weights": (source(weight=WEIGHT), Y, NOISE / WEIGHT),
    "known noise": (source(known=KNOWN), Y, NOISE + KNOWN),
    "two outputs": (source(np.stack([Y, -2.0 * Y], 1)), np.stack([Y, -2.0 * Y], 1), np.full(N, NOISE)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("start", [X[:5], OTHER], ids=["from rows", "from other points"])
def test_all_rows_as_points_are_the_exact_gp(case: str, start: np.ndarray) -> None:
    data, y, noise = CASES[case]
    size = N if start is not OTHER else N + len(OTHER)
    grown = grow(make_model(start, y.shape[1:]), size, data)
    K, K_s, K_ss = (ref.matern32(a, b) for a, b in ((X, X), (X, NEW), (NEW, NEW)))
    outputs = [ref.exact_gp_predict(K, K_s, K_ss, column, noise) for column in y.reshape(N, -1).T]
    expected = np.stack([mean for mean, _ in outputs], 1).reshape(len(NEW), *y.shape[1:])
    prediction = grown.model.posterior(torch.as_tensor(NEW))
    np.testing.assert_allclose(prediction.mean.detach(), expected, atol=1e-6)
    np.testing.assert_allclose(
        prediction.variance.detach().reshape(len(NEW), -1)[:, 0], np.diag(outputs[0][1]), atol=1e-6
    )


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(4, N), min_size=2, max_size=4, unique=True))
@settings(max_examples=25, deadline=None)
def test_bound_never_falls(seed: int, sizes: list[int]) -> None:
    grown = grow(make_model(OTHER), len(OTHER))
    for size in sorted(sizes):
        before, grown = grown.bound, grow(grown.model, size, seed=seed)
        assert grown.bound >= before - 1e-6 * N


@pytest.mark.parametrize("case", CASES)
def test_bound_is_that_of_the_model_on_all_rows(case: str) -> None:
    data, y, _ = CASES[case]
    grown = grow(make_model(OTHER, y.shape[1:]), 12, data)
    assert grown.bound == pytest.approx(full_bound(grown.model, data.chunks(N), N), abs=1e-4)


def test_tighter_bound_is_between_the_papers_and_the_evidence() -> None:
    grown = grow(make_model(OTHER), 6)
    assert grown.bound < grown.tight_bound(source()) < ref.log_marginal(ref.matern32(X, X), Y, NOISE)


def test_statistics_are_those_at_the_new_points() -> None:
    grown = grow(make_model(OTHER), 12)
    for found, expected in zip(grown.statistics, statistics(grown.model, source().chunks(N)), strict=True):
        torch.testing.assert_close(found, expected)


def test_present_points_stay_and_new_ones_are_rows() -> None:
    points = grow(make_model(OTHER), 12).model.X_c.detach().numpy()
    np.testing.assert_array_equal(points[:3], OTHER)
    assert set(points[3:, 0]) <= set(X[:, 0])
    assert len(np.unique(points)) == 12


def test_present_size_solves_for_the_present_points() -> None:
    grown = grow(make_model(OTHER), len(OTHER))
    assert grown.added == 0
    assert grown.bound > full_bound(make_model(OTHER), source().chunks(N), N)


def test_model_that_grows_stays_as_it_is() -> None:
    model = make_model(OTHER)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grow(model, 12)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_repeated_inputs_become_one_point() -> None:
    data = MemorySource(torch.as_tensor(np.repeat(X[:6], 4, axis=0)), torch.as_tensor(np.tile(Y[:8], 3)))
    grown = grow(make_model(OTHER), 9, data)
    assert grown.added == len(np.unique(grown.model.X_c.detach().numpy()[3:])) == 6


def test_more_points_than_distinct_rows_are_refused() -> None:
    data = MemorySource(torch.as_tensor(np.repeat(X[:6], 4, axis=0)), torch.as_tensor(np.tile(Y[:8], 3)))
    with pytest.raises(InvalidInputError, match=r"only 6 distinct rows.*at most 9 points"):
        grow(make_model(OTHER), 10, data)


def test_fewer_points_are_added_where_nothing_is_left_to_explain() -> None:
    model = CVGP(Coreset([[1.0]], [0.0], [1.0]), make_kernel("linear", 1), likelihood=gaussian_likelihood(NOISE))
    assert grow(model, 10).added == 0


def test_same_generator_grows_the_same() -> None:
    first, second, other = (grow(make_model(OTHER), 12, seed=seed).model.X_c for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_processes_that_share_the_rows_grow_as_one_does() -> None:
    def work(group: ThreadGroup) -> Grown:
        part = source().part(*((0, 30) if group.rank == 0 else (30, N)))
        return grow_model(make_model(OTHER), SharedSource(part, group), 12, np.random.default_rng(0))

    first, second = run_in_threads(2, work)
    assert torch.equal(first.model.X_c, second.model.X_c)
    assert torch.equal(first.model.y_c, second.model.y_c)
    assert first.bound == pytest.approx(full_bound(first.model, source().chunks(N), N), abs=1e-4)
