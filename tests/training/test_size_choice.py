import math

import numpy as np
import pytest
import torch
from gpytorch.means import ZeroMean

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.gp.kernels import make_kernel
from cvgp.objectives.full_batch import solve_coreset
from cvgp.training import size_choice
from cvgp.training.candidates import Start
from cvgp.training.densities import mean_density
from cvgp.training.monitor import Watch
from cvgp.training.size import LARGEST_BY_DEFAULT, SMALLEST, affordable
from cvgp.training.size_choice import MARGIN, SizeCurve, Sized, choose_size, held_out_curve, rows_beside
from cvgp.training.start import begin_model, starting_kernel


def make_rows(count: int = 1000, frequency: float = 1.0, noise: float = 0.1) -> Rows[torch.Tensor]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, (count, 1))
    y = np.sin(frequency * x[:, 0]) + noise * rng.normal(size=count)
    return Rows(torch.as_tensor(x), torch.as_tensor(y))


def start(lengthscale: float = 0.5, noise: float = 0.01) -> Start:
    kernel = make_kernel("matern32", 1)
    kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return Start(kernel, ZeroMean(), noise, -math.inf)


def curve(rows: Rows[torch.Tensor], limit: int = 100, **of_start: float) -> SizeCurve:
    parts = rows.take(slice(200, None)), rows.take(slice(200))
    return held_out_curve(start(**of_start), *parts, limit, np.random.default_rng(0))


def choose(
    rows: Rows[torch.Tensor], first: Start, *, max_time: float | None = None, may_stay_untrained: bool = False
) -> Sized:
    rng, watch = np.random.default_rng(0), Watch(max_time)
    return choose_size(first, MemorySource(*rows), rng, watch, may_stay_untrained=may_stay_untrained)


def made_up(losses: list[float], spread: float = 0.0) -> SizeCurve:
    """A curve whose densities are behind the best by so much, with a difference between rows."""
    signs = torch.tensor([1.0, -1.0]).repeat(50)
    densities = torch.stack([-loss + (spread * signs if loss else 0.0 * signs) for loss in losses])
    rows = Rows(torch.zeros(100, 1), torch.zeros(100))
    return SizeCurve(start(), [2**i for i in range(len(losses))], densities, rows)


def test_fewest_points_within_the_margin_are_enough() -> None:
    assert made_up([5 * MARGIN, 2 * MARGIN, 0.9 * MARGIN, 0.0]).enough == 2


def test_points_that_are_worse_only_by_chance_are_enough() -> None:
    assert made_up([4 * MARGIN, 2 * MARGIN, 0.0], spread=0.5).enough == 0


def test_densities_of_the_curve_are_those_of_the_coreset_that_is_solved_for() -> None:
    rows = make_rows()
    found = curve(rows, limit=40)
    sized = Sized(found.start, 40, False)
    source = MemorySource(*rows.take(slice(200, None)))
    points = size_choice.untrained_points(sized, source, np.random.default_rng(0))
    model = size_choice.CVGP(points, found.start.kernel, mean=ZeroMean(), likelihood=found.start.likelihood())
    solve_coreset(model, [source.data])
    # The curve's variances are calibrated, which changes next to nothing where kernel and noise are right.
    assert found.mean(len(found.sizes) - 1) == pytest.approx(mean_density(model, rows.take(slice(200))), abs=0.02)


def test_function_that_varies_more_gets_more_points() -> None:
    sizes = [choose(make_rows(frequency=f), start(1.0 / f)).size for f in (1.0, 10.0, 60.0)]
    assert sizes == sorted(set(sizes))


def test_noise_that_hides_a_function_leaves_few_points() -> None:
    assert choose(make_rows(noise=10.0), start(0.1, noise=100.0)).size == SMALLEST


def test_size_is_at_most_what_is_trained_by_default() -> None:
    rows = make_rows(2000, frequency=500.0, noise=0.01)
    assert choose(rows, start(0.002, 1e-4)).size <= LARGEST_BY_DEFAULT


def test_time_limit_caps_the_size() -> None:
    rows = make_rows(2000, frequency=500.0, noise=0.01)
    assert choose(rows, start(0.002, 1e-4), max_time=0.1).size <= affordable(0.1) < LARGEST_BY_DEFAULT


def test_many_points_that_are_worth_it_stay_untrained_where_they_may() -> None:
    rows = make_rows(2000, frequency=250.0, noise=0.01)
    sized = choose(rows, start(0.01, 1e-4), may_stay_untrained=True)
    assert (sized.size > LARGEST_BY_DEFAULT, sized.is_trained) == (True, False)


def test_kernel_of_the_rows_takes_the_place_of_one_that_is_too_smooth() -> None:
    rows = make_rows(frequency=60.0)
    smooth, by_rows = start(3.0, 0.5), start(1 / 60)
    sized = choose(rows, smooth._replace(by_rows=by_rows), may_stay_untrained=True)
    assert sized.start is by_rows


def test_size_is_no_larger_than_the_rank_of_the_kernel() -> None:
    linear = Start(make_kernel("linear", 1), ZeroMean(), 0.01, -math.inf)
    assert choose(make_rows(), linear).size == 1


def test_single_row_gets_a_single_point() -> None:
    assert choose(make_rows(1), start()).size == 1


def test_choice_is_in_the_history() -> None:
    watch = Watch()
    sized = choose_size(start(), MemorySource(*make_rows()), np.random.default_rng(0), watch, may_stay_untrained=False)
    (event,) = [row["event"] for row in watch.history if row["phase"] == "start size"]
    assert event.startswith(f"{sized.size} points: ")


def test_rows_beside_the_points_are_all_others() -> None:
    rows = make_rows(20)
    found = rows_beside(rows, rows.x[5:9])
    assert torch.equal(found.x, torch.cat([rows.x[:5], rows.x[9:]]))


def test_points_that_stay_untrained_are_rows_without_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_choice, "largest_size", lambda max_time: 16)
    rows = make_rows(600, frequency=15.0, noise=0.01)
    rng, kernel = np.random.default_rng(0), starting_kernel("matern32", 1, ard=True)
    model = begin_model(MemorySource(*rows), kernel, ZeroMean(), rng, Watch(), size=None, may_stay_untrained=True)
    assert not model.X_c.requires_grad
    assert torch.isin(model.X_c, rows.x).all()


def test_points_too_few_for_a_kernel_are_not_blamed_for_its_small_noise() -> None:
    found = curve(make_rows(frequency=60.0, noise=0.01), lengthscale=0.1, noise=1e-4)
    assert found.mean(0) > -4.0  # minus 40 without
