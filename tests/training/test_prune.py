import math

import numpy as np
import pytest
import torch

from cvgp import CVGP, Coreset
from cvgp.data.arrays import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.objectives.full_batch import full_bound, solve_coreset, statistics
from cvgp.training.prune import prune_model, restrict, shrink_model

N = 80
rng = np.random.default_rng(8)
X = torch.tensor(rng.uniform(-3.0, 3.0, size=(N, 1)))
Y = torch.sin(2.0 * X[:, 0]) + 0.1 * torch.tensor(rng.normal(size=N))
DATA = MemorySource(X, Y)


def make_model(points: np.ndarray, offset: float = 0.0) -> CVGP:
    """A model whose sites are solved for, at these pseudo-inputs [M]."""
    coreset = Coreset(points[:, None], np.zeros(len(points)), np.full(len(points), N / len(points)))
    model = CVGP(coreset, make_kernel("matern32", 1), likelihood=gaussian_likelihood(0.01))
    model.set_site_noise_offset(offset)
    solve_coreset(model, DATA.chunks(N))
    return model


def gathered(model: CVGP) -> Statistics:
    return statistics(model, DATA.chunks(N))


GRID = np.linspace(-3.0, 3.0, 12)
CROWDED = np.linspace(-3.0, 3.0, 40)


@pytest.mark.parametrize("kept", [[0], [1, 4, 7, 11], list(range(12))], ids=["one point", "some points", "all points"])
def test_restricted_statistics_are_those_gathered_at_the_kept_points(kept: list[int]) -> None:
    model, smaller = make_model(GRID), make_model(GRID[kept])
    found = restrict(model.jittered_covariance().detach(), gathered(model), torch.tensor(kept))
    for part, expected in zip(found, gathered(smaller), strict=True):
        torch.testing.assert_close(part, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("tolerance", [1e-3, 0.1, 2.0, 30.0])
def test_bound_falls_by_less_than_the_tolerance(tolerance: float) -> None:
    model = make_model(CROWDED)
    pruned = prune_model(model, gathered(model), tolerance)
    before, after = (full_bound(m, DATA.chunks(N), N) for m in (model, pruned.model))
    assert before - after < tolerance + 1e-3


def test_reported_loss_is_that_of_the_bound() -> None:
    model = make_model(CROWDED)
    pruned = prune_model(model, gathered(model), 2.0)
    before, after = (full_bound(m, DATA.chunks(N), N) for m in (model, pruned.model))
    assert pruned.loss == pytest.approx(before - after, abs=1e-3)


def test_reported_number_is_that_of_the_points_that_went() -> None:
    model = make_model(CROWDED)
    pruned = prune_model(model, gathered(model), 2.0)
    assert 0 < pruned.dropped == len(model.X_c) - len(pruned.model.X_c)


def test_larger_tolerance_drops_no_fewer_points() -> None:
    model = make_model(CROWDED)
    dropped = [prune_model(model, gathered(model), tolerance).dropped for tolerance in (0.01, 1.0, 100.0)]
    assert dropped == sorted(dropped)


def test_points_that_are_needed_stay() -> None:
    model = make_model(GRID)
    assert prune_model(model, gathered(model), 1e-3).dropped == 0


def test_duplicates_of_points_go() -> None:
    model = make_model(np.repeat(GRID, 2))
    pruned = prune_model(model, gathered(model), 0.5)
    assert len(np.unique(pruned.model.X_c.detach().numpy().round(9))) == len(GRID) == len(pruned.model.X_c)


def test_one_point_always_stays() -> None:
    model = make_model(GRID)
    assert len(prune_model(model, gathered(model), math.inf).model.X_c) == 1


def test_kept_points_stay_where_they_are_and_in_order() -> None:
    model = make_model(CROWDED)
    kept = prune_model(model, gathered(model), 2.0).model.X_c.detach().numpy()[:, 0]
    assert set(kept) <= set(CROWDED)
    assert (np.diff(kept) > 0).all()


def test_statistics_are_those_of_the_smaller_model() -> None:
    model = make_model(CROWDED)
    pruned = prune_model(model, gathered(model), 2.0)
    for found, expected in zip(pruned.statistics, gathered(pruned.model), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


def test_predictions_stay_close() -> None:
    model = make_model(CROWDED)
    pruned = prune_model(model, gathered(model), 0.1)
    before, after = model.posterior(X), pruned.model.posterior(X)
    torch.testing.assert_close(after.mean, before.mean, rtol=0.0, atol=0.02)
    torch.testing.assert_close(after.stddev, before.stddev, rtol=0.0, atol=0.02)


def test_known_noise_of_the_sites_is_kept() -> None:
    model = make_model(CROWDED, offset=0.05)
    pruned = prune_model(model, gathered(model), 0.1)
    assert pruned.model.site_noise_offset.item() == 0.05


def test_model_that_is_pruned_stays_as_it_is() -> None:
    model = make_model(CROWDED)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prune_model(model, gathered(model), 2.0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("tolerance", [-1.0, math.nan])
def test_tolerance_that_is_no_number_of_nats_is_refused(tolerance: float) -> None:
    model = make_model(GRID)
    with pytest.raises(InvalidInputError, match="at least 0"):
        prune_model(model, gathered(model), tolerance)


@pytest.mark.parametrize("size", [1, 5, 40])
def test_shrunk_model_has_the_size_asked_for_and_the_loss_it_reports(size: int) -> None:
    model = make_model(CROWDED)
    shrunk = shrink_model(model, gathered(model), size)
    before, after = (full_bound(m, DATA.chunks(N), N) for m in (model, shrunk.model))
    assert len(shrunk.model.X_c) == 40 - shrunk.dropped == size
    assert shrunk.loss == pytest.approx(before - after, abs=1e-2)


def test_smaller_sizes_lose_no_less() -> None:
    model = make_model(CROWDED)
    losses = [shrink_model(model, gathered(model), size).loss for size in (30, 12, 4)]
    assert losses == sorted(losses)
