import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from cvgp import CVGP, CVGPRegressor
from cvgp.data.arrays import MemorySource
from cvgp.data.source import DataSource
from cvgp.training import fit as fit_module
from cvgp.training.densities import Verdict, compare, line_density
from cvgp.training.monitor import Watch
from cvgp.training.plan import Settings
from tests.training.problems import make_model, make_source


def test_density_of_a_line_is_that_of_rows_left_out_in_turn() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 2))
    y = x @ [1.0, -2.0] + 0.3 * rng.normal(size=30)
    errors = []
    for i in range(30):
        others = np.arange(30) != i
        slopes, *_ = np.linalg.lstsq(np.c_[np.ones(29), x[others]], y[others], rcond=None)
        errors.append(y[i] - np.r_[1.0, x[i]] @ slopes)
    expected = -0.5 * np.log(2.0 * np.pi * np.e * np.mean(np.square(errors)))
    assert line_density(MemorySource(torch.tensor(x), torch.tensor(y)).data) == pytest.approx(expected)


def test_columns_that_repeat_do_no_harm_to_the_line() -> None:
    data = make_source(50).data
    twice = data._replace(x=torch.cat([data.x, data.x, 0.0 * data.x], 1))
    assert line_density(twice) == pytest.approx(line_density(data))


def test_too_few_rows_for_a_line_say_nothing() -> None:
    assert line_density(make_source(4).data) == -np.inf


def test_a_model_that_knows_nothing_is_not_good() -> None:
    source = make_source()
    ignorant = make_model(source, size=2, noise=50.0)
    assert not compare(ignorant, source).is_good


def test_a_fit_that_a_line_beats_starts_once_more_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def poor(model: CVGP, source: DataSource, num_rows: int) -> Verdict:
        return Verdict(fit=-2.0, constant=-1.4, line=-0.5)

    def begin(folder: str | None) -> CVGP:
        begun.append(1)
        return make_model(make_source(40), size=4)

    monkeypatch.setattr(fit_module, "compare", poor)
    with pytest.warns(ConvergenceWarning, match="mean log density of -2.00 nats.*linear model -0.50"):
        fit_module.fit_from_start(begin, make_source(40), Settings(tol=1.0), Watch())
    assert len(begun) == 2


def test_an_iteration_limit_of_the_users_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_module, "compare", lambda *_: pytest.fail("the user has said what ends the fit"))
    fit_module.fit_from_start(
        lambda folder: make_model(make_source(40), size=4), make_source(40), Settings(max_iter=2), Watch()
    )


def test_noise_alone_is_no_failure() -> None:
    rng = np.random.default_rng(5)
    CVGPRegressor(10, random_state=0).fit(rng.normal(size=(200, 3)), rng.normal(size=200))
