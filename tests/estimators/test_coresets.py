"""Models with other points: growing reaches the exact GP, and pruning loses what it says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgp import CVGP, Coreset
from cvgp.data.source import MemorySource, SharedSource
from cvgp.errors import InvalidInputError
from cvgp.estimators.coresets import Updated, grow_model, prune_model
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.objectives import full_bound, solve_coreset, statistics
from tests import reference as ref
from tests.parallel.groups import ThreadGroup, run_in_threads

N, NOISE = 50, 0.04
rng = np.random.default_rng(3)
X = rng.uniform(-3.0, 3.0, size=(N, 1))
Y = np.sin(2.0 * X[:, 0]) + 0.2 * rng.normal(size=N)
NEW = np.linspace(-3.5, 3.5, 9)[:, None]
WEIGHT = rng.integers(1, 4, size=N).astype(np.float64)
KNOWN = rng.uniform(0.0, 0.1, size=N)
OTHER = np.array([[-1.0], [0.5], [2.0]])
GRID, CROWDED = np.linspace(-3.0, 3.0, 12)[:, None], np.linspace(-3.0, 3.0, 40)[:, None]


def source(y: np.ndarray = Y, weight: np.ndarray | None = None, known: np.ndarray | None = None) -> MemorySource:
    return MemorySource(*(None if a is None else torch.as_tensor(a) for a in (X, y, weight, known)))


def make_model(points: np.ndarray, outputs: tuple[int, ...] = (), *, solved: bool = False) -> CVGP:
    """A model with points [M, 1]."""
    coreset = Coreset(points, np.zeros((len(points), *outputs)), np.ones(len(points)))
    model = CVGP(coreset, make_kernel("matern32", 1), likelihood=gaussian_likelihood(NOISE))
    if solved:
        solve_coreset(model, source().chunks(N))
    return model


def grow(model: CVGP, size: int, data: MemorySource | None = None, seed: int = 0) -> Updated:
    return grow_model(model, data or source(), size, np.random.default_rng(seed))


def gathered(model: CVGP) -> Statistics:
    return statistics(model, source().chunks(N))


def bound_of(model: CVGP, data: MemorySource | None = None) -> float:
    return full_bound(model, (data or source()).chunks(N), N)


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
    grown = grow(make_model(OTHER, y.shape[1:]), 12, data)
    assert grown.bound == pytest.approx(bound_of(grown.model, data), abs=1e-4)


@given(seed=st.integers(0, 1000), sizes=st.lists(st.integers(4, N), min_size=2, max_size=4, unique=True))
@settings(max_examples=15, deadline=None)
def test_the_bound_never_falls(seed: int, sizes: list[int]) -> None:
    grown = grow(make_model(OTHER), len(OTHER))
    assert len(grown.model.X_c) == len(OTHER)
    assert grown.bound > bound_of(make_model(OTHER))
    for size in sorted(sizes):
        before, grown = grown.bound, grow(grown.model, size, seed=seed)
        assert grown.bound >= before - 1e-6 * N


def test_a_grown_model_keeps_its_points_and_knows_its_statistics() -> None:
    model = make_model(OTHER)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    grown, same, other = (grow(model, 12, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    points = grown.model.X_c.detach().numpy()
    np.testing.assert_array_equal(points[:3], OTHER)
    assert set(points[3:, 0]) <= set(X[:, 0])
    assert len(np.unique(points)) == 12
    assert torch.equal(grown.model.X_c, same.model.X_c)
    assert not torch.equal(grown.model.X_c, other.model.X_c)
    for found, expected in zip(grown.statistics, gathered(grown.model), strict=True):
        torch.testing.assert_close(found, expected)
    assert grown.bound < ref.log_marginal(ref.matern32(X, X), Y, NOISE)


def test_only_distinct_rows_that_explain_something_become_points() -> None:
    data = MemorySource(torch.as_tensor(np.repeat(X[:6], 4, axis=0)), torch.as_tensor(np.tile(Y[:8], 3)))
    grown = grow(make_model(OTHER), 9, data)
    assert len(np.unique(grown.model.X_c.detach().numpy()[3:])) == len(grown.model.X_c) - 3 == 6
    with pytest.raises(InvalidInputError, match=r"only 6 distinct rows.*at most 9 points"):
        grow(make_model(OTHER), 10, data)
    line = CVGP(Coreset([[1.0]], [0.0], [1.0]), make_kernel("linear", 1), likelihood=gaussian_likelihood(NOISE))
    assert len(grow(line, 10).model.X_c) == 1


def test_processes_that_share_the_rows_grow_as_one_does() -> None:
    def work(group: ThreadGroup) -> Updated:
        part = MemorySource(*source().data.take(slice(0, 30) if group.rank == 0 else slice(30, N)))
        return grow_model(make_model(OTHER), SharedSource(part, group), 12, np.random.default_rng(0))

    first, second = run_in_threads(2, work)
    assert torch.equal(first.model.X_c, second.model.X_c)
    assert torch.equal(first.model.y_c, second.model.y_c)
    assert first.bound == pytest.approx(bound_of(first.model), abs=1e-4)


@pytest.mark.parametrize("tolerance", [1e-3, 2.0, 30.0])
def test_pruning_loses_what_it_says_and_less_than_the_tolerance(tolerance: float) -> None:
    model = make_model(CROWDED, solved=True)
    model.set_site_noise_offset(0.05)
    solve_coreset(model, source().chunks(N))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    updated, said = prune_model(model, gathered(model), tolerance=tolerance)
    pruned = updated.model
    loss = bound_of(model) - bound_of(pruned)
    assert said == pytest.approx(loss, abs=1e-3)
    assert loss < tolerance + 1e-3
    kept = pruned.X_c.detach().numpy()[:, 0]
    assert set(kept) <= set(CROWDED[:, 0])
    assert (np.diff(kept) > 0).all()
    assert pruned.site_noise_offset.item() == 0.05
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    for found, expected in zip(updated.statistics, gathered(pruned), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_pruning_drops_duplicates_and_never_the_last_point() -> None:
    model = make_model(np.repeat(GRID, 2, axis=0), solved=True)
    pruned = prune_model(model, gathered(model), tolerance=0.5)[0].model.X_c.detach().numpy()
    assert len(np.unique(pruned.round(9))) == len(pruned) <= len(GRID)
    assert len(prune_model(model, gathered(model), tolerance=math.inf)[0].model.X_c) == 1
