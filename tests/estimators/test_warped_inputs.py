"""A regressor that warps its inputs, as a user meets it: everything it takes and gives is in the units of X."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError
from cvgp.tables import stream
from tests.flat_options import make_regressor

Array = NDArray[np.float64]

RNG = np.random.default_rng(0)


def table(rows: int) -> tuple[Array, Array]:
    """A function that is smooth in the logarithm of a skewed column."""
    z = RNG.normal(size=(rows, 2))
    x = np.column_stack([np.exp(1.5 * z[:, 0]), z[:, 1]])
    return x, np.sin(2.0 * z[:, 0]) + 0.5 * z[:, 1] + 0.1 * RNG.normal(size=rows)


X, Y = table(400)
X_NEW, Y_NEW = table(300)


def regressor(**parameters: Any) -> CVGPRegressor:
    quick = {"n_coreset": 25, "max_iter": 30, "n_neighbors": 0, "noise": "constant", "random_state": 0}
    return make_regressor(**quick | parameters)


@pytest.fixture(scope="module")
def warped() -> CVGPRegressor:
    return regressor().fit(X, Y)


def density(model: CVGPRegressor) -> float:
    return float(model.log_predictive_density(X_NEW, Y_NEW).mean())


def test_the_default_gains_clearly_where_a_column_is_skewed(warped: CVGPRegressor) -> None:
    plain = regressor(input_warp="identity").fit(X, Y)
    assert (warped.input_warp_, plain.input_warp_) == ("mixed", "identity")
    assert density(warped) > density(plain) + 0.3


def test_a_model_of_warped_inputs_is_that_of_inputs_that_are_warped_by_hand(warped: CVGPRegressor) -> None:
    warp = warped._gp.scaling.warp
    by_hand = regressor(input_warp="identity").fit(warp.apply(X), Y)
    np.testing.assert_allclose(warped.predict(X_NEW), by_hand.predict(warp.apply(X_NEW)), rtol=1e-6, atol=1e-8)


def test_the_coreset_is_in_the_units_of_the_data(warped: CVGPRegressor) -> None:
    points = warped.coreset_.X
    assert points[:, 0].min() > -0.1
    assert points[:, 0].max() <= 2.0 * X[:, 0].max()
    np.testing.assert_allclose(warped._gp.scaling.scale_x(points), warped.model_.X_c.detach(), atol=1e-8)


def test_a_lengthscale_is_its_width_at_the_middle_of_the_column(warped: CVGPRegressor) -> None:
    lengthscales, scaling = warped.lengthscales_, warped._gp.scaling
    assert lengthscales is not None
    own = warped.model_.kernel.base_kernel.lengthscale.detach().numpy()[0]
    ends = scaling.unscale_x(np.stack([-0.5 * own, 0.5 * own]))
    np.testing.assert_allclose(lengthscales, ends[1] - ends[0], rtol=1e-9)


def test_pruning_growing_and_conditioning_keep_the_warp() -> None:
    model = regressor(n_coreset=10).fit(X, Y)
    added = model.grow(20, X, Y)
    assert (added, model.input_warp_) == (10, "mixed")
    after = model.condition(X_NEW[:50], Y_NEW[:50])
    assert after.input_warp_ == "mixed"
    assert (np.abs(after.predict(X_NEW[:50]) - Y_NEW[:50])).mean() < 0.2
    model.prune(0.5)
    assert model.input_warp_ == "mixed"


def test_models_with_different_warps_are_merged_into_one_that_is_as_good() -> None:
    shards = [regressor(n_coreset=25).fit(X[i::2], Y[i::2]) for i in range(2)]
    plain = cvgp.merge([regressor(input_warp="identity").fit(X[i::2], Y[i::2]) for i in range(2)])
    assert not np.array_equal(shards[0]._gp.scaling.warp.values, shards[1]._gp.scaling.warp.values)
    merged = cvgp.merge(shards)
    assert merged.input_warp_ == "mixed"
    assert density(merged) > max(density(plain), min(map(density, shards)) - 0.05)


def test_a_table_that_is_read_in_parts_is_warped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y}).to_csv(tmp_path / "table.csv", index=False)
    model = regressor(max_iter=200).fit(tmp_path / "table.csv", "y")
    assert model.input_warp_ == "mixed"
    predicted = model.predict(pd.DataFrame(X_NEW, columns=["a", "b"]))
    assert np.abs(predicted - Y_NEW).mean() < 0.3


def test_without_standardising_there_is_no_warp() -> None:
    assert regressor(standardize=False, max_iter=5).fit(X, Y).input_warp_ == "identity"
    with pytest.raises(InvalidInputError, match="standardize"):
        regressor(standardize=False, input_warp="mixed").fit(X, Y)


def test_far_beyond_the_data_predictions_return_to_the_prior(warped: CVGPRegressor) -> None:
    mean, sd = warped.predict([[1e12, 0.0], [-1e12, 0.0]], return_std=True)
    np.testing.assert_allclose(mean, Y.mean(), atol=0.2 * Y.std())
    assert (sd > 0.5 * Y.std()).all()
