"""The wrapper for ScoringBench, against a stub of its container and by its own kind of scores."""

import sys
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from cvgp.adapters.scoringbench import CVGPWrapper


@dataclass
class DistributionPrediction:
    """The container of `scoringbench.wrappers.base`."""

    probas: NDArray[np.float64]  # [n, bins], which add up to 1
    bin_edges: NDArray[np.float64]  # [n, bins + 1]
    bin_midpoints: NDArray[np.float64]  # [n, bins]
    mean: NDArray[np.float64]  # [n]


@pytest.fixture(autouse=True)
def _stub(monkeypatch: pytest.MonkeyPatch) -> None:
    base = ModuleType("scoringbench.wrappers.base")
    base.DistributionPrediction = DistributionPrediction  # type: ignore[attr-defined]
    for name, module in (("scoringbench", ModuleType("scoringbench")), ("scoringbench.wrappers", ModuleType("w"))):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "scoringbench.wrappers.base", base)


def table(count: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Numbers with gaps and a category, at an index of their own, and a target with noise."""
    rng = np.random.default_rng(seed)
    x, kind = rng.uniform(-2.0, 2.0, count), rng.choice(["a", "b"], count)
    y = np.sin(2.0 * x) + (kind == "a") + 0.3 * rng.normal(size=count)
    frame = pd.DataFrame({"x": np.where(rng.random(count) < 0.05, np.nan, x), "kind": kind}, index=7 + np.arange(count))
    return frame, pd.Series(y, index=frame.index)


@pytest.fixture(scope="module")
def fitted() -> CVGPWrapper:
    return CVGPWrapper(n_coreset=20, noise="constant", random_state=0).fit(*table(250, 0))


def test_a_distribution_is_a_histogram_for_each_row(fitted: CVGPWrapper) -> None:
    found = fitted.predict_distribution(table(30, 1)[0])
    assert isinstance(found, DistributionPrediction)
    assert found.bin_edges.shape == (30, found.probas.shape[1] + 1)
    assert found.bin_midpoints.shape == found.probas.shape
    np.testing.assert_allclose(found.probas.sum(1), 1.0)
    assert (np.diff(found.bin_edges, axis=1) > 0.0).all()


def test_the_mean_is_what_predict_returns_and_close_to_that_of_the_bins(fitted: CVGPWrapper) -> None:
    x, _ = table(30, 1)
    found = fitted.predict_distribution(x)
    np.testing.assert_array_equal(found.mean, fitted.predict(x))
    np.testing.assert_allclose((found.probas * found.bin_midpoints).sum(1), found.mean, atol=0.1)


def test_the_density_of_the_bins_is_that_of_the_model(fitted: CVGPWrapper) -> None:
    x, y = table(200, 1)
    found, values = fitted.predict_distribution(x), y.to_numpy()
    place = (found.bin_edges[:, 1:-1] < values[:, None]).sum(1)
    widths = np.diff(found.bin_edges, axis=1)
    rows = np.arange(len(values))
    density = np.log(found.probas[rows, place] / widths[rows, place]).mean()
    assert density == pytest.approx(fitted.model.log_predictive_density(x, y).mean(), abs=0.1)


def test_parameters_are_those_of_the_regressor() -> None:
    assert CVGPWrapper(kernel="rbf", max_time=5.0).model.get_params()["kernel"] == "rbf"
