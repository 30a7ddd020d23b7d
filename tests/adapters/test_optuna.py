"""`CVGPSampler`: search spaces, agreement with the exact GP, bounded cost, and what it refuses."""

import math
import pickle
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import optuna
import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial, TrialState, create_trial
from scipy import stats

from cvgp.adapters import optuna as adapter
from cvgp.adapters.optuna import CVGPSampler
from cvgp.coreset import Coreset
from cvgp.errors import MissingDependencyError, NotSupportedError
from cvgp.gp.kernels import gaussian_likelihood, make_kernel
from cvgp.gp.model import CVGP

SPACE = {
    "rate": FloatDistribution(1e-5, 1.0, log=True),
    "share": FloatDistribution(-2.0, 3.0),
    "step": FloatDistribution(0.0, 1.0, step=0.25),
    "depth": IntDistribution(2, 10, step=2),
    "units": IntDistribution(1, 512, log=True),
    "kind": CategoricalDistribution(["a", "b", None]),
}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def suggest_all(trial: Trial) -> dict[str, Any]:
    return {
        "rate": trial.suggest_float("rate", 1e-5, 1.0, log=True),
        "share": trial.suggest_float("share", -2.0, 3.0),
        "step": trial.suggest_float("step", 0.0, 1.0, step=0.25),
        "depth": trial.suggest_int("depth", 2, 10, step=2),
        "units": trial.suggest_int("units", 1, 512, log=True),
        "kind": trial.suggest_categorical("kind", ["a", "b", None]),
    }


def mixed(trial: Trial) -> float:
    found = suggest_all(trial)
    miss = abs(math.log10(found["rate"]) + 2.0) + abs(found["share"] - 1.0) + abs(found["depth"] - 6) / 4.0
    return miss + abs(math.log2(found["units"]) - 5.0) / 4.0 + found["step"] + (0.0 if found["kind"] == "b" else 1.0)


def bowl(trial: Trial) -> float:
    x, y = trial.suggest_float("x", -5.0, 5.0), trial.suggest_float("y", -5.0, 5.0)
    return (x - 1.2) ** 2 + (y + 0.7) ** 2


def run(objective: Callable[[Trial], float], trials: int, direction: str = "minimize", **options: Any) -> optuna.Study:
    study = optuna.create_study(sampler=CVGPSampler(seed=0, **options), direction=direction)
    study.optimize(objective, n_trials=trials)
    return study


def filled(count: int, dims: int = 2) -> optuna.Study:
    """A study with finished trials at random places."""
    study, rng = optuna.create_study(sampler=CVGPSampler(seed=0)), np.random.default_rng(0)
    own = {f"x{d}": FloatDistribution(0.0, 1.0) for d in range(dims)}
    for x in rng.random((count, dims)):
        value = float(np.square(x - 0.3).sum())
        study.add_trial(create_trial(params=dict(zip(own, x.tolist(), strict=True)), distributions=own, value=value))
    return study


# Search spaces.


def test_a_row_comes_back_as_the_parameters_that_made_it() -> None:
    space = adapter._Space(SPACE)
    params = {"rate": 1e-3, "share": -0.5, "step": 0.75, "depth": 8, "units": 33, "kind": None}
    found = space.decode(space.encode(params))
    assert set(found) == set(params)
    assert found["kind"] is None
    assert (found["depth"], found["units"], found["step"]) == (8, 33, 0.75)
    assert (found["rate"], found["share"]) == pytest.approx((1e-3, -0.5))
    assert all(SPACE[name]._contains(SPACE[name].to_internal_repr(value)) for name, value in found.items())


def test_all_candidates_are_values_that_the_parameters_can_have() -> None:
    space, rng = adapter._Space(SPACE), np.random.default_rng(0)
    rows = space.move(space.draw(300, rng), rng)
    for row in rows:
        found = space.decode(row)
        assert all(own._contains(own.to_internal_repr(found[name])) for name, own in SPACE.items())
        np.testing.assert_allclose(space.encode(found), row, atol=1e-12)


def test_the_ends_of_ranges_can_be_suggested() -> None:
    space = adapter._Space(SPACE)
    low, high = (space.decode(np.full(6, value)) for value in (-1.0, 2.0))
    assert [low[name] for name in ("rate", "share", "step", "depth", "units")] == pytest.approx([1e-5, -2, 0, 2, 1])
    assert [high[name] for name in ("rate", "share", "step", "depth", "units")] == pytest.approx([1, 3, 1, 10, 512])


# Optimization.


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_bowl_is_optimized_in_both_directions(direction: str) -> None:
    sign = 1.0 if direction == "minimize" else -1.0
    study = run(lambda trial: sign * bowl(trial), 35, direction)
    assert abs(study.best_value) < 1e-3


def test_numbers_steps_and_categories_are_optimized_together() -> None:
    study = run(mixed, 60)
    random = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    random.optimize(mixed, n_trials=60)
    assert study.best_value < 0.5 * random.best_value
    assert study.best_params["kind"] == "b"


def test_noise_is_averaged() -> None:
    rng = np.random.default_rng(0)
    study = run(lambda trial: bowl(trial) + rng.normal(), 60)
    late = [trial.params for trial in study.trials[-20:]]
    assert np.hypot(*(np.median([p[name] for p in late]) - at for name, at in (("x", 1.2), ("y", -0.7)))) < 1.0


def test_a_seed_makes_suggestions_reproducible() -> None:
    first, again = (run(mixed, 25) for _ in range(2))
    assert [trial.params for trial in first.trials] == [trial.params for trial in again.trials]


def test_nothing_of_the_process_is_changed_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - the global state must stay
    state, of_numpy, threads = torch.get_rng_state(), np.random.get_state(), torch.get_num_threads()  # noqa: NPY002
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(bowl, 25)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_equal(np.random.get_state(), of_numpy)  # noqa: NPY002
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    assert "".join(capfd.readouterr()) == ""


# The model.


def test_with_few_trials_the_model_is_the_exact_gp() -> None:
    study = filled(60)
    study.ask({"x0": FloatDistribution(0.0, 1.0), "x1": FloatDistribution(0.0, 1.0)})
    own = study.sampler._trials
    x, z = own.space.features(np.array(own.rows)), torch.tensor(own._standardized(np.array(own.y)))
    noise = gaussian_likelihood(own._noise.item(), adapter.LEAST_NOISE)
    exact = CVGP(Coreset(x, z, np.ones(60)), own._kernel, likelihood=noise).posterior(torch.rand(30, 2).double())
    found = own._process(exact._x)
    torch.testing.assert_close(found.mean, exact.mean, rtol=0.0, atol=1e-4)
    torch.testing.assert_close(found.variance, exact.variance, rtol=0.0, atol=1e-4)


def test_the_expected_improvement_is_that_of_a_normal_distribution() -> None:
    model = CVGP(Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0]), make_kernel("rbf", 1))
    x = torch.linspace(-1, 2, 13, dtype=torch.float64)[:, None]
    with torch.no_grad():
        process = model.process()
        mean, sd = process(x).mean.numpy(), process(x).stddev.numpy()
        for best in (-1.0, 0.1, 5.0):
            u = (best - mean) / sd
            expected, found = (
                np.log(sd * (stats.norm.pdf(u) + u * stats.norm.cdf(u))),
                adapter.log_improvement(process, x, torch.tensor(best)),
            )
            np.testing.assert_allclose(found[u > -8.0], expected[u > -8.0], rtol=1e-6)  # farther below, SciPy rounds


@pytest.mark.parametrize("best", [-1e2, -1e5])
def test_a_hopeless_improvement_still_has_a_slope(best: float) -> None:
    process = CVGP(Coreset(X=[[0.0], [1.0]], y=[0.0, 1.0], beta=[9.0, 9.0]), make_kernel("rbf", 1)).process()
    x = torch.tensor([[0.2]], dtype=torch.float64, requires_grad=True)
    value = adapter.log_improvement(process, x, torch.tensor(best))
    (slope,) = torch.autograd.grad(value.sum(), x)
    assert torch.isfinite(value).all()
    assert bool(torch.isfinite(slope).all() and (slope != 0.0).all())


def test_the_coreset_stays_small_and_is_dense_near_the_best_trials() -> None:
    study = filled(1200)
    study.ask({"x0": FloatDistribution(0.0, 1.0), "x1": FloatDistribution(0.0, 1.0)})
    points = study.sampler._trials._process.X_c.detach().numpy()
    assert len(points) <= adapter.POINTS
    near = (np.hypot(*(points - 0.3).T) < 0.1).mean()
    assert near > 2 * 0.01 * math.pi


def test_values_far_off_and_infinite_do_not_hide_the_good_ones() -> None:
    def cliff(trial: Trial) -> float:
        value = bowl(trial)
        return math.inf if trial.number % 7 == 3 else value if value < 10.0 else 1e3 * value

    assert run(cliff, 60).best_value < 0.2


def test_equal_values_are_no_error() -> None:
    assert run(lambda trial: 0.0 * bowl(trial), 30).best_value == 0.0


# Trials.


def test_pruned_and_failed_trials_are_not_learned_from() -> None:
    def objective(trial: Trial) -> float:
        value = bowl(trial)
        if trial.number % 5 == 1:
            raise optuna.TrialPruned
        if trial.number % 5 == 2:
            raise ArithmeticError
        return value

    study = optuna.create_study(sampler=CVGPSampler(seed=0))
    study.optimize(objective, n_trials=40, catch=ArithmeticError)
    complete = [trial for trial in study.trials if trial.state == TrialState.COMPLETE]
    own = study.sampler._trials
    assert own.y == [trial.value for trial in complete[: len(own.y)]]
    assert len(own.y) >= len(complete) - 1  # the last may have finished after the last suggestion


def test_running_trials_are_not_suggested_again() -> None:
    study = filled(40)
    own = {f"x{d}": FloatDistribution(0.0, 1.0) for d in range(2)}
    rows = np.array([[trial.params[name] for name in own] for trial in (study.ask(own) for _ in range(4))])
    distances = np.hypot(*(rows[:, None] - rows).T)
    assert distances[np.triu_indices(4, 1)].min() > 1e-4


def test_threads_may_share_a_study() -> None:
    study = optuna.create_study(sampler=CVGPSampler(seed=0))
    study.optimize(bowl, n_trials=40, n_jobs=3)
    assert len(study.trials) == 40
    assert study.best_value < 0.5


def test_a_pickled_sampler_goes_on() -> None:
    study = run(bowl, 15)
    study.sampler = pickle.loads(pickle.dumps(study.sampler))
    study.optimize(bowl, n_trials=5)
    assert len(study.trials) == 20


def test_a_sampler_may_be_used_for_another_study() -> None:
    study = run(bowl, 15)
    other = optuna.create_study(sampler=study.sampler)
    other.optimize(mixed, n_trials=15)
    assert len(study.sampler._trials.y) <= 15


def test_parameters_that_only_some_trials_have_are_sampled_independently() -> None:
    def objective(trial: Trial) -> float:
        extra = trial.suggest_float("z", 0.0, 1.0) if trial.number % 2 else 0.0
        return bowl(trial) + extra

    study = run(objective, 30)
    assert set(study.sampler._trials.space.distributions) == {"x", "y"}
    assert any("z" in trial.params for trial in study.trials)


# What is refused.


def test_several_objectives_are_refused() -> None:
    study = optuna.create_study(sampler=CVGPSampler(seed=0), directions=["minimize", "maximize"])
    with pytest.raises(NotSupportedError, match="for one objective"):
        study.optimize(lambda trial: (bowl(trial), 0.0), n_trials=1)


def test_constraints_are_refused() -> None:
    def objective(trial: Trial) -> float:
        trial.set_constraint("budget", 1.0)
        return bowl(trial)

    with pytest.raises(NotSupportedError, match="does not know constraints"):
        run(objective, 3)


def test_without_optuna_the_error_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna.distributions", None)
    monkeypatch.delitem(sys.modules, adapter.__name__)  # the module itself stays as it is, for other tests
    monkeypatch.setattr("cvgp.adapters.optuna", adapter)
    with pytest.raises(MissingDependencyError, match=r"pip install 'cvgp\[optuna\]'"):
        import_module(adapter.__name__)
