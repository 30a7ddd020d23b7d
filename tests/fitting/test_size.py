"""How many pseudo-points, and where they start."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.means import ZeroMean

from cvgp.coreset import Coreset
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.residuals import model_scores
from cvgp.fitting.sample import Start
from cvgp.fitting.size import choose_size, exact_is_affordable, largest_size, needed_points, size_curve
from cvgp.fitting.start import begin_model
from cvgp.gp.kernels import make_kernel
from cvgp.objectives import solve_coreset
from tests.fitting.problems import make_source
from tests.parallel.groups import run_in_threads

H = Heuristics()


def start(lengthscale: float = 1.0, noise: float = 0.01, dims: int = 1) -> Start:
    kernel = make_kernel("rbf", dims)
    kernel.base_kernel.lengthscale = lengthscale
    return Start(kernel, ZeroMean(), noise)


def test_the_curve_has_the_density_of_a_coreset_that_is_solved_for() -> None:
    source = make_source(300, dims=2)
    learning, judging = source.data.take(slice(200)), source.data.take(slice(200, None))
    curve = size_curve(start(dims=2), learning, judging, 40, np.random.default_rng(0), H)
    assert curve.sizes[-1] == 40
    # The largest size again, by the ordinary posterior: its squared errors do not depend on the factor of variances.
    from cvgp.gp.sites import randomly_pivoted

    points = randomly_pivoted(start(dims=2).kernel, learning.x, 40, np.random.default_rng(0))
    model = start(dims=2).model(Coreset(learning.x[points], learning.y[points], np.ones(40)))
    solve_coreset(model, [learning])
    expected = model_scores(model, judging)
    torch.testing.assert_close(curve.scores[-1].squares, expected.squares, rtol=1e-3, atol=1e-6)


def test_a_rough_function_needs_more_points_than_a_smooth_one() -> None:
    smooth = choose_size(start(2.0), make_source(2000), Run.alone()).enough
    rough = choose_size(start(0.1), make_source(2000, frequency=20.0), Run.alone()).enough
    assert smooth < rough


def test_more_time_allows_more_points() -> None:
    sizes = [largest_size(seconds, H) for seconds in (1.0, 10.0, 100.0, 1e6)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 50
    assert sizes[-1] == 2000


def test_the_exact_gp_is_for_few_rows_and_fewer_beside_neighbors() -> None:
    run = Run.alone()
    assert exact_is_affordable(500, 5, run, has_neighbors=True)
    assert not exact_is_affordable(1200, 5, run, has_neighbors=True)
    assert exact_is_affordable(1200, 5, run, has_neighbors=False)
    assert not exact_is_affordable(1200, 5, Run.alone(0.5), has_neighbors=False)


def test_needed_points_leave_a_share_of_the_noise_unexplained() -> None:
    x = make_source(300).data.x.numpy()
    kernel = make_kernel("rbf", 1)
    found = needed_points(kernel, 0.1, x, 100, replace(H, smallest_coreset=1))
    assert found is not None
    assert needed_points(kernel, 1e-4, x, 100, H) is not None
    assert needed_points(kernel, 0.1, x, found - 1, replace(H, smallest_coreset=1)) is None


@pytest.mark.parametrize("init", ["kmeans", "greedy", "random"])
def test_a_model_begins_with_the_points_that_are_asked_for(init: str) -> None:
    source = make_source(200, dims=2)
    model = begin_model(start(dims=2), source, 12, Run.alone(), init=init)  # type: ignore[arg-type]
    assert model.X_c.shape == (12, 2)
    again = begin_model(start(dims=2), source, 12, Run.alone(), init=init)  # type: ignore[arg-type]
    assert torch.equal(model.X_c, again.X_c)


def test_as_many_points_as_rows_are_the_rows() -> None:
    source = make_source(30)
    model = begin_model(start(), source, 30, Run.alone())
    assert torch.equal(model.X_c, source.data.x)
    assert torch.equal(model.y_c, source.data.y)


def test_all_processes_begin_with_the_same_model() -> None:
    from cvgp.data.source import split

    whole = make_source(200, dims=2)
    models = run_in_threads(2, lambda group: begin_model(start(dims=2), split(whole, group), 8, Run.alone()))
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)
