"""Gradient boosting that a fit keeps to compare with."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import FileFormatError
from cvgp.estimators import boosted_trees, noted_rows
from cvgp.estimators.boosted_trees import BoostedTrees, number_of_bins, rows_to_learn_from, seconds_to_learn
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.files.untrusted import Arrays
from cvgp.training.monitor import Watch

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)) * [1.0, 100.0, 1e-3]
Y = 5.0 + np.abs(X[:, 0]) + (X[:, 1] > 30.0) + 0.1 * RNG.normal(size=300)
NEW = RNG.normal(size=(500, 3)) * [1.0, 100.0, 1e-3]


def quick(**settings: Any) -> CVGPRegressor:
    return CVGPRegressor(6, max_iter=2, noise="constant", neighbors=0, random_state=0, **settings)


def learned(x: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> BoostedTrees:
    found = BoostedTrees.learn(x, y, weight)
    assert found is not None
    return found


def predicted(model: CVGPRegressor, x: np.ndarray) -> np.ndarray:
    return model.boosting_.predict(model.gp_.scaling.scale_x(x))[0]


def sklearn_trees(x: np.ndarray, y: np.ndarray) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(random_state=0, early_stopping=False).fit(x, y)


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return quick().fit(X, Y)


@pytest.fixture(scope="module")
def trees() -> BoostedTrees:
    return learned(X, Y)


@pytest.mark.parametrize("rows", [20, 45, 300])
def test_predictions_are_those_of_scikit_learn(rows: int) -> None:
    order = np.random.default_rng(0).permutation(rows)
    expected = sklearn_trees(X[order], Y[order])
    at = np.vstack([NEW, X])  # values of the training rows are near thresholds
    np.testing.assert_allclose(learned(X[:rows], Y[:rows]).predict(at)[0], expected.predict(at), rtol=1e-12)


def test_values_that_repeat_and_lie_on_thresholds_go_the_same_way() -> None:
    x = np.random.default_rng(1).integers(0, 5, size=(200, 2)).astype(float)
    y = x[:, 0] * x[:, 1]
    at = np.array([[a, b] for a in np.arange(-1.0, 6.0, 0.5) for b in np.arange(-1.0, 6.0, 0.5)])
    np.testing.assert_allclose(learned(x, y).predict(at)[0], sklearn_trees(x, y).predict(at), rtol=1e-12)


def test_the_standard_deviation_is_the_error_on_rows_that_were_held_out(trees: BoostedTrees) -> None:
    held, others = np.array_split(np.random.default_rng(0).permutation(300), [60])
    error = Y[held] - sklearn_trees(X[others], Y[others]).predict(X[held])
    assert trees.sd == pytest.approx(np.sqrt(np.mean(error**2)))
    assert trees.num_rows == 300


def test_of_many_cells_trees_learn_once_and_only_from_rows_that_were_not_held_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(boosted_trees, "CELLS_TO_LEARN_AGAIN", 800)
    monkeypatch.setattr(boosted_trees, "HELD_OUT", 40)
    found = learned(X, Y)
    others = np.random.default_rng(0).permutation(300)[40:]
    assert found.num_rows == 260
    np.testing.assert_allclose(found.predict(NEW)[0], sklearn_trees(X[others], Y[others]).predict(NEW), rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-200, 1e-20, 1e30, 1e119])
def test_units_of_the_target_do_not_matter(trees: BoostedTrees, unit: float) -> None:
    mean, sd = learned(X, unit * Y).predict(NEW)
    np.testing.assert_allclose(mean / unit, trees.predict(NEW)[0], rtol=1e-5)
    np.testing.assert_allclose(sd / unit, trees.sd, rtol=1e-5)


def test_a_row_of_weight_two_is_two_rows() -> None:
    weight = np.where(np.arange(300) < 100, 2.0, 1.0)
    twice = np.concatenate([np.arange(300), np.arange(100)])
    mean, _ = learned(X, Y, weight).predict(NEW)
    # Sums in float32 depend on the order of rows.
    np.testing.assert_allclose(mean, sklearn_trees(X[twice], Y[twice]).predict(NEW), rtol=1e-3)


@pytest.mark.parametrize("unit", [1e-300, 1e-3, 1.0, 1e300])
def test_rows_of_next_to_no_weight_do_not_count(unit: float) -> None:
    wrong = np.arange(300) >= 200
    weight = np.where(wrong, 1e-7, 1.0) * unit
    mean, _ = learned(X, np.where(wrong, 1e3, Y), weight).predict(NEW)
    assert np.abs(mean - Y.mean()).max() < 5.0


def test_fewer_than_twenty_rows_leave_no_trees() -> None:
    assert BoostedTrees.learn(X[:19], Y[:19]) is None
    assert not hasattr(quick().fit(X[:19], Y[:19]), "boosting_")


@pytest.mark.parametrize("value", [0.0, 3.0, -1e100])
def test_a_constant_target_has_a_finite_density(value: float) -> None:
    mean, sd = learned(X, np.full(300, value)).predict(NEW)
    np.testing.assert_allclose(mean, value)
    assert (sd > 0.0).all()


def test_a_scikit_learn_that_keeps_its_trees_elsewhere_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    written_down = boosted_trees._written_down
    monkeypatch.setattr(boosted_trees, "_written_down", lambda _: written_down(object()))
    assert BoostedTrees.learn(X, Y) is None
    assert not hasattr(quick().fit(X, Y), "boosting_")


def test_wide_tables_have_fewer_rows_and_bins() -> None:
    assert [rows_to_learn_from(D) for D in (1, 30, 200, 5000)] == [20_000, 20_000, 3000, 2000]
    assert [number_of_bins(D) for D in (1, 30, 60, 5000)] == [255, 255, 127, 32]
    wide = np.random.default_rng(0).normal(size=(40, 60))
    assert learned(wide, wide[:, 0]).feature.max() < 60


def test_a_fit_learns_the_trees_from_its_rows(model: CVGPRegressor, trees: BoostedTrees) -> None:
    np.testing.assert_allclose(predicted(model, X), trees.predict(X)[0], rtol=1e-6)


def test_values_that_many_rows_share_are_on_the_side_of_a_split_that_they_were_learned_on() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.integers(0, 900, 2000), np.maximum(rng.normal(5.0, 7.0, 2000), 0.0)]) / 7.0
    y = (x[:, 0] > 60.0) + 3.0 * (x[:, 1] > 0.0) + 0.1 * rng.normal(size=2000)
    model = quick(inputs="identity").fit(x, y)
    np.testing.assert_allclose(predicted(model, x), learned(x, y).predict(x)[0], rtol=1e-6)


def test_the_target_is_not_that_of_a_transform() -> None:
    model = quick(target="log").fit(X, np.exp(Y / 3.0))
    np.testing.assert_allclose(predicted(model, X), learned(X, np.exp(Y / 3.0)).predict(X)[0], rtol=1e-3)


def test_several_outputs_have_no_trees_and_a_later_fit_forgets_them() -> None:
    model = quick().fit(X, Y)
    assert hasattr(model, "boosting_")
    assert not hasattr(model.fit(X, np.column_stack([Y, Y])), "boosting_")


def test_numbers_whose_squares_overflow_leave_no_trees() -> None:
    assert not hasattr(quick().fit(1e200 * X, 1e140 * Y), "boosting_")


def test_without_time_there_are_no_trees() -> None:
    assert seconds_to_learn(300, 3) > 0.05
    assert not hasattr(quick(max_time=0.05).fit(X, Y), "boosting_")


def test_time_is_kept_back_for_trees_only_where_they_take_a_small_share_of_it() -> None:
    needed = seconds_to_learn(20_000, 30)
    assert needed < 1.0

    def kept(max_time: float | None, outputs: int = 1) -> float:
        watch = Watch(max_time)
        return noted_rows.seconds_to_note(20_000, 30, outputs, watch) - noted_rows.seconds_for_importance(30, watch)

    assert kept(100.0) == pytest.approx(needed)
    assert kept(needed) == kept(None) == kept(100.0, outputs=2) == 0.0


def test_growing_learns_the_trees_of_the_rows_that_are_given_and_pruning_keeps_them() -> None:
    model = quick().fit(X, Y)
    model.grow(8, X, -Y)
    assert predicted(model, NEW).max() < 0.0
    model.prune(0.5)
    assert model.condition(NEW[:3], NEW[:3, 0]).boosting_ is model.boosting_


def test_a_merged_model_has_no_trees() -> None:
    parts = [quick().fit(X[part], Y[part]) for part in (slice(0, 150), slice(150, 300))]
    assert not hasattr(cvgp.merge(parts), "boosting_")


def test_a_file_keeps_the_trees_to_the_bit(model: CVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    for again in (cvgp.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        for own, other in zip(again.boosting_, model.boosting_, strict=True):
            assert np.asarray(own).dtype == np.asarray(other).dtype
            np.testing.assert_array_equal(own, other)


def test_the_largest_trees_take_less_than_62_kb(trees: BoostedTrees) -> None:
    x = np.random.default_rng(0).normal(size=(2000, 4))
    found = learned(x, (x**2).sum(axis=1))
    assert found.sizes.sum() == boosted_trees.MOST_TREES * boosted_trees.MOST_NODES
    assert sum(array.nbytes for array in found.to_arrays().values()) < 62_000


def test_a_model_may_be_stored_without_them(model: CVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    bare = cvgp.load(tmp_path / "m")
    del bare.boosting_
    bare.save(tmp_path / "bare")
    assert not hasattr(cvgp.load(tmp_path / "bare"), "boosting_")
    assert not [name for name in read_tensors(tmp_path / "bare")[0] if name.startswith("boosting.")]


def changed(array: np.ndarray, place: int, value: Any) -> np.ndarray:
    found = array.copy()
    found[place] = value
    return found


FORGERIES: dict[str, tuple[str, Any]] = {
    "no rows": ("num_rows", lambda _: np.asarray(0)),
    "more rows than are ever learned from": ("num_rows", lambda _: np.asarray(10**6)),
    "rows as a fraction": ("num_rows", lambda _: np.asarray(3.0)),
    "a start that is no number": ("start", lambda _: np.asarray(np.nan)),
    "a start whose square is none": ("start", lambda _: np.asarray(1e200)),
    "an error of 0": ("sd", lambda _: np.asarray(0.0)),
    "an infinite error": ("sd", lambda _: np.asarray(np.inf)),
    "a tree without nodes": ("sizes", lambda a: changed(a, 0, 0)),
    "a tree with too many nodes": ("sizes", lambda a: changed(a, 0, 62)),
    "sizes that do not add up": ("feature", lambda a: a[:-1]),
    "many trees": ("sizes", lambda a: np.ones(101, np.uint8)),
    "no trees": ("sizes", lambda a: a[:0]),
    "a feature that is not there": ("feature", lambda a: changed(a, 0, 3)),
    "features in more bytes": ("feature", lambda a: a.astype(np.int32)),
    "a child in another tree": ("right", lambda a: changed(a, 0, 255)),
    "a child that is the node": ("right", lambda a: changed(a, 1, 1)),
    "both children the same": ("right", lambda a: changed(a, 0, 1)),
    "a child of two parents": ("right", lambda a: changed(a, 0, a[0] + 1)),
    "a child of no parent": ("right", lambda a: changed(a, 0, 0)),
    "right as floats": ("right", lambda a: a.astype(np.float32)),
    "a threshold that is no number": ("value", lambda a: changed(a, 0, np.nan)),
    "a value whose square is none": ("value", lambda a: changed(a, 0, 1e200)),
    "too few values": ("value", lambda a: a[:-1]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_trees_are_refused_by_the_name_of_the_field(model: CVGPRegressor, forgery: str, tmp_path: Path) -> None:
    name, change = FORGERIES[forgery]
    model.save(tmp_path / "m")
    arrays, metadata = read_tensors(tmp_path / "m")
    arrays[f"boosting.{name}"] = change(arrays[f"boosting.{name}"])
    write_tensors(tmp_path / "forged", arrays, metadata)
    with pytest.raises(FileFormatError, match=rf"boosting\.{name}"):
        cvgp.load(tmp_path / "forged")


@pytest.mark.parametrize("field", BoostedTrees._fields)
def test_trees_of_which_a_part_is_missing_are_refused(trees: BoostedTrees, field: str) -> None:
    arrays = Arrays({name: array for name, array in trees.to_arrays().items() if name != f"boosting.{field}"})

    def load() -> None:
        BoostedTrees.from_arrays(arrays, 3)
        arrays.close()

    with pytest.raises(FileFormatError, match=r"boosting\."):
        load()


def test_random_forgeries_are_refused_or_give_finite_predictions(trees: BoostedTrees) -> None:
    random, used = np.random.default_rng(0), 0
    for _ in range(300):
        arrays = trees.to_arrays()
        name = random.choice([f"boosting.{field}" for field in ("sizes", "feature", "right", "value")])
        arrays[name] = changed(arrays[name], random.integers(len(arrays[name])), random.integers(0, 64))
        try:
            found = BoostedTrees.from_arrays(Arrays(arrays), 3)
        except FileFormatError:
            continue
        assert found is not None
        used += 1
        assert np.isfinite(found.predict(NEW[:5])[0]).all()
    assert used > 0
