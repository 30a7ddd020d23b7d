import pytest

from cvgp.training.plan import evaluation_seconds, exact_seconds, fit_seconds, step_seconds


@pytest.mark.parametrize(("size", "batch"), [(50, 512), (400, 1024), (1600, 4096)])
def test_steps_cost_more_with_more_points_and_larger_batches(size: int, batch: int) -> None:
    now = step_seconds(size, batch)
    assert now < min(step_seconds(2 * size, batch), step_seconds(size, 2 * batch))


def test_large_steps_grow_with_the_cube_of_the_points() -> None:
    assert step_seconds(40_000, 512) / step_seconds(20_000, 512) == pytest.approx(8.0, rel=0.05)


def test_evaluations_grow_linearly_with_the_rows() -> None:
    assert evaluation_seconds(30_000, 200, 5) == pytest.approx(3.0 * evaluation_seconds(10_000, 200, 5))


def test_exact_evaluations_grow_with_the_cube_of_the_rows() -> None:
    assert exact_seconds(2000, 0) == pytest.approx(8.0 * exact_seconds(1000, 0))


def test_columns_add_the_same_cost_to_each_pair_of_rows_and_points() -> None:
    def added(num_dims: int) -> float:
        return evaluation_seconds(3000, 200, num_dims) - evaluation_seconds(3000, 200, 0)

    def added_exactly(num_dims: int) -> float:
        return exact_seconds(2000, num_dims) - exact_seconds(2000, 0)

    assert added(500) == pytest.approx(10.0 * added(50)) != 0.0
    assert added_exactly(500) == pytest.approx(10.0 * added_exactly(50)) != 0.0


def test_default_fit_takes_its_steps_at_the_default_batch() -> None:
    assert fit_seconds(200) == pytest.approx(3000 * step_seconds(200, 512))
