import pytest

from cvgp.training.plan import (
    BRIEF_EVALUATIONS,
    BRIEF_ROWS,
    Settings,
    evaluation_seconds,
    exact_seconds,
    fit_seconds,
    make_plan,
    step_seconds,
)


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


@pytest.mark.parametrize("rows", [3500, 20_000, BRIEF_ROWS])
def test_brief_training_takes_a_few_evaluations_on_all_rows(rows: int) -> None:
    plan = make_plan(Settings(is_brief=True), rows, 400, 10)
    assert plan.solver == "lbfgs"
    assert plan.tight
    assert BRIEF_EVALUATIONS[0] <= plan.max_iter <= BRIEF_EVALUATIONS[1]


def test_brief_training_of_very_many_rows_or_within_a_limit_takes_adam() -> None:
    assert make_plan(Settings(is_brief=True), BRIEF_ROWS + 1, 400, 10).solver == "adam"
    assert make_plan(Settings(is_brief=True, max_time=60.0), 20_000, 400, 10).solver == "adam"
