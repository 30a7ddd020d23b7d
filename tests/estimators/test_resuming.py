"""Time limits, and fits that are resumed from a checkpoint."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgp import CVGPRegressor
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.fitting.monitor import FitEvent
from tests.flat_options import make_regressor

rng = np.random.default_rng(6)
X = rng.uniform(-3.0, 3.0, size=(60, 1))
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
KINDS: dict[str, dict[str, Any]] = {
    "adam": {"n_coreset": 5, "solver": "adam", "batch_size": 10, "max_iter": 400},
    "lbfgs": {"n_coreset": 5, "solver": "lbfgs", "tol": 0.0, "max_iter": 60},
    "exact": {"tol": 0.0},
}


def estimator(kind: str, folder: Path, **options: Any) -> CVGPRegressor:
    return make_regressor(**{"random_state": 1, "checkpoint_dir": folder, **KINDS[kind], **options})


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_fit_is_resumed_with_its_decisions(kind: str, tmp_path: Path) -> None:
    first = estimator(kind, tmp_path, callbacks=[lambda e: e.phase in ("adam", "lbfgs") and e.iteration >= 20])
    first.fit(X, Y)
    events: list[FitEvent] = []
    resumed = estimator(kind, tmp_path, callbacks=[events.append]).fit(X, Y)
    assert not any(event.phase == "choose kernel" for event in events)
    assert len(resumed.coreset_) == len(first.coreset_) or kind == "exact"
    whole = make_regressor(random_state=1, **KINDS[kind]).fit(X, Y)
    assert resumed.elbo_ > first.elbo_ - 0.01
    assert resumed.elbo_ == pytest.approx(whole.elbo_, abs=1.0)
    if kind == "adam":
        np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


@pytest.mark.parametrize("change", [{"kernel": "rbf"}, {"n_coreset": 6}, {"learning_rate": 0.1}, {"mean": "constant"}])
def test_a_checkpoint_of_other_parameters_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    estimator("adam", tmp_path, max_iter=3).fit(X, Y)
    with pytest.raises(InvalidInputError, match="belongs to another fit"):
        estimator("adam", tmp_path, max_iter=3, **change).fit(X, Y)


def test_damaged_decisions_are_an_error(tmp_path: Path) -> None:
    estimator("adam", tmp_path, max_iter=3).fit(X, Y)
    (path,) = tmp_path.glob("decisions*")
    content = bytearray(path.read_bytes())
    content[-3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(FileFormatError):
        estimator("adam", tmp_path, max_iter=3).fit(X, Y)


@pytest.mark.parametrize("num_rows", [300, 4000])
def test_a_fit_ends_within_its_time_limit(num_rows: int) -> None:
    generator = np.random.default_rng(2)
    x = generator.uniform(-3.0, 3.0, size=(num_rows, 3))
    y = np.sin(x[:, 0]) + 0.1 * generator.normal(size=num_rows)
    model = CVGPRegressor(max_time=3.0, random_state=0).fit(x, y)
    # Twice the limit, since other programs may compute on this machine.
    assert model.history_["seconds"][-1] < 6.0
    assert model.score(x, y) > 0.9
