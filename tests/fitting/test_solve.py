"""Solvers: L-BFGS on all rows, Adam on minibatches, the exact GP, and checkpoints of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from cvgp import Coreset
from cvgp.data.source import MemorySource
from cvgp.errors import CVGPWarning, FileFormatError, InvalidInputError
from cvgp.fitting import minibatches
from cvgp.fitting.checkpoint import Checkpoint, fingerprint
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.minibatches import Precision
from cvgp.fitting.monitor import Budget, Clock, FitEvent, FitLog, Run
from cvgp.fitting.options import TrainingOptions
from cvgp.fitting.solve import Plan, Solution, exact_bound, is_exact_gp, make_plan, solve, warn_if_simpler_is_better
from cvgp.gp.kernels import square_matrix
from cvgp.objectives import full_bound, solve_coreset
from cvgp.optim import Status
from tests.fitting.problems import make_model, make_source, rmse

TINY = {"max_iter": 30}


def run_of(callbacks: Any = (), max_time: float | None = None, clock: Clock | None = None) -> Run:
    return Run(Budget(max_time, clock), FitLog(callbacks), Heuristics())


def solved(
    settings: TrainingOptions,
    *,
    source: MemorySource | None = None,
    size: int = 8,
    run: Run | None = None,
    folder: Path | None = None,
    **options: Any,
) -> Solution:
    source = make_source() if source is None else source
    model, run = make_model(source, size), run_of() if run is None else run
    if folder is not None:
        options["checkpoint"] = Checkpoint(folder, fingerprint(source.identity(), settings), run)
    if size == source.num_rows:
        model = model.with_coreset(Coreset(source.data.x, source.data.y, torch.ones(size)))
    plan = make_plan(settings, source.num_rows, len(model.X_c), model.X_c.shape[1], run)
    return solve(model, source, plan, settings, run, **options)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_training_learns_the_function(solver: str) -> None:
    found = solved(TrainingOptions(solver=solver, max_iter=200))  # type: ignore[arg-type]
    assert rmse(found.model, make_source(200, seed=5)) < 0.13


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_the_reported_bound_is_that_of_the_final_model_below_the_evidence(solver: str) -> None:
    source = make_source()
    found = solved(TrainingOptions(solver=solver, **TINY), source=source)  # type: ignore[arg-type]
    tight = solver == "lbfgs"
    expected = full_bound(found.model, source.chunks(50), source.num_rows, tight=tight)
    assert found.bound == pytest.approx(expected, abs=1e-3)
    assert found.bound <= exact_bound(found.model, source) + 1e-6


def test_the_coreset_is_at_its_optimum_after_training() -> None:
    source = make_source()
    found = solved(TrainingOptions(solver="adam", **TINY), source=source)
    assert solve_coreset(found.model, [source.data]) == pytest.approx(found.bound, abs=1e-6)


def test_the_exact_gp_maximizes_the_evidence() -> None:
    source = make_source(40)
    found = solved(TrainingOptions(), source=source, size=40)
    assert found.solver == "exact"
    assert is_exact_gp(found.model, source)
    with torch.no_grad():
        K = square_matrix(found.model.kernel, source.data.x) + found.model.noise * torch.eye(40, dtype=torch.float64)
    normal = torch.distributions.MultivariateNormal(torch.zeros(40, dtype=torch.float64), K)
    assert found.bound == pytest.approx(normal.log_prob(source.data.y).item(), abs=1e-5)


def test_an_exact_gp_of_a_smooth_function_keeps_fewer_points() -> None:
    source = make_source(120)
    found = solved(TrainingOptions(), source=source, size=120, may_shrink=True)
    assert len(found.model.X_c) < 60
    assert rmse(found.model, make_source(200, seed=5)) < 0.13


def test_copies_do_not_teach_an_exact_gp_a_noise_of_zero() -> None:
    source = make_source(60)
    weighted = MemorySource(source.data.x, source.data.y, torch.full((60,), 50.0, dtype=torch.float64))
    found = solved(TrainingOptions(), source=weighted, size=60)
    assert found.model.noise.item() > 0.004


def test_the_papers_recipe_trains_all_parameters_and_solves_for_none() -> None:
    settings = TrainingOptions(solver="paper", early_stopping=True, max_iter=20)
    plan = make_plan(settings, 1000, 50, 2, run_of())
    assert (plan.learning_rate, plan.batch_size, plan.dtype, plan.schedule_is_constant) == (1e-3, 512, "float32", True)
    assert not plan.solve_at_end
    assert make_plan(TrainingOptions(solver="paper", early_stopping=True), 1000, 50, 2, run_of()).max_iter == 100_000


@pytest.mark.parametrize(
    ("num_rows", "solver"), [(500, "lbfgs"), (3000, "lbfgs"), (3001, "adam+lbfgs"), (10**7, "adam")]
)
def test_few_rows_are_fitted_by_lbfgs_and_many_by_adam(num_rows: int, solver: str) -> None:
    assert make_plan(TrainingOptions(), num_rows, 200, 5, run_of()).solver == solver


def test_settings_of_the_user_are_kept() -> None:
    plan = make_plan(
        TrainingOptions(solver="adam", max_iter=7, batch_size=32, learning_rate=0.2), 1000, 50, 2, run_of()
    )
    assert (plan.max_iter, plan.batch_size, plan.learning_rate, plan.polish) == (7, 32, 0.2, 0)


def test_early_stopping_keeps_the_best_by_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatches, "STEPS_BETWEEN_CHECKS", 1)
    events: list[FitEvent] = []
    settings = TrainingOptions(early_stopping=True, max_iter=60, batch_size=20, learning_rate=0.3, n_iter_no_change=100)
    validation = make_source(40, seed=9)
    found = solved(settings, run=run_of([events.append]), validation=validation)
    scores = [event.validation_rmse for event in events if event.validation_rmse is not None]
    assert min(scores) < scores[-1]
    assert rmse(found.model, validation) == pytest.approx(min(scores), rel=1e-9)


def test_patience_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatches, "STEPS_BETWEEN_CHECKS", 1)
    settings = TrainingOptions(early_stopping=True, max_iter=5000, batch_size=50, learning_rate=0.5, n_iter_no_change=3)
    found = solved(settings, validation=make_source(40, seed=9))
    assert found.result.status is Status.EARLY_STOPPED


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_callback_that_returns_true_ends_the_fit(solver: str) -> None:
    run = run_of([lambda event: event.iteration >= 5])
    found = solved(TrainingOptions(solver=solver, max_iter=100), run=run)  # type: ignore[arg-type]
    assert found.result.status is Status.INTERRUPTED
    assert found.result.num_iter <= 6


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_time_limit_ends_the_fit(solver: str) -> None:
    ticks = iter(range(10**9))
    clock = Clock(lambda: 0.01 * next(ticks))
    found = solved(TrainingOptions(solver=solver, max_iter=100_000), run=run_of(max_time=2.0, clock=clock))  # type: ignore[arg-type]
    assert found.result.num_iter < 400


def test_rows_that_there_is_no_time_to_read_are_sampled() -> None:
    source, run = make_source(20_000), run_of(max_time=0.3)
    run.budget.clock.measure(1e-4, 1.0)  # a machine that is ten thousand times slower
    model = make_model(source, 8)
    plan = Plan("closed form", tight=False, max_iter=0)
    with pytest.warns(CVGPWarning, match="of 20000 rows"):
        found = solve(model, source, plan, TrainingOptions(), run)
    assert rmse(found.model, make_source(200, seed=5)) < 0.3


def test_a_fit_that_is_worse_than_a_line_warns() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    source = MemorySource(torch.tensor(x), torch.tensor(x @ [1.0, -2.0] + 0.01 * rng.normal(size=300)))
    model = make_model(source, 3, noise=1.0)
    with pytest.warns(ConvergenceWarning, match="linear model"):
        warn_if_simpler_is_better(model, source, run_of())


def test_data_move_to_float64_when_weights_grow() -> None:
    source = make_source()
    model = make_model(source)
    data = Precision(model, source, "auto")
    assert data.source(0).minibatch(0, 4, 0).x.dtype == torch.float32
    with torch.no_grad():
        model.likelihood.noise = torch.tensor(1e-8, dtype=torch.float64)
    assert data.source(minibatches.CHECK_EVERY).minibatch(0, 4, 0).x.dtype == torch.float64


class Killed(BaseException):
    """Ends a fit as a kill would."""


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_an_interrupted_fit_is_resumed(solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvgp.fitting.checkpoint.SECONDS_BETWEEN", 0.0)
    settings = TrainingOptions(solver=solver, max_iter=120, tol=0.0)  # type: ignore[arg-type]
    whole = solved(settings)

    def kill(event: FitEvent) -> None:
        if event.iteration == 70:
            raise Killed

    with pytest.raises(Killed):
        solved(settings, run=run_of([kill]), folder=tmp_path)
    events: list[FitEvent] = []
    resumed = solved(settings, run=run_of([events.append]), folder=tmp_path)
    assert events[0].iteration > 40
    assert resumed.result.num_iter <= 121
    if solver == "adam":
        assert torch.equal(resumed.model.X_c, whole.model.X_c)
    else:
        assert resumed.bound == pytest.approx(whole.bound, abs=0.5)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path) -> None:
    solved(TrainingOptions(solver="adam", **TINY), folder=tmp_path)
    with pytest.raises(InvalidInputError, match="belongs to another fit"):
        solved(TrainingOptions(solver="adam", **TINY), source=make_source(seed=1), folder=tmp_path)


def test_a_damaged_checkpoint_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    solved(TrainingOptions(solver="adam", **TINY), folder=tmp_path)
    (path,) = tmp_path.glob("adam*")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FileFormatError):
        solved(TrainingOptions(solver="adam", **TINY), folder=tmp_path)
