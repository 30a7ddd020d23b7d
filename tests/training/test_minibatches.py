import math
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
import torch

from cvgp import CVGP
from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.errors import CVGPWarning, DivergenceError
from cvgp.objectives.full_batch import solve_coreset
from cvgp.objectives.minibatch import MinibatchObjective
from cvgp.optim.stopping import Progress, Result, Status
from cvgp.training import minibatches
from cvgp.training.minibatches import Precision, fit_adam
from cvgp.training.monitor import FitEvent, Watch
from cvgp.training.plan import Settings, make_plan
from tests.training.problems import NUM_ROWS, SIZE, collect, make_model, make_source, rmse


def run_adam(
    settings: Settings, *, model: CVGP | None = None, watch: Watch | None = None, validate: bool = False
) -> tuple[CVGP, Result]:
    source = make_source()
    model = make_model(source) if model is None else model
    watch = Watch() if watch is None else watch
    plan = make_plan(settings, NUM_ROWS, SIZE, 2)
    validation = make_source(40, seed=9) if validate else None
    result = fit_adam(model, source, plan, settings, watch, None, validation)
    return model, result


@pytest.fixture
def frequent_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation after every epoch, though it is short."""
    monkeypatch.setattr(minibatches, "STEPS_BETWEEN_CHECKS", 1)


EARLY = Settings(early_stopping=True, max_iter=60, batch_size=20, learning_rate=0.3, n_iter_no_change=100)


@pytest.mark.usefixtures("frequent_checks")
def test_early_stopping_keeps_the_best_by_validation() -> None:
    events: list[FitEvent] = []
    model, _ = run_adam(EARLY, watch=Watch(callbacks=[collect(events)]), validate=True)
    scores = [event.validation_rmse for event in events if event.validation_rmse is not None]
    assert rmse(model, make_source(40, seed=9)) == pytest.approx(min(scores), rel=1e-9)


@pytest.mark.usefixtures("frequent_checks")
def test_best_by_validation_is_not_just_the_last() -> None:
    events: list[FitEvent] = []
    run_adam(EARLY, watch=Watch(callbacks=[collect(events)]), validate=True)
    assert min(e.validation_rmse for e in events if e.validation_rmse is not None) < events[-1].validation_rmse


def steps_of_validation(settings: Settings) -> list[int]:
    events: list[FitEvent] = []
    run_adam(settings, watch=Watch(callbacks=[collect(events)]), validate=True)
    pairs = zip(events[1:], events, strict=False)
    return [later.iteration for later, earlier in pairs if later.validation_rmse != earlier.validation_rmse]


@pytest.mark.usefixtures("frequent_checks")
def test_validation_is_scored_once_an_epoch() -> None:
    assert steps_of_validation(EARLY) == list(range(5, 61, 5))


def test_validation_of_short_epochs_waits_for_a_number_of_steps() -> None:
    settings = Settings(early_stopping=True, max_iter=120, batch_size=20)
    assert steps_of_validation(settings) == [minibatches.STEPS_BETWEEN_CHECKS, 2 * minibatches.STEPS_BETWEEN_CHECKS]


def test_papers_recipe_is_scored_every_epoch() -> None:
    settings = Settings(solver="paper", early_stopping=True, max_iter=20, batch_size=20)
    assert steps_of_validation(settings) == [5, 10, 15, 20]


@pytest.mark.usefixtures("frequent_checks")
def test_patience_ends_the_run() -> None:
    settings = Settings(early_stopping=True, max_iter=5000, batch_size=50, learning_rate=0.5, n_iter_no_change=3)
    _, result = run_adam(settings, validate=True)
    assert result.status is Status.EARLY_STOPPED
    assert result.num_iter < 5000


def test_run_shorter_than_an_epoch_is_not_thrown_away() -> None:
    before = make_model(make_source())
    model, _ = run_adam(Settings(early_stopping=True, max_iter=3, batch_size=2), validate=True)
    assert not torch.equal(model.y_c, before.y_c)


@pytest.mark.parametrize(("dtype", "precision"), [("float32", torch.float32), ("float64", torch.float64)])
def test_batches_have_the_precision_that_is_asked_for(
    dtype: str, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seen_precisions(monkeypatch, dtype) == [precision] * 60


def test_precision_grows_when_the_weights_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatches, "FLOAT32_LIMIT", 1e-6)
    assert seen_precisions(monkeypatch, "auto") == [torch.float64] * 60


def test_precision_stays_low_while_the_weights_are_moderate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatches, "FLOAT32_LIMIT", 1e12)
    assert seen_precisions(monkeypatch, "auto") == [torch.float32] * 60


def seen_precisions(monkeypatch: pytest.MonkeyPatch, dtype: str) -> list[torch.dtype]:
    seen: list[torch.dtype] = []
    minibatch = MemorySource.minibatch

    def recorded(self: MemorySource, step: int, size: int, seed: int) -> Rows[torch.Tensor]:
        batch = minibatch(self, step, size, seed)
        seen.append(batch.x.dtype)
        return batch

    monkeypatch.setattr(MemorySource, "minibatch", recorded)
    run_adam(Settings(solver="adam", dtype=dtype, max_iter=60))
    return seen


@pytest.fixture
def bad_tenth_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is not finite once."""
    bound, calls = MinibatchObjective.value_and_backward, count(1)

    def broken(self: MinibatchObjective, scale: float) -> float:
        value = bound(self, scale)
        return value * math.nan if next(calls) == 10 else value

    monkeypatch.setattr(MinibatchObjective, "value_and_backward", broken)


@pytest.mark.usefixtures("bad_tenth_step")
def test_run_with_a_bad_step_learns_with_a_warning() -> None:
    with pytest.warns(CVGPWarning, match="adam, iteration 10: .* learning rate halved"):
        model, _ = run_adam(Settings(solver="adam", max_iter=60))
    assert rmse(model, make_source(seed=3)) < 0.13


@pytest.mark.usefixtures("bad_tenth_step")
def test_recovery_is_in_the_history() -> None:
    watch = Watch()
    with pytest.warns(CVGPWarning):
        run_adam(Settings(solver="adam", max_iter=20), watch=watch)
    assert [row["iteration"] for row in watch.history if "learning rate halved" in row["event"]] == [10]


@pytest.mark.filterwarnings("ignore::cvgp.errors.CVGPWarning")
def test_hopeless_learning_rate_ends_with_advice() -> None:
    with pytest.raises(DivergenceError, match="smaller learning_rate"):
        run_adam(Settings(solver="adam", max_iter=40, learning_rate=1e9))


def test_time_limit_ends_the_run_with_a_trained_model() -> None:
    watch = Watch(max_time=0.5)
    model, result = run_adam(Settings(solver="adam", max_iter=1_000_000), watch=watch)
    assert result.status is Status.TIME_LIMIT
    assert rmse(model, make_source(seed=3)) < 0.2


def test_frozen_parameters_stay() -> None:
    source = make_source()
    model = make_model(source)
    model.X_c.requires_grad_(False)
    before = model.X_c.clone()
    run_adam(Settings(solver="adam", max_iter=20), model=model)
    assert torch.equal(model.X_c, before)


def groups_problem(lengthscale: float) -> tuple[CVGP, MemorySource]:
    """Twelve groups that share nothing, each at a value of the first column; the kernel already knows."""
    rng = np.random.default_rng(0)
    group = rng.integers(12, size=300)
    x = np.column_stack([group / 4.0 - 1.5, rng.normal(size=300)])
    y = rng.normal(size=12)[group] + 0.3 * np.sin(x[:, 1]) + 0.05 * rng.normal(size=300)
    source = MemorySource(torch.tensor(x), torch.tensor(y))
    model = make_model(source, 24, noise=0.01)
    model.kernel.base_kernel.lengthscale = torch.tensor([lengthscale, 2.0])
    with torch.no_grad():
        solve_coreset(model, source.chunks(300))
    return model, source


@pytest.mark.parametrize("lengthscale", [1e-3, 1e-2, 0.1])
def test_steps_of_pseudo_inputs_are_small_against_the_lengthscales(lengthscale: float) -> None:
    model, source = groups_problem(lengthscale)
    settings, watch = Settings(solver="adam", max_iter=120), Watch()
    fit_adam(model, source, make_plan(settings, 300, 24, 2), settings, watch)
    bound = [row["bound"] for row in watch.history]
    assert min(bound) > bound[0] - 0.5
    assert bound[-1] > bound[0]


def test_distances_of_many_lengthscales_need_float64() -> None:
    near, far = (groups_problem(lengthscale) for lengthscale in (0.1, 1e-3))
    for model, _ in (near, far):
        model.set_sites(model.y_c.detach(), torch.ones_like(model.beta))  # weights that float32 can hold
    assert Precision(*near, "auto").source(0).minibatch(0, 1, 0).x.dtype == torch.float32
    assert Precision(*far, "auto").source(0).minibatch(0, 1, 0).x.dtype == torch.float64


# Whether a finished cycle has converged, by made-up bounds after each step.


def status_of(bound: Callable[[int], float], max_iter: int, tol: float) -> Status:
    watch = Watch()
    watch.begin("adam", max_iter)
    for step in range(1, max_iter + 1):
        watch.observe(Progress(step, -bound(step), 0.1))
    return minibatches._converged(Result(Status.ITERATION_LIMIT, 0.0, max_iter), watch, tol)


@pytest.mark.parametrize(
    ("slope", "status"),
    [
        (1.0, Status.ITERATION_LIMIT),
        (0.09, Status.CONVERGED),
        (0.0, Status.CONVERGED),
        (-0.09, Status.CONVERGED),
        (-1.0, Status.ITERATION_LIMIT),
    ],
    ids=["rises", "rises a little", "rests", "falls a little", "falls"],
)
def test_a_bound_that_rises_or_falls_has_not_converged(slope: float, status: Status) -> None:
    assert status_of(lambda step: slope * step, 200, tol=1.0) is status


@pytest.mark.parametrize("max_iter", [500, 5000])
@pytest.mark.parametrize(("slope", "status"), [(0.09, Status.CONVERGED), (0.11, Status.ITERATION_LIMIT)])
def test_convergence_is_counted_in_steps_and_not_in_rows_of_the_history(
    slope: float, status: Status, max_iter: int
) -> None:
    assert status_of(lambda step: slope * step, max_iter, tol=1.0) is status


def test_a_single_step_has_not_converged() -> None:
    assert status_of(lambda step: 0.0, 1, tol=1.0) is Status.ITERATION_LIMIT
