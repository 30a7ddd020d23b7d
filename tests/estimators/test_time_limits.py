"""A time limit and the checkpoint: more time goes on with a fit, and no time makes one worse."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cvgp import CVGPRegressor
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.estimators.units import ScaledGP
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.objectives.exact import ExactObjective
from cvgp.objectives.full_batch import TitsiasObjective
from cvgp.objectives.given_neighbours import NeighbourObjective
from cvgp.objectives.minibatch import MinibatchObjective
from cvgp.training import fit, monitor, noise_learning, plan
from cvgp.training.checkpoint import START_FILE
from cvgp.training.monitor import FitEvent

rng = np.random.default_rng(6)
X = rng.uniform(-3.0, 3.0, size=(60, 1))
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)

KINDS: dict[str, dict[str, Any]] = {
    "adam": {"n_coreset": 5, "solver": "adam", "batch_size": 10},
    "lbfgs": {"n_coreset": 5, "solver": "lbfgs", "tol": 0.0},
    "adam, then lbfgs": {"n_coreset": 5, "tol": 0.0},
    "size by the data": {"tol": 0.0},
}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a millisecond whenever it is read, and Adam for few rows."""
    ticks = count()
    monkeypatch.setattr(monitor, "time", SimpleNamespace(perf_counter=lambda: 1e-3 * next(ticks)))
    monkeypatch.setattr(plan, "LBFGS_ROWS", 10)
    monkeypatch.setattr(plan, "ADAM_STEPS", 300)
    monkeypatch.setattr(plan, "POLISH_EVALUATIONS", 25)


def estimator(kind: str, folder: Path, max_time: float | None = None, **options: Any) -> CVGPRegressor:
    return CVGPRegressor(random_state=1, checkpoint_dir=folder, max_time=max_time, **{**KINDS[kind], **options})


def evaluations(fit: Callable[[], CVGPRegressor], monkeypatch: pytest.MonkeyPatch) -> tuple[CVGPRegressor, int]:
    """What is fitted, and how often a bound was evaluated for it with its gradient."""
    calls: list[int] = []

    def counted(original: Callable[..., float]) -> Callable[..., float]:
        return lambda self, scale=1.0: calls.append(1) or original(self, scale)

    with monkeypatch.context() as patch:
        for objective in (MinibatchObjective, TitsiasObjective, ExactObjective):
            patch.setattr(objective, "value_and_backward", counted(objective.value_and_backward))
        return fit(), len(calls)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_that_ran_out_of_time_goes_on_with_more(kind: str, tmp_path: Path) -> None:
    first = estimator(kind, tmp_path, 0.05).fit(X, Y)
    events: list[FitEvent] = []
    longer = estimator(kind, tmp_path, 2.0, callbacks=[events.append]).fit(X, Y)
    assert not any(event.phase.startswith("start") for event in events)
    assert len(longer.coreset_) == len(first.coreset_)
    assert longer.n_iter_ > first.n_iter_
    assert longer.elbo_ > first.elbo_ - 1e-6


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [(None, 0.01), (0.6, 0.6), (0.6, 0.1)], ids=str)
def test_a_finished_fit_is_not_made_worse_by_less_time(
    kind: str, times: tuple[float | None, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = estimator(kind, tmp_path, times[0]).fit(X, Y)
    again, computed = evaluations(lambda: estimator(kind, tmp_path, times[1]).fit(X, Y), monkeypatch)
    assert computed <= 1  # where the clock itself stopped the first run, the second finds that out by an evaluation
    assert again.elbo_ >= first.elbo_ - 1e-9
    if computed == 0:
        np.testing.assert_array_equal(again.predict(X), first.predict(X))


def test_the_best_point_of_lbfgs_is_kept_when_time_is_out(tmp_path: Path) -> None:
    bounds: list[float] = []
    model = estimator(
        "lbfgs", tmp_path, 0.5, callbacks=[lambda e: bounds.append(e.bound) if e.phase == "lbfgs" else None]
    ).fit(X, Y)
    assert model.history_["bound"][-1] == max(bounds)


def test_time_to_learn_the_noise_is_kept_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "plan_close", lambda *_: None)  # closing takes no time

    def end_of_fit(noise: str) -> float:
        events: list[FitEvent] = []
        model = CVGPRegressor(**KINDS["adam"], max_time=0.2, noise=noise, callbacks=[events.append])
        model.set_params(random_state=1).fit(X, Y)
        return events[-1].seconds

    limit_of_fit = 0.8 * 0.2
    assert end_of_fit("constant") > limit_of_fit + 0.02
    assert end_of_fit("auto") < limit_of_fit + 0.02


def test_the_start_is_found_again_with_its_random_numbers(tmp_path: Path) -> None:
    whole = CVGPRegressor(random_state=1).fit(X, Y)
    estimator("size by the data", tmp_path, tol=1e-4, callbacks=[lambda e: e.phase == "adam"]).fit(X, Y)
    resumed = estimator("size by the data", tmp_path, tol=1e-4).fit(X, Y)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


@pytest.mark.parametrize("change", [{"kernel": "rbf"}, {"n_coreset": 6}, {"init": "random"}, {"mean": "constant"}])
def test_a_start_of_other_parameters_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    estimator("adam", tmp_path, max_iter=3).fit(X, Y)
    with pytest.raises(InvalidInputError, match="belongs to another fit"):
        estimator("adam", tmp_path, max_iter=3, **change).fit(X, Y)


@pytest.mark.parametrize("damage", ["shape", "array", "state", "digits"])
def test_a_damaged_start_is_named(damage: str, tmp_path: Path) -> None:
    estimator("adam", tmp_path, max_iter=3).fit(X, Y)
    path = tmp_path / START_FILE
    tensors, metadata = read_tensors(path)
    if damage == "shape":
        tensors["y_c"] = tensors["y_c"][1:]
    elif damage == "array":
        tensors.pop("raw_beta")
    elif damage == "state":
        metadata["rng"]["state"].pop("inc")
    else:
        metadata["rng"]["state"]["state"] = "9" * 60
    write_tensors(path, tensors, metadata)
    with pytest.raises(FileFormatError, match=rf"{START_FILE} is damaged.*Remove it"):
        estimator("adam", tmp_path, max_iter=3).fit(X, Y)


def costing(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Callable[[], float]:
    """A clock that moves only by work: evaluations of objectives, trials of a noise and predictions of many rows."""
    now = 0.0

    def slow(original: Callable[..., Any], price: Callable[..., float]) -> Callable[..., Any]:
        def called(*values: Any, **options: Any) -> Any:
            nonlocal now
            now += price(*values)
            return original(*values, **options)

        return called

    for objective in (MinibatchObjective, TitsiasObjective, ExactObjective, NeighbourObjective):
        monkeypatch.setattr(objective, "value_and_backward", slow(objective.value_and_backward, lambda *_: seconds))
    monkeypatch.setattr(noise_learning, "_held_out", slow(noise_learning._held_out, lambda *_: seconds))
    monkeypatch.setattr(ScaledGP, "mean", slow(ScaledGP.mean, lambda _, x: 1e-3 * seconds * len(x)))
    monkeypatch.setattr(monitor, "time", SimpleNamespace(perf_counter=lambda: now))
    return lambda: now


@pytest.mark.parametrize(
    ("kind", "target"), [("adam, then lbfgs", "identity"), ("lbfgs", "identity"), ("size by the data", "auto")]
)
def test_every_stage_is_inside_the_limit_on_a_slow_machine(
    kind: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    x = rng.uniform(-3.0, 3.0, size=(400, 2))
    y = np.exp(np.sin(x[:, 0]) + 0.1 * rng.normal(size=400))
    now = costing(monkeypatch, 0.1)
    CVGPRegressor(random_state=1, max_time=10.0, target=target, **KINDS[kind]).fit(x, y)
    assert 5.0 < now() < 11.0
