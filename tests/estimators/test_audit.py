"""Rows that are set aside: what they decide, how they calibrate, and that they end up in the model."""

import copy
import warnings

import numpy as np
import pytest

from cvgp import CVGPRegressor, TrainingOptions, load, merge
from cvgp.data.rows import Rows
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.estimators.audit import draw_audit
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run


def waves(num_rows: int, seed: int = 0, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-3, 3, size=(num_rows, 2))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + noise * rng.normal(size=num_rows)


def coverage(model: CVGPRegressor, x: np.ndarray, y: np.ndarray, **options: str) -> float:
    low, high = model.predict_interval(x, level=0.9, **options).T
    return float(np.mean((low <= y) & (y <= high)))


# Drawing


def test_a_tenth_of_the_rows_is_set_aside_whatever_their_order() -> None:
    x, y = waves(1000)
    order = np.random.default_rng(5).permutation(1000)
    rows, shuffled = Rows(x, y[:, None]), Rows(x[order], y[order, None])
    (kept, audit), (_, same) = (draw_audit(r, Heuristics(), np.random.default_rng(1)) for r in (rows, shuffled))
    assert audit is not None
    assert same is not None
    assert (len(kept.x), len(audit.x)) == (900, 100)
    assert {tuple(row) for row in audit.x} == {tuple(row) for row in same.x}
    assert not {tuple(row) for row in audit.x} & {tuple(row) for row in kept.x}


def test_some_copies_of_a_row_are_set_aside_and_others_are_learned_from() -> None:
    x, y = waves(600)
    rows = Rows(x, y[:, None], np.full(600, 20.0))
    kept, audit = draw_audit(rows, Heuristics(), np.random.default_rng(0))
    assert audit is not None
    assert kept.sample_weight is not None
    assert audit.sample_weight is not None
    assert len(kept.x) == 600
    assert kept.sample_weight.sum() + audit.sample_weight.sum() == 12_000
    assert audit.sample_weight.sum() == pytest.approx(1200, abs=150)


def test_few_rows_are_all_learned_from() -> None:
    x, y = waves(499)
    kept, audit = draw_audit(Rows(x, y[:, None]), Heuristics(), np.random.default_rng(0))
    assert audit is None
    assert len(kept.x) == 499


# The fit


@pytest.mark.parametrize("neighbors", [0, 20])
@pytest.mark.slow
def test_rows_that_were_set_aside_are_in_the_model_at_last(neighbors: int) -> None:
    x, y = waves(700)
    model = CVGPRegressor(n_coreset=60, n_neighbors=neighbors, noise="constant", random_state=0).fit(x, y)
    assert model.n_rows_ == 700
    assert len(model.coreset_) == 60
    if neighbors:
        assert len(model._gp.kept.rows.x) == 700


@pytest.mark.slow
def test_added_rows_make_the_coreset_that_all_rows_would() -> None:
    """At the same kernel and points, adding the audit rows is a solve with all rows."""
    x, y = waves(800)
    model = CVGPRegressor(n_coreset=30, n_neighbors=0, noise="constant", random_state=0).fit(x, y)
    again = CVGPRegressor(n_coreset=30, n_neighbors=0, noise="constant", random_state=0).fit(x, y)
    again.prune(0.0)
    again.grow(31, x, y)
    new = waves(50, seed=1)[0]
    np.testing.assert_allclose(model.predict(new), again.predict(new), atol=0.02)


def test_no_rows_are_set_aside_for_the_papers_recipe() -> None:
    x, y = waves(600)
    options = TrainingOptions(solver="paper", max_iter=3)
    model = CVGPRegressor(n_coreset=10, training=options, random_state=0).fit(x, y)
    assert model.decisions_.audit is None
    assert model._gp.calibration is None
    np.testing.assert_array_equal(model.predict_interval(x), model.predict_interval(x, interval="model"))


def test_a_fit_with_known_decisions_is_calibrated_alike() -> None:
    x, y = waves(600)
    model = CVGPRegressor(random_state=0).fit(x, y)
    again = CVGPRegressor(random_state=0).fit(x, y, decisions=model.decisions_)
    np.testing.assert_allclose(again.predict_interval(x), model.predict_interval(x), atol=1e-10)


@pytest.mark.slow
def test_intervals_hold_where_the_noise_is_misjudged() -> None:
    """Copies of rows in which y differs: a fit that takes them for repeated measurements is too sure of itself."""
    rng = np.random.default_rng(0)
    distinct = rng.normal(size=(900, 4)).round(1)
    which = rng.zipf(1.6, size=6000) % 900
    x = distinct[which]
    y = np.sin(2 * x[:, 0]) + x[:, 1] + np.exp(0.5 * x[:, 2] - 1.0) * rng.standard_t(4, size=6000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CVGPWarning)
        model = CVGPRegressor(random_state=0).fit(x[:4000], y[:4000])
    assert 0.87 < coverage(model, x[4000:], y[4000:]) < 0.93


@pytest.mark.slow
def test_the_audit_is_told_in_words() -> None:
    x, y = waves(2500)
    model = CVGPRegressor(random_state=0).fit(x, y)
    choice = model.decisions_.audit
    assert choice is not None
    assert choice.taken == "passed"
    assert "125 unseen rows" in choice.reason
    assert "audit" in str(model.decisions_)


@pytest.mark.slow
def test_a_line_is_taken_where_it_is_better() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 30))
    y = x @ rng.normal(size=30) + 0.05 * rng.normal(size=1500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the first fit
        model = CVGPRegressor(n_coreset=60, n_neighbors=0, random_state=0).fit(x[:1400], y[:1400])
    choice = model.decisions_.audit
    assert choice is not None
    assert choice.taken == "a line"
    assert np.sqrt(np.mean((model.predict(x[1400:]) - y[1400:]) ** 2)) < 0.1


def wide(num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 150))
    return x, np.sin(x[:, 0]) + 0.3 * rng.normal(size=num_rows)


def test_intervals_hold_where_rows_are_few_for_the_columns() -> None:
    x, y = wide(1120)
    model = CVGPRegressor(random_state=0).fit(x[:120], y[:120])
    assert coverage(model, x[120:], y[120:]) > 0.82


def test_a_kernel_that_reproduces_its_rows_is_found_out() -> None:
    """With more columns than rows, a linear kernel promises a hundredth of its error for each row that is left out."""
    x, y = wide(1120)
    with pytest.warns(CVGPWarning, match="too narrow"):
        model = CVGPRegressor(kernel="linear", random_state=0).fit(x[:120], y[:120])
    assert coverage(model, x[120:], y[120:], interval="model") < 0.2
    assert coverage(model, x[120:], y[120:]) > 0.5


# A calibration of one's own


def test_calibrating_repairs_intervals_for_other_rows(tmp_path: object) -> None:
    x, y = waves(400)
    model = CVGPRegressor(random_state=0).fit(x, y)
    x_new, y_new = waves(3000, seed=1, noise=0.9)
    assert coverage(model, x_new, y_new) < 0.6
    model.calibrate(x_new[:1000], y_new[:1000])
    assert 0.87 < coverage(model, x_new[1000:], y_new[1000:]) < 0.93
    assert coverage(model, x_new, y_new, interval="model") < 0.6
    path = tmp_path / "model.cvgp"  # type: ignore[operator]
    model.save(path)
    np.testing.assert_array_equal(load(path).predict_interval(x_new), model.predict_interval(x_new))


def test_calibrating_by_groups_covers_new_groups() -> None:
    """Each group has an offset of its own, which rows of other groups tell nothing about."""
    rng = np.random.default_rng(1)

    def draw(groups: range) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        which = np.repeat(list(groups), 30)
        offsets = dict(zip(groups, rng.normal(size=len(groups)), strict=True))
        x = rng.uniform(-3, 3, size=(len(which), 1))
        return x, np.sin(x[:, 0]) + np.array([offsets[g] for g in which]) + 0.1 * rng.normal(size=len(which)), which

    x, y, _ = draw(range(10))
    model = CVGPRegressor(random_state=0).fit(x, y)
    x_new, y_new, groups = draw(range(10, 50))
    model.calibrate(x_new, y_new, groups=groups)
    x_test, y_test, _ = draw(range(50, 150))
    assert 0.83 < coverage(model, x_test, y_test) < 0.97


@pytest.mark.parametrize("neighbors", [0, 20])
@pytest.mark.slow
def test_pruning_growing_and_conditioning_keep_a_calibration_that_still_holds(neighbors: int) -> None:
    (x, y), (noisy, y_noisy), (new, y_new) = waves(700), waves(2000, 1, noise=0.6), waves(4000, 2, noise=0.6)
    model = CVGPRegressor(60, n_neighbors=neighbors, noise="constant", random_state=0).fit(x[:600], y[:600])
    model.calibrate(noisy, y_noisy)
    assert coverage(model, new, y_new, interval="model") < 0.75
    conditioned, grown, pruned = model.condition(x[600:], y[600:]), copy.deepcopy(model), copy.deepcopy(model)
    grown.grow(100, x, y)
    assert pruned.prune(0.05) > 20
    for changed in (model, conditioned, grown, pruned):
        assert 0.87 < coverage(changed, new, y_new) < 0.93


def test_a_merged_model_has_its_own_intervals_until_it_is_calibrated() -> None:
    x, y = waves(800)
    shards = [CVGPRegressor(30, n_neighbors=0, noise="constant", random_state=0).fit(x[i::2], y[i::2]) for i in (0, 1)]
    merged = merge(shards)
    both = [merged.predict_interval(x, interval=name) for name in ("conformal", "model")]
    np.testing.assert_array_equal(*both)
    new, y_new = waves(400, seed=1, noise=0.6)
    assert coverage(merged.calibrate(new, y_new), *waves(2000, seed=2, noise=0.6)) > 0.87


def test_bad_calls_of_calibrate_and_intervals_are_refused() -> None:
    x, y = waves(60)
    model = CVGPRegressor(random_state=0).fit(x, y)
    with pytest.raises(InvalidInputError, match="one entry for each of the 60 rows"):
        model.calibrate(x, y, groups=[1, 2])
    with pytest.raises(InvalidInputError, match="'conformal' or 'model'"):
        model.predict_interval(x, interval="exact")  # type: ignore[arg-type]


@pytest.mark.parametrize("has_time", [True, False], ids=["fitted again", "conditioned"])
@pytest.mark.slow
def test_audit_rows_become_points_of_an_exact_gp(has_time: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise, a row that is known only by sums over other points would be missed by far."""
    if not has_time:
        monkeypatch.setattr(Run, "has_time", False)
    x = np.random.default_rng(0).normal(size=(600, 3))
    y = np.sin(4.0 * x).sum(axis=1)
    model = CVGPRegressor(random_state=0, n_neighbors=0).fit(x, y)
    assert len(model.coreset_) == 600
    assert model.n_rows_ == 600
    assert np.abs(model.predict(x) - y).max() < 0.05
    assert model.log_predictive_density(x, y).mean() > 1.0
