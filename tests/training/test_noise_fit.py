"""Rows weighed by the noise that was learned of them."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.gp.input_noise import Features, InputNoise
from cvgp.gp.kernels import square_matrix
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import statistics
from cvgp.optim.stopping import Result, Status
from cvgp.training import noise_trials
from cvgp.training.fit import FitReport
from cvgp.training.likely_noise import Recipe
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import adopt_neighbours
from cvgp.training.noise_fit import fit_noise, seconds_to_keep
from cvgp.training.noise_learning import NoiseChoice
from cvgp.training.noise_trials import NoiseFit, trials_of
from cvgp.training.plan import Settings
from cvgp.training.residuals import residuals_of
from tests.training.problems import make_model


def noise_sd(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0.0, 0.02, 1.0)


def problem(num_rows: int = 400) -> MemorySource:
    """A sine that is nearly without noise in the left half, and hard to see in the right half."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(num_rows, 1))
    y = np.sin(2.0 * x[:, 0]) + noise_sd(x[:, 0]) * rng.normal(size=num_rows)
    return MemorySource(torch.tensor(x), torch.tensor(y))


def fitted(source: MemorySource, *, noise: float = 0.5, size: int = 20) -> FitReport:
    model = make_model(source, size)
    model.likelihood.noise = noise
    found = statistics(model, source.chunks(1000))
    bound = model.adopt_optimum(found).item()
    return FitReport(model, "adam", bound, Result(Status.CONVERGED, -bound, 1), found)


def begin(source: MemorySource, neighbours: int = 0, **options: float) -> NoiseFit:
    """A fit that has not looked at its noise yet."""
    report = fitted(source, **options)  # type: ignore[arg-type]
    if not neighbours:
        return NoiseFit(report)
    kept, bound = adopt_neighbours(report.model, source.data, neighbours)
    return NoiseFit(report._replace(bound=bound, statistics=kept.statistics), kept)


def learn(fit: NoiseFit, source: MemorySource, watch: Watch | None = None, *, always: bool = False) -> NoiseFit:
    watch = Watch() if watch is None else watch
    return fit_noise(fit.report, fit.kept, source, Settings(seed=0), watch, np.random.default_rng(1), always=always)


def error_where_quiet(fit: NoiseFit) -> float:
    x = torch.linspace(-1.8, -0.3, 30, dtype=torch.float64)[:, None]
    return (mean_at(fit, x) - torch.sin(2.0 * x[:, 0])).square().mean().sqrt().item()


@torch.no_grad()
def mean_at(fit: NoiseFit, x: torch.Tensor) -> torch.Tensor:
    model = fit.report.model
    return model.posterior(x).mean if fit.kept is None else fit.kept.process(model).moments(x)[0][:, 0]


@pytest.mark.parametrize("neighbours", [0, 10])
def test_quiet_rows_say_more_of_f_once_their_noise_is_known(neighbours: int) -> None:
    source = problem()
    before = begin(source, neighbours)
    after = learn(before, source)
    assert error_where_quiet(after) < 0.5 * error_where_quiet(before)
    assert after.noise is not None
    assert after.noise.base > 0


def test_history_says_what_was_gained() -> None:
    source, watch = problem(), Watch()
    learn(begin(source), source, watch)
    assert watch.history[0]["phase"] == "noise"
    assert "+" in watch.history[0]["event"].split("nats")[0]


def dense_mean(model: CVGP, source: MemorySource, noise: InputNoise, x: torch.Tensor) -> torch.Tensor:
    """The exact GP with the noise of each row."""
    rows = source.data
    with torch.no_grad():
        K = square_matrix(model.kernel, torch.cat([rows.x, x]))
        n = len(rows.x)
        S = K[:n, :n] + (model.noise + noise.beyond_base(rows.x)).diag()
        return K[n:, :n] @ torch.linalg.solve(S, rows.y)


@pytest.mark.parametrize("neighbours", [0, 200])
def test_weighed_rows_are_those_of_the_exact_gp_with_noise_per_row(neighbours: int) -> None:
    source = problem(200)
    fit = begin(source, neighbours, size=30)
    left = residuals_of(fit.report.model, statistics(fit.report.model, source.chunks(200)), source.data)
    features = Features(torch.linspace(-2, 2, 8, dtype=torch.float64)[:, None], torch.ones(1).double())
    noise = NoiseChoice(features, Recipe(0.3), 1.0, 0.5).learn(left)
    trials = trials_of(fit, source, Settings(seed=0), 200, np.random.default_rng(0))
    weighed = trials.finished(trials.weighed(fit._replace(noise=noise), source.data.x))
    assert weighed.noise is not None
    assert (weighed.noise.beyond_base(source.data.x) > 0.1).any()
    x = torch.linspace(-1.8, 1.8, 9, dtype=torch.float64)[:, None]
    expected = dense_mean(weighed.report.model, source, weighed.noise, x)
    torch.testing.assert_close(mean_at(weighed, x), expected, rtol=0.0, atol=1e-3 if neighbours == 0 else 1e-6)


def test_constant_noise_weighs_no_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(400, 1))
    source = MemorySource(torch.tensor(x), torch.tensor(np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=400)))
    before, watch = begin(source, noise=0.09), Watch()
    assert learn(before, source, watch).noise is None
    assert watch.history == []


def test_the_noise_stays_constant_when_the_time_is_up() -> None:
    source = problem()
    assert learn(begin(source), source, Watch(max_time=1e-9)).noise is None


def test_no_rows_are_weighed_when_the_time_is_up() -> None:
    source = problem()
    watch = Watch(max_time=1e-9)
    fit = learn(begin(source), source, watch, always=True)
    assert fit.noise is not None
    assert fit.noise.base == 0
    assert watch.history == []


def test_time_is_kept_back_only_of_a_limit() -> None:
    assert seconds_to_keep(1000, Watch()) == 0.0
    assert seconds_to_keep(1000, Watch(max_time=10.0)) == pytest.approx(2.0)
    assert seconds_to_keep(1000, Watch(max_time=100.0)) == pytest.approx(4.1)


def test_many_rows_are_all_read_once_their_noise_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, gather = list[int](), noise_trials.statistics_and_gain

    def counted(model: CVGP, chunks: Iterable[Rows[torch.Tensor]], *values: Any, **options: Any) -> Any:
        chunks = list(chunks)
        seen.append(sum(len(rows.x) for rows in chunks))
        return gather(model, chunks, *values, **options)

    monkeypatch.setattr(noise_trials, "ROWS_OF_A_ROUND", 350)
    monkeypatch.setattr(noise_trials, "statistics_and_gain", counted)
    source = problem()
    before = begin(source)
    after = learn(before, source)
    assert seen[-1] == 400
    assert set(seen[:-1]) == {320, 350}  # to judge by, and to learn from
    assert error_where_quiet(after) < 0.5 * error_where_quiet(before)
