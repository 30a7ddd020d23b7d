from pathlib import Path

import numpy as np
import pytest
import torch

from cvgp import CVGP
from cvgp.data.arrays import MemorySource
from cvgp.errors import CVGPWarning
from cvgp.objectives.full_batch import full_bound, statistics_and_gain
from cvgp.optim.stopping import Result, Status
from cvgp.training import fit
from cvgp.training import plan as plan_module
from cvgp.training.fit import fit_model
from cvgp.training.monitor import FitEvent, Watch
from cvgp.training.plan import (
    ADAM_STEPS,
    FEWEST_POLISH_EVALUATIONS,
    LBFGS_EVALUATIONS,
    LBFGS_ROWS,
    LONGEST_GROWTH,
    MOST_ADAM_STEPS,
    PAPER_BATCH,
    PAPER_EPOCHS,
    POLISH_EVALUATIONS,
    POLISH_SECONDS,
    TIMED_ADAM_STEPS,
    USUAL_ROWS,
    Settings,
    default_batch,
    evaluation_seconds,
    make_plan,
    polish_evaluations,
)
from tests.training.problems import NUM_ROWS, SIZE, make_model, make_source, rmse

MANY = 50 * LBFGS_ROWS
DIMS = 10


def test_few_rows_are_fitted_by_lbfgs() -> None:
    assert make_plan(Settings(), LBFGS_ROWS, SIZE, DIMS).solver == "lbfgs"


def test_many_rows_are_fitted_by_adam() -> None:
    assert make_plan(Settings(), LBFGS_ROWS + 1, SIZE, DIMS).solver == "adam"


def test_early_stopping_is_fitted_by_adam() -> None:
    assert make_plan(Settings(early_stopping=True), 100, SIZE, DIMS).solver == "adam"


@pytest.mark.parametrize(("solver", "rows"), [("adam", 100), ("lbfgs", MANY)])
def test_named_solver_is_used_at_any_size(solver: str, rows: int) -> None:
    assert make_plan(Settings(solver=solver), rows, SIZE, DIMS).solver == solver


@pytest.mark.parametrize(("solver", "limit"), [("lbfgs", LBFGS_EVALUATIONS), ("adam", ADAM_STEPS)])
def test_each_solver_has_its_own_limit(solver: str, limit: int) -> None:
    assert make_plan(Settings(solver=solver), USUAL_ROWS, SIZE, DIMS).max_iter == limit


def test_limit_that_is_asked_for_is_kept() -> None:
    assert make_plan(Settings(max_iter=7), MANY, SIZE, DIMS).max_iter == 7


@pytest.mark.parametrize(("size", "batch"), [(1, 512), (256, 512), (257, 1024), (1000, 2048)])
def test_default_batch_is_at_least_twice_the_coreset(size: int, batch: int) -> None:
    assert default_batch(size) == batch


def test_batch_that_is_asked_for_is_kept() -> None:
    assert make_plan(Settings(batch_size=33), MANY, SIZE, DIMS).batch_size == 33


def test_batch_is_no_larger_than_the_data() -> None:
    assert make_plan(Settings(batch_size=5000), 100, SIZE, DIMS).batch_size == 100


@pytest.mark.parametrize(("solver", "tight"), [("lbfgs", True), ("adam", False), ("paper", False)])
def test_auto_takes_the_tight_bound_with_lbfgs_alone(solver: str, tight: bool) -> None:
    assert make_plan(Settings(solver=solver), 100, SIZE, DIMS).tight is tight


@pytest.mark.parametrize(("bound", "tight"), [("elbo", False), ("tight", True)])
def test_bound_is_the_one_that_is_asked_for(bound: str, tight: bool) -> None:
    plan = make_plan(Settings(bound=bound, power=0.3), 100, SIZE, DIMS)
    assert (plan.tight, plan.power) == (tight, None)


@pytest.mark.parametrize(("solver", "rows"), [("lbfgs", 100), ("adam", 100), ("auto", LBFGS_ROWS + 1)])
def test_power_ep_that_is_asked_for_is_all_that_is_maximised(solver: str, rows: int) -> None:
    plan = make_plan(Settings(solver=solver, bound="power", power=0.3), rows, SIZE, DIMS)
    assert (plan.power, plan.tight, plan.polish_tight) == (0.3, False, False)


@pytest.mark.parametrize(("solver", "dtype"), [("lbfgs", "float64"), ("adam", "auto"), ("paper", "float32")])
def test_each_solver_has_its_own_precision(solver: str, dtype: str) -> None:
    assert make_plan(Settings(solver=solver), 100, SIZE, DIMS).dtype == dtype


def test_precision_that_is_asked_for_is_kept() -> None:
    assert make_plan(Settings(solver="paper", dtype="float64"), 100, SIZE, DIMS).dtype == "float64"


def test_papers_recipe_is_adam_at_a_constant_rate_on_its_batch() -> None:
    plan = make_plan(Settings(solver="paper"), 10 * PAPER_BATCH, 1000, DIMS)
    assert (plan.solver, plan.learning_rate, plan.schedule_is_constant, plan.batch_size) == ("adam", 1e-3, True, 512)


def test_papers_recipe_is_limited_in_epochs() -> None:
    assert make_plan(Settings(solver="paper"), 10 * PAPER_BATCH, SIZE, DIMS).max_iter == 10 * PAPER_EPOCHS


@pytest.mark.parametrize(
    ("settings", "solved"),
    [(Settings(), True), (Settings(solver="adam"), True), (Settings(early_stopping=True), False)],
    ids=["lbfgs", "adam", "early stopping"],
)
def test_sites_are_solved_at_the_end_unless_validation_chose_them(settings: Settings, solved: bool) -> None:
    assert make_plan(settings, 100, SIZE, DIMS).solve_at_end is solved


@pytest.mark.parametrize("bound", ["elbo", "tight", "power"])
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
    # Sites that were solved for know their bound up to the jitter, which they absorb.
    assert report.bound == pytest.approx(expected, rel=1e-4)
    assert report.bound <= expected + 1e-7


@pytest.mark.parametrize(
    ("solver", "early_stopping"),
    [("lbfgs", False), ("adam", False), ("adam", True)],
    ids=["lbfgs", "adam", "adam, not solved"],
)
def test_reported_estimate_by_power_ep_is_the_models(solver: str, early_stopping: bool) -> None:
    source = make_source()
    model = make_model(source)
    settings = Settings(solver=solver, bound="power", power=0.7, max_iter=10, early_stopping=early_stopping)
    report = fit_model(model, source, settings, Watch(), validation=source if early_stopping else None)
    expected = full_bound(model, source.chunks(NUM_ROWS), NUM_ROWS, power=0.7)
    assert report.bound == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_coreset_of_a_fit_by_power_ep_is_the_best_for_it(solver: str) -> None:
    source = make_source()
    model = make_model(source, size=4)
    report = fit_model(model, source, Settings(solver=solver, bound="power", power=0.7, max_iter=10), Watch())
    expected_statistics, _ = statistics_and_gain(model, source.chunks(64), power=0.7)
    for found, expected in zip(report.statistics, expected_statistics, strict=True):
        torch.testing.assert_close(found, expected)
    predictions = model.posterior(source.data.x).mean
    assert model.adopt_optimum(report.statistics).item() == pytest.approx(report.bound, rel=1e-6)
    torch.testing.assert_close(model.posterior(source.data.x).mean, predictions, rtol=1e-6, atol=1e-6)


def test_fit_by_a_small_power_is_that_of_the_bound_of_titsias() -> None:
    # By L-BFGS, whose bound="elbo" is Titsias' bound of 2009.
    source = make_source()
    limit, bound = make_model(source), make_model(source)
    reports = [
        fit_model(limit, source, Settings(bound="power", power=1e-9, max_iter=15), Watch()),
        fit_model(bound, source, Settings(bound="elbo", max_iter=15), Watch()),
    ]
    assert reports[0].bound == pytest.approx(reports[1].bound, rel=1e-5)
    torch.testing.assert_close(
        limit.posterior(source.data.x).mean, bound.posterior(source.data.x).mean, rtol=1e-3, atol=1e-3
    )


def test_power_changes_what_is_learned() -> None:
    source = make_source()
    models = [make_model(source, size=4) for _ in range(2)]
    for model, power in zip(models, (0.2, 1.0), strict=True):
        fit_model(model, source, Settings(bound="power", power=power, max_iter=15), Watch())
    assert models[0].noise.item() > models[1].noise.item()


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


def test_lbfgs_follows_adam_while_its_passes_are_affordable() -> None:
    plan = make_plan(Settings(), LBFGS_ROWS + 1, 200, DIMS)
    assert (plan.polish, plan.polish_tight, plan.tight) == (POLISH_EVALUATIONS, True, False)


@pytest.mark.parametrize("rows", [5_000, 20_000, 60_000, 200_000])
def test_passes_over_more_rows_are_fewer_or_none(rows: int) -> None:
    passes = polish_evaluations(rows, 200, DIMS)
    assert passes == 0 or FEWEST_POLISH_EVALUATIONS <= passes <= POLISH_EVALUATIONS
    growth = min(max(rows / USUAL_ROWS, 1.0) ** 0.5, LONGEST_GROWTH)
    assert passes * evaluation_seconds(rows, 200, DIMS) <= POLISH_SECONDS * growth
    assert polish_evaluations(2 * rows, 200, DIMS) <= passes


@pytest.mark.parametrize(
    "settings",
    [Settings(solver="adam"), Settings(max_iter=100), Settings(early_stopping=True), Settings(solver="paper")],
    ids=["adam", "max_iter", "early stopping", "paper"],
)
def test_nothing_follows_adam_where_the_user_says_what_ends_the_fit(settings: Settings) -> None:
    assert make_plan(settings, LBFGS_ROWS + 1, 200, DIMS).polish == 0


def test_bound_that_is_asked_for_is_used_by_both_solvers() -> None:
    plan = make_plan(Settings(bound="elbo"), LBFGS_ROWS + 1, 200, DIMS)
    assert (plan.tight, plan.polish_tight) == (False, False)


@pytest.fixture
def short_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam and then L-BFGS on the small problem, for a few steps each."""
    monkeypatch.setattr(plan_module, "LBFGS_ROWS", 10)
    monkeypatch.setattr(plan_module, "ADAM_STEPS", 60)
    monkeypatch.setattr(plan_module, "POLISH_EVALUATIONS", 25)


@pytest.mark.usefixtures("short_phases")
def test_lbfgs_improves_on_what_adam_found() -> None:
    source, watch = make_source(), Watch()
    model = make_model(source)
    report = fit_model(model, source, Settings(bound="elbo"), watch)
    adam = make_model(source)
    alone = fit_model(adam, source, Settings(bound="elbo", solver="adam", max_iter=60), Watch())
    assert report.solver == "adam+lbfgs"
    assert report.bound > alone.bound
    assert {row["phase"] for row in watch.history} == {"adam", "lbfgs"}
    assert 60 < report.result.num_iter <= 85


@pytest.mark.usefixtures("short_phases")
@pytest.mark.parametrize(("phase", "iteration"), [("adam", 50), ("lbfgs", 7)])
def test_run_that_was_stopped_in_either_phase_resumes_to_the_same_model(
    phase: str, iteration: int, tmp_path: Path
) -> None:
    source = make_source()
    whole = make_model(source)
    fit_model(whole, source, Settings(), Watch())

    class Kill(BaseException):
        pass

    def kill(event: FitEvent) -> None:
        if (event.phase, event.iteration) == (phase, iteration):
            raise Kill

    with pytest.raises(Kill):
        fit_model(make_model(source), source, Settings(), Watch(callbacks=[kill]), checkpoint_dir=str(tmp_path))
    resumed = make_model(source)
    fit_model(resumed, source, Settings(), Watch(), checkpoint_dir=str(tmp_path))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(resumed.parameters(), whole.parameters(), strict=True))


@pytest.mark.usefixtures("short_phases")
def test_stop_in_the_first_phase_ends_the_fit() -> None:
    source, watch = make_source(), Watch(callbacks=[lambda event: event.iteration == 5])
    report = fit_model(make_model(source), source, Settings(), watch)
    assert (report.solver, report.result.status) == ("adam", Status.INTERRUPTED)


@pytest.mark.usefixtures("short_phases")
def test_passes_go_on_while_a_time_limit_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "LONGEST_POLISH", 40)
    source, settings = make_source(), Settings(bound="elbo", tol=0.0)
    short, long = (fit_model(make_model(source), source, settings, Watch(limit)) for limit in (None, 600.0))
    assert short.result.num_iter <= 60 + 25 < long.result.num_iter <= 60 + 40
    assert long.bound > short.bound


@pytest.mark.usefixtures("short_phases")
def test_time_is_shared_between_the_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_module, "ADAM_STEPS", 20_000)
    source, watch = make_source(), Watch(max_time=1.0)
    fit_model(make_model(source), source, Settings(), watch)
    ends = {row["phase"]: row["seconds"] for row in watch.history}
    assert 0.3 < ends["adam"] < 0.9  # a busy machine overruns
    assert ends["lbfgs"] > ends["adam"]


@pytest.mark.parametrize("power", [None, 0.5], ids=["bound", "power"])
def test_a_close_without_time_reads_a_sample_and_says_so(power: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvgp.training.fit.CHUNK_ROWS", 32)
    monkeypatch.setattr("cvgp.training.fit.plan_close", lambda *_: 80)
    source = make_source()
    model = make_model(source)
    settings = Settings(solver="lbfgs", bound="auto" if power is None else "power", max_iter=20, max_time=100.0)
    with pytest.warns(CVGPWarning, match="time to read 80 of 100 rows"):
        report = fit_model(model, source, settings, Watch(100.0))
    assert rmse(model, make_source(seed=1)) < 0.13
    whole, _ = statistics_and_gain(model, source.chunks(NUM_ROWS), power=power)
    assert report.statistics.kk.item() == pytest.approx(whole.kk.item(), rel=1e-6 if power is None else 0.05)
    assert report.statistics.yy.item() == pytest.approx(whole.yy.item(), rel=0.2)


def test_the_time_of_the_close_is_kept_back_and_rows_are_left_out_if_need_be() -> None:
    source = make_source()
    watch = Watch(1000.0)
    assert fit.plan_close(make_model(source), source, watch) is None
    assert 0.0 < watch._kept_back < 100.0
    hurried = Watch(1e-9)
    assert fit.plan_close(make_model(source), make_source(5000), hurried) == fit.CHUNK_ROWS


def test_gain_of_the_tight_bound_comes_with_the_statistics() -> None:
    source = make_source()
    model = make_model(source)
    found, gain = statistics_and_gain(model, source.chunks(32))
    bound = model.adopt_optimum(found).item()
    assert bound + gain == pytest.approx(full_bound(model, source.chunks(32), NUM_ROWS, tight=True), rel=1e-6)
    assert gain > 0.0


def test_more_rows_get_more_steps_and_a_time_limit_allows_more() -> None:
    steps = [make_plan(Settings(), rows, 200, DIMS).max_iter for rows in (5_000, 20_000, 80_000, 10**7)]
    assert steps == [ADAM_STEPS, ADAM_STEPS, 2 * ADAM_STEPS, MOST_ADAM_STEPS]
    assert make_plan(Settings(max_time=60.0), 5_000, 200, DIMS).max_iter == TIMED_ADAM_STEPS


def test_a_start_that_training_made_worse_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(model: CVGP, *_: object) -> Result:
        with torch.no_grad():
            model.X_c.add_(10.0)
        return Result(Status.ITERATION_LIMIT, 0.0, 1)

    monkeypatch.setattr(fit, "fit_adam", spoil)
    source = make_source()
    model = make_model(source)
    before = model.X_c.detach().clone()
    with pytest.warns(CVGPWarning, match="went back to its start"):
        fit_model(model, source, Settings(solver="adam"), Watch())
    assert torch.equal(model.X_c, before)


@pytest.mark.parametrize("size", [400, 1000])
def test_lbfgs_on_many_columns_takes_fewer_evaluations(size: int) -> None:
    few, many = (make_plan(Settings(), 1000, size, num_dims).max_iter for num_dims in (DIMS, 100 * DIMS))
    assert many < few


def test_lbfgs_on_many_points_takes_fewer_evaluations_unless_a_limit_ends_it() -> None:
    few, many, exact = (make_plan(Settings(), 2000, size, DIMS).max_iter for size in (20, 1000, 2000))
    assert few == LBFGS_EVALUATIONS > many > exact
    assert exact == plan_module.FEWEST_LBFGS_EVALUATIONS
    assert make_plan(Settings(max_time=60.0), 2000, 2000, DIMS).max_iter == LBFGS_EVALUATIONS
    assert make_plan(Settings(max_iter=77), 2000, 2000, DIMS).max_iter == 77


def test_no_evaluation_is_begun_that_would_take_longer_than_there_is() -> None:
    source, watch = make_source(), Watch(60.0)
    watch.measure(1e-9, 1e9)  # by the first steps this machine is very slow
    report = fit_model(make_model(source), source, Settings(solver="lbfgs"), watch)
    assert report.result.num_iter == 0
    assert not report.result.converged
    assert rmse(report.model, make_source(seed=1)) < 0.3


def test_training_is_judged_by_what_all_rows_can_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of a large variance: 20 rows alone would rather take it for noise, and 3000 rows know it."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, size=(3000, 1))
    source = MemorySource(torch.tensor(x), torch.tensor(np.sin(40.0 * x[:, 0]) + 0.1 * rng.normal(size=3000)))
    model = make_model(source, 80)
    model.likelihood.noise = 1.0
    monkeypatch.setattr(fit, "CHUNK_ROWS", 20)

    @torch.no_grad()
    def learn(*_: object) -> Result:
        model.kernel.outputscale, model.kernel.base_kernel.lengthscale, model.likelihood.noise = 30.0, 0.05, 0.01
        return Result(Status.CONVERGED, 0.0, 1)

    monkeypatch.setattr(fit, "fit_adam", learn)
    fit_model(model, source, Settings(solver="adam"), Watch())
    assert model.kernel.outputscale.item() == pytest.approx(30.0)
