"""CVGPRegressor(neighbors=...): predictions that consult the nearest training rows."""

import warnings
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import CVGPError, CVGPWarning, FileFormatError
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.gp.kernels import square_matrix
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import adopt_neighbours
from cvgp.training.neighbours import fit_with_neighbours, reason_against
from cvgp.training.plan import Settings

Array = NDArray[np.float64]
FIXED: dict[str, Any] = {"max_iter": 10, "random_state": 0}
"""A set length leaves the kernel of the fit as it is, so that these fits take no time."""


def smooth(n: int, seed: int = 0, dims: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, dims))
    return X, np.sin(2.0 * X.sum(axis=1)) + 0.1 * rng.standard_normal(n)


def rough(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(20.0 * X[:, 0]) * np.cos(20.0 * X[:, 1]) + 0.1 * rng.standard_normal(n)


def choice_of(model: CVGPRegressor) -> str:
    """What the history says of neighbours last."""
    return str(model.history_["event"][model.history_["phase"] == "neighbours"][-1])


def exact(model: CVGPRegressor, X: Array, y: Array, X_new: Array, weight: Array | None = None) -> tuple[Array, Array]:
    """Mean and covariance of f by the naive formulas, with the kernel and the noise of a model, in the user's units."""
    scaling, outputs = model.gp_.scaling, y.reshape(len(y), -1)
    x = scaling.scale_x(np.vstack([X, X_new]))
    with torch.no_grad():
        K = square_matrix(model.model_.kernel, torch.as_tensor(x)).numpy()
    noise = model.model_.noise.item() / (np.ones(len(X)) if weight is None else weight)
    n = len(X)
    solve = np.linalg.solve(K[:n, :n] + np.diag(noise), K[:n, n:])  # [N, n]
    mean = scaling.unscale_y(solve.T @ scaling.scale_y(outputs))
    return mean, K[n:, n:] - K[n:, :n] @ solve


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_with_all_rows_as_neighbours_it_is_the_exact_gp(outputs: int, weighted: bool) -> None:
    X, y = smooth(60)
    X_new, _ = smooth(7, seed=1)
    weight = np.random.default_rng(2).integers(1, 4, len(X)).astype(float) if weighted else None
    Y = y if outputs == 1 else np.column_stack([y, np.cos(X[:, 0])])
    model = CVGPRegressor(8, neighbors=100, **FIXED).fit(X, Y, sample_weight=weight)
    mean, sd = model.predict(X_new, return_std=True, include_noise=False)
    expected, cov = exact(model, X, Y, X_new, weight)
    scale = model.gp_.scaling.y_scale
    np.testing.assert_allclose(mean.reshape(len(X_new), -1), expected, atol=1e-7)
    np.testing.assert_allclose(sd.reshape(len(X_new), -1), np.sqrt(cov.diagonal())[:, None] * scale, atol=1e-7)
    _, joint = model.predict(X_new, return_cov=True, include_noise=False)
    np.testing.assert_allclose(joint.reshape(7, 7, -1), cov[:, :, None] * scale**2, atol=1e-6)


def test_known_noise_counts_in_the_rows_that_are_consulted() -> None:
    X, y = smooth(60)
    known = np.random.default_rng(2).uniform(0.0, 0.1, len(X))
    model = CVGPRegressor(8, neighbors=100, **FIXED).fit(X, y, noise_variance=known)
    scale = model.gp_.scaling.y_scale[0]
    learned = model.model_.noise.item()
    X_new, _ = smooth(7, seed=1)
    expected, _ = exact(model, X, y, X_new, learned / (learned + known / scale**2))
    np.testing.assert_allclose(model.predict(X_new), expected[:, 0], atol=1e-7)


def test_a_prediction_does_not_depend_on_other_rows() -> None:
    X, y = smooth(400, dims=7)
    model = CVGPRegressor(20, neighbors=10, **FIXED).fit(X, y)
    X_new, _ = smooth(150, seed=1, dims=7)
    mean, sd = model.predict(X_new, return_std=True)
    alone = [model.predict(X_new[i : i + 1], return_std=True) for i in range(0, 150, 30)]
    np.testing.assert_allclose(mean[::30], [m[0] for m, _ in alone], rtol=1e-9)
    np.testing.assert_allclose(sd[::30], [s[0] for _, s in alone], rtol=1e-9)
    _, cov = model.predict(X_new, return_cov=True)
    np.testing.assert_allclose(np.sqrt(cov.diagonal()), sd, rtol=1e-9)


def test_every_kind_of_prediction_consults_the_neighbours() -> None:
    X, y = smooth(300)
    alone = CVGPRegressor(5, **FIXED).fit(X, y)
    model = CVGPRegressor(5, neighbors=8, **FIXED).fit(X, y)
    assert (alone.n_neighbors_, model.n_neighbors_) == (0, 8)
    X_new = X[:20]
    mean, sd = model.predict(X_new, return_std=True)
    assert np.abs(mean - alone.predict(X_new)).max() > 1e-4
    median = model.predict_quantiles(X_new, 0.5)
    np.testing.assert_allclose(median[:, 0], mean, rtol=1e-12)
    z = (y[:20] - mean) / sd
    np.testing.assert_allclose(
        model.log_predictive_density(X_new, y[:20]), -0.5 * z**2 - np.log(sd * np.sqrt(2 * np.pi))
    )
    draws = model.sample_y(X_new, 4000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * sd.max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.1)


@pytest.mark.parametrize("bad", [-1, 2.5, "many", True, None])
def test_what_is_no_number_of_neighbours_is_refused(bad: Any) -> None:
    X, y = smooth(20)
    with pytest.raises(CVGPError, match="neighbors must be"):
        CVGPRegressor(4, neighbors=bad).fit(X, y)


def test_too_many_rows_are_refused_and_auto_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvgp.training.neighbours.MOST_ROWS", 250)
    X, y = smooth(300)
    with pytest.raises(CVGPError, match="300 rows, and neighbours are for at most 250"):
        CVGPRegressor(4, neighbors=3, **FIXED).fit(X, y)
    model = CVGPRegressor(4, neighbors="auto", random_state=0).fit(X, y)
    assert model.n_neighbors_ == 0
    assert "at most 250" in choice_of(model)


def test_no_neighbours_are_the_fit_of_before() -> None:
    X, y = smooth(300)
    plain = CVGPRegressor(8, neighbors=0, **FIXED).fit(X, y)
    assert plain.n_neighbors_ == 0
    assert "neighbours" not in plain.history_["phase"]
    auto = CVGPRegressor(8, neighbors="auto", random_state=0).fit(X[:150], y[:150])
    assert "too few" in choice_of(auto)
    assert auto.n_neighbors_ == 0


@pytest.mark.parametrize("said", [{"max_iter": 10}, {"solver": "lbfgs"}, {"bound": "tight"}, {"early_stopping": True}])
def test_auto_fits_the_coreset_alone_where_the_user_says_how_to_train_it(said: dict[str, Any]) -> None:
    X, y = rough(300)
    auto, alone = (CVGPRegressor(8, neighbors=k, random_state=0, **said).fit(X, y) for k in ("auto", 0))
    assert auto.n_neighbors_ == 0
    assert (auto.predict(X) == alone.predict(X)).all()


def test_auto_keeps_neighbours_where_a_function_is_rough() -> None:
    X, y = rough(3000)
    X_new, y_new = rough(300, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CVGPRegressor(20, neighbors="auto", max_time=60, random_state=0).fit(X, y)
    assert model.n_neighbors_ == 20
    assert choice_of(model).startswith("20 neighbours: ")
    assert model.solver_ == "neighbours"
    assert np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)) < 0.2  # the noise alone is 0.1, and y is 0.5


def test_auto_drops_neighbours_where_the_coreset_says_all() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (1000, 2))
    y = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(1000)
    alone = CVGPRegressor(20, neighbors=0, noise="constant", random_state=0).fit(X, y)
    model = CVGPRegressor(20, noise="constant", random_state=0).fit(X, y)
    assert model.n_neighbors_ == 0
    assert choice_of(model).startswith("no neighbours")
    assert (model.predict(X) == alone.predict(X)).all()


def test_the_same_seed_gives_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvgp.training.refine.STEPS", 10)
    X, y = rough(400)
    first, second = (CVGPRegressor(5, neighbors=6, random_state=3).fit(X, y) for _ in range(2))
    assert (first.predict(X) == second.predict(X)).all()
    assert first.elbo_ == second.elbo_


def test_the_parameter_is_cloned() -> None:
    model = clone(CVGPRegressor(neighbors="auto"))
    assert model.get_params()["neighbors"] == "auto"
    assert model.set_params(neighbors=4).neighbors == 4


def test_more_neighbours_than_rows_are_all_rows() -> None:
    X, y = smooth(5)
    model = CVGPRegressor(2, neighbors=50, **FIXED).fit(X, y)
    assert np.isfinite(model.predict(X, return_std=True)).all()


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_saved_model_predicts_the_same_to_the_bit(tmp_path: Path, outputs: int) -> None:
    X, y = smooth(200)
    Y = y if outputs == 1 else np.column_stack([y, X[:, 0]])
    weight = np.linspace(0.5, 2.0, len(X))
    known = np.linspace(0.0, 0.1, len(X)) if outputs == 1 else None
    model = CVGPRegressor(6, neighbors=5, **FIXED).fit(X, Y, weight, known)
    model.save(tmp_path / "model.cvgp")
    again = cvgp.load(tmp_path / "model.cvgp")
    X_new, _ = smooth(30, seed=1)
    for kind in ({"return_std": True}, {"return_cov": True}):
        for before, after in zip(model.predict(X_new, **kind), again.predict(X_new, **kind), strict=True):
            assert (before == after).all()
    assert again.n_neighbors_ == 5
    assert again.neighbors == 5


@pytest.mark.parametrize("outputs", [1, 2])
def test_rows_that_float32_holds_take_half_of_the_file_and_come_back_to_the_bit(tmp_path: Path, outputs: int) -> None:
    X, y = (values.astype(np.float32).astype(np.float64) for values in smooth(200))
    Y = y if outputs == 1 else np.column_stack([y, X[:, 0]])
    model = CVGPRegressor(6, neighbors=5, noise="constant", **FIXED).fit(1024.0 * X, Y)
    model.save(tmp_path / "model.cvgp")
    arrays, _ = read_tensors(tmp_path / "model.cvgp")
    assert arrays["rows.x"].dtype == arrays["rows.y"].dtype == np.float32
    kept, again = (one.gp_.local.kept.rows for one in (model, cvgp.load(tmp_path / "model.cvgp")))  # type: ignore[union-attr]
    assert torch.equal(kept.x, again.x)
    assert torch.equal(kept.y, again.y)


def test_rows_that_float32_would_round_stay_in_float64(tmp_path: Path) -> None:
    X, y = smooth(200)
    CVGPRegressor(6, neighbors=5, **FIXED).fit(X, np.round(8.0 * y)).save(tmp_path / "model.cvgp")
    arrays, _ = read_tensors(tmp_path / "model.cvgp")
    assert (arrays["rows.x"].dtype, arrays["rows.y"].dtype) == (np.float64, np.float32)


def test_a_file_without_neighbours_holds_no_rows(tmp_path: Path) -> None:
    X, y = smooth(400)
    sizes = []
    for neighbors in (0, 3):
        CVGPRegressor(4, neighbors=neighbors, noise="constant", **FIXED).fit(X, y).save(tmp_path / "model.cvgp")
        arrays, _ = read_tensors(tmp_path / "model.cvgp")
        sizes.append(sum(len(array) == len(X) for array in arrays.values() if array.ndim))
    assert sizes == [0, 2]


@pytest.mark.parametrize("damage", ["x", "y", "weight", "count"])
def test_a_file_with_damaged_rows_is_refused(tmp_path: Path, damage: str) -> None:
    X, y = smooth(50)
    file = tmp_path / "model.cvgp"
    CVGPRegressor(4, neighbors=3, **FIXED).fit(X, y, np.linspace(1.0, 2.0, 50)).save(file)
    arrays, metadata = read_tensors(file)
    changed = dict(arrays)
    if damage == "x":
        changed["rows.x"] = arrays["rows.x"] * np.nan
    elif damage == "y":
        changed["rows.y"] = arrays["rows.y"][:-1]
    elif damage == "weight":
        changed["rows.sample_weight"] = -arrays["rows.sample_weight"]
    else:
        metadata["fit"]["n_neighbors"] = 0
    write_tensors(file, changed, metadata)
    with pytest.raises(FileFormatError, match="is damaged"):
        cvgp.load(file)


def test_a_pruned_or_grown_model_consults_the_rows_with_its_new_coreset() -> None:
    X, y = smooth(60)
    X_new, _ = smooth(7, seed=1)
    model = CVGPRegressor(8, neighbors=100, **FIXED).fit(X, y)
    expected, _ = exact(model, X, y, X_new)
    assert model.prune(tolerance=1.0) > 0
    assert model.n_neighbors_ == 100
    np.testing.assert_allclose(model.predict(X_new), expected[:, 0], atol=1e-7)
    # With all rows as neighbours, the bound is the log marginal likelihood, up to what M weights can express.
    before = model.elbo_
    model.grow(12, X, y)
    assert model.n_neighbors_ == 100
    assert model.elbo_ == pytest.approx(before, abs=2.0)
    np.testing.assert_allclose(model.predict(X_new), expected[:, 0], atol=1e-7)
    model.grow(14, X[:30], y[:30])
    np.testing.assert_allclose(model.predict(X_new), exact(model, X[:30], y[:30], X_new)[0][:, 0], atol=1e-7)


def test_growing_on_too_many_rows_says_that_neighbours_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = smooth(60)
    model = CVGPRegressor(8, neighbors=5, **FIXED).fit(X, y)
    monkeypatch.setattr("cvgp.training.neighbours.MOST_ROWS", 50)
    with pytest.warns(CVGPWarning, match="no longer does: there are 60 rows"):
        model.grow(10, X, y)
    assert model.n_neighbors_ == 0


def test_merging_says_that_neighbours_are_left_out() -> None:
    X, y = smooth(120)
    shards = [CVGPRegressor(8, neighbors=5, **FIXED).fit(X[i::2], y[i::2]) for i in range(2)]
    with pytest.warns(CVGPWarning, match="Models 1, 2 of 2 consult neighbours"):
        merged = cvgp.merge(shards)
    assert merged.n_neighbors_ == 0
    assert np.sqrt(np.mean((merged.predict(X) - y) ** 2)) < np.std(y)


def test_rows_that_are_not_in_memory_are_refused() -> None:
    source: Any = SimpleNamespace(num_rows=300)
    assert "read in parts" in reason_against(source)
    with pytest.raises(CVGPError, match=r"neighbors=3 cannot be: .*read in parts"):
        fit_with_neighbours(3, blank, source, Settings(), Watch())


def blank(folder: str | None) -> Any:
    raise AssertionError("no fit begins")


def test_statistics_are_those_of_all_rows_also_where_few_of_them_are_judged_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cvgp.training.refine.STEPS", 5)
    monkeypatch.setattr("cvgp.training.neighbour_rows.ROWS_FOR_U", 20)
    monkeypatch.setattr("cvgp.training.neighbour_rows.ROWS_FOR_U_PER_POINT", 1)
    X, y = smooth(250)
    model = CVGPRegressor(5, neighbors=4, random_state=0).fit(X, y)
    assert "with the refined kernel" in choice_of(model)
    kept = model.gp_.local.kept  # type: ignore[union-attr]
    expected, _ = adopt_neighbours(deepcopy(model.model_), kept.rows, 4)
    for found, other in zip(model.statistics_, expected.statistics, strict=True):
        torch.testing.assert_close(found, other)
