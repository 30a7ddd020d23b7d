import pytest

from cvgp.full_data import full_bound
from cvgp.optim.result import Status
from cvgp.training.fit import (
    ADAM_STEPS,
    LBFGS_EVALUATIONS,
    LBFGS_ROWS,
    PAPER_BATCH,
    PAPER_EPOCHS,
    default_batch,
    fit_model,
    make_plan,
)
from cvgp.training.settings import Settings
from cvgp.training.watch import Watch
from tests.training.problems import NUM_ROWS, SIZE, make_model, make_source, rmse

MANY = 50 * LBFGS_ROWS


def test_few_rows_are_fitted_by_lbfgs() -> None:
    assert make_plan(Settings(), LBFGS_ROWS, SIZE).solver == "lbfgs"


def test_many_rows_are_fitted_by_adam() -> None:
    assert make_plan(Settings(), LBFGS_ROWS + 1, SIZE).solver == "adam"


def test_early_stopping_is_fitted_by_adam() -> None:
    assert make_plan(Settings(early_stopping=True), 100, SIZE).solver == "adam"


@pytest.mark.parametrize(("solver", "rows"), [("adam", 100), ("lbfgs", MANY)])
def test_named_solver_is_used_at_any_size(solver: str, rows: int) -> None:
    assert make_plan(Settings(solver=solver), rows, SIZE).solver == solver


@pytest.mark.parametrize(("solver", "limit"), [("lbfgs", LBFGS_EVALUATIONS), ("adam", ADAM_STEPS)])
def test_each_solver_has_its_own_limit(solver: str, limit: int) -> None:
    assert make_plan(Settings(solver=solver), MANY, SIZE).max_iter == limit


def test_limit_that_is_asked_for_is_kept() -> None:
    assert make_plan(Settings(max_iter=7), MANY, SIZE).max_iter == 7


@pytest.mark.parametrize(("size", "batch"), [(1, 512), (256, 512), (257, 1024), (1000, 2048)])
def test_default_batch_is_at_least_twice_the_coreset(size: int, batch: int) -> None:
    assert default_batch(size) == batch


def test_batch_that_is_asked_for_is_kept() -> None:
    assert make_plan(Settings(batch_size=33), MANY, SIZE).batch_size == 33


def test_batch_is_no_larger_than_the_data() -> None:
    assert make_plan(Settings(batch_size=5000), 100, SIZE).batch_size == 100


@pytest.mark.parametrize(("solver", "tight"), [("lbfgs", True), ("adam", False), ("paper", False)])
def test_auto_takes_the_tight_bound_with_lbfgs_alone(solver: str, tight: bool) -> None:
    assert make_plan(Settings(solver=solver), 100, SIZE).tight is tight


@pytest.mark.parametrize(("bound", "tight"), [("elbo", False), ("tight", True)])
def test_bound_is_the_one_that_is_asked_for(bound: str, tight: bool) -> None:
    assert make_plan(Settings(bound=bound), 100, SIZE).tight is tight


@pytest.mark.parametrize(("solver", "dtype"), [("lbfgs", "float64"), ("adam", "auto"), ("paper", "float32")])
def test_each_solver_has_its_own_precision(solver: str, dtype: str) -> None:
    assert make_plan(Settings(solver=solver), 100, SIZE).dtype == dtype


def test_precision_that_is_asked_for_is_kept() -> None:
    assert make_plan(Settings(solver="paper", dtype="float64"), 100, SIZE).dtype == "float64"


def test_papers_recipe_is_adam_at_a_constant_rate_on_its_batch() -> None:
    plan = make_plan(Settings(solver="paper"), 10 * PAPER_BATCH, 1000)
    assert (plan.solver, plan.learning_rate, plan.schedule_is_constant, plan.batch_size) == ("adam", 1e-3, True, 512)


def test_papers_recipe_is_limited_in_epochs() -> None:
    assert make_plan(Settings(solver="paper"), 10 * PAPER_BATCH, SIZE).max_iter == 10 * PAPER_EPOCHS


@pytest.mark.parametrize(
    ("settings", "solved"),
    [(Settings(), True), (Settings(solver="adam"), True), (Settings(early_stopping=True), False)],
    ids=["lbfgs", "adam", "early stopping"],
)
def test_sites_are_solved_at_the_end_unless_validation_chose_them(settings: Settings, solved: bool) -> None:
    assert make_plan(settings, 100, SIZE).solve_at_end is solved


@pytest.mark.parametrize("bound", ["elbo", "tight"])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_fit_learns_the_function(solver: str, bound: str) -> None:
    source = make_source()
    model = make_model(source)
    fit_model(model, source, Settings(solver=solver, bound=bound, max_iter=80), Watch())
    assert rmse(model, make_source(seed=1)) < 0.13  # the noise has a standard deviation of 0.1


@pytest.mark.parametrize("bound", ["elbo", "tight"])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_reported_bound_is_the_models(solver: str, bound: str) -> None:
    source = make_source()
    model = make_model(source)
    report = fit_model(model, source, Settings(solver=solver, bound=bound, max_iter=10), Watch())
    expected = full_bound(model, source.chunks(NUM_ROWS), NUM_ROWS, tight=bound == "tight")
    assert report.bound == pytest.approx(expected, rel=1e-12)


def test_report_names_the_solver() -> None:
    source = make_source()
    assert fit_model(make_model(source), source, Settings(max_iter=3), Watch()).solver == "lbfgs"


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_short_fit_ends_at_its_limit(solver: str) -> None:
    source = make_source()
    result = fit_model(make_model(source), source, Settings(solver=solver, max_iter=5), Watch()).result
    assert (result.status, result.num_iter) == (Status.ITERATION_LIMIT, 5)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_fit_with_a_large_tolerance_converges(solver: str) -> None:
    source = make_source()
    result = fit_model(make_model(source), source, Settings(solver=solver, max_iter=100, tol=1e6), Watch()).result
    assert result.converged


def test_fit_of_zero_tolerance_by_adam_does_not_claim_convergence() -> None:
    source = make_source()
    settings = Settings(solver="adam", max_iter=30, tol=0.0)
    assert not fit_model(make_model(source), source, settings, Watch()).result.converged
