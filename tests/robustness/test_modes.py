"""Threads, forks and modes of torch that a caller may be in: results stay the same, and so does the process."""

import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cvgp
from tests.flat_options import make_regressor

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
SETTINGS = {"n_coreset": 6, "max_iter": 4, "random_state": 0}


def answers(folder: Path, **settings: object) -> list[np.ndarray]:
    """All that a model says, fitted and loaded, in the mode of the moment."""
    model = make_regressor(**(SETTINGS | settings)).fit(X, Y)
    model.save(folder / "model.cvgp")
    loaded = cvgp.load(folder / "model.cvgp")
    found = [np.array(model.elbo_), *model.predict(X[:3], return_std=True), model.predict_interval(X[:3])]
    return [*found, loaded.sample_y(X[:3]), loaded.predict(X[:3], return_cov=True)[1]]


def same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture
def default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("default_dtype")
@pytest.mark.parametrize("settings", [{}, {"solver": "adam", "dtype": "float32"}], ids=["lbfgs", "adam"])
def test_the_default_type_changes_nothing(tmp_path: Path, settings: dict[str, object]) -> None:
    expected = answers(tmp_path, **settings)
    for dtype in (torch.float64, torch.float16):
        torch.set_default_dtype(dtype)
        same(answers(tmp_path, **settings), expected)


@pytest.mark.parametrize(
    "mode",
    [torch.no_grad(), torch.inference_mode(), torch.device("meta"), torch.autocast("cpu", torch.bfloat16)],
    ids=["no_grad", "inference_mode", "device", "autocast"],
)
def test_modes_change_nothing(mode: AbstractContextManager[None], tmp_path: Path) -> None:
    expected = answers(tmp_path, dtype="float32", solver="adam")
    with mode:
        same(answers(tmp_path, dtype="float32", solver="adam"), expected)
        loaded = cvgp.load(tmp_path / "model.cvgp")
    assert loaded.grow(8, X, Y) is not None  # what was loaded there can be learned from outside


def test_fits_in_threads_leave_the_filters_of_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    before, shown = list(warnings.filters), warnings.showwarning
    inside: set[int] = set()
    together: list[set[int]] = []
    enter, leave = warnings.catch_warnings.__enter__, warnings.catch_warnings.__exit__

    def note_enter(self: Any) -> Any:
        if inside - {threading.get_ident()}:
            together.append(set(inside))
        inside.add(threading.get_ident())
        time.sleep(0.001)  # the others get their chance
        return enter(self)

    def note_leave(self: Any, *error: Any) -> None:
        leave(self, *error)
        inside.discard(threading.get_ident())

    monkeypatch.setattr(warnings.catch_warnings, "__enter__", note_enter)
    monkeypatch.setattr(warnings.catch_warnings, "__exit__", note_leave)
    fits = [threading.Thread(target=lambda: make_regressor(**SETTINGS).fit(X, Y).predict(X)) for _ in range(3)]
    for fit in fits:
        fit.start()
    for fit in fits:
        fit.join()
    assert together == []
    assert (list(warnings.filters), warnings.showwarning) == (before, shown)


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, torch
import cvgp
torch.set_num_threads(2)
torch.ones(2000, 2000) @ torch.ones(2000, 2000)  # the threads of the parent are at work
X = np.random.default_rng(0).normal(size=(3000, 3))
model = cvgp.CVGPRegressor(50, training=cvgp.TrainingOptions(solver="adam", max_iter=5)).fit(X, np.sin(X[:, 0]))
expected = model.predict(X)
child = os.fork()
if child == 0:
    same = np.allclose(model.predict(X), expected)
    cvgp.CVGPRegressor(50, training=cvgp.TrainingOptions(solver="adam", max_iter=5)).fit(X, np.sin(X[:, 0]))
    os._exit(0 if same and torch.get_num_threads() == 2 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
def test_a_forked_child_predicts() -> None:
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.strip() == "0", done.stderr
