"""CVGPClassifier: probabilities against other libraries, tables, weights, files, and labels that cannot be used."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, make_moons
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import Matern
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_score

import cvgp
from cvgp import CVGPClassifier, CVGPRegressor, Heuristics, TrainingOptions
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.estimators.persistence import save


def moons(num_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_moons(num_rows, noise=0.3, random_state=seed)
    return X, y


def test_probabilities_are_those_of_scikit_learns_gp_and_better_than_a_line() -> None:
    (X, y), (X_new, y_new) = moons(300), moons(2000, seed=1)
    model = CVGPClassifier(random_state=0).fit(X, y)
    exact = GaussianProcessClassifier(10.0 * Matern(1.0, nu=1.5), random_state=0).fit(X, y)
    line = LogisticRegression().fit(X, y)
    ours, theirs, lines = (log_loss(y_new, one.predict_proba(X_new)) for one in (model, exact, line))
    assert ours < theirs + 0.01
    assert ours < lines - 0.05
    assert np.abs(model.predict_proba(X_new) - exact.predict_proba(X_new)).mean() < 0.05
    assert model.left_out_log_loss_ == pytest.approx(ours, abs=0.06)


def test_probabilities_are_undecided_far_from_the_data() -> None:
    X, y = moons(400)
    kept = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:50]])
    model = CVGPClassifier(random_state=0).fit(X[kept], y[kept])
    far = model.predict_proba([[50.0, -80.0]])[0, 1]
    assert 0.05 < far < 0.5  # on the side of the more frequent class
    assert np.abs(model.predict_proba(X).max(1)).mean() > 0.85


def test_several_classes_and_their_labels() -> None:
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = CVGPClassifier(random_state=0).fit(X[::2], names[::2])
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    assert model.score(X[1::2], names[1::2]) > 0.93
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert len(model.coresets_) == 3
    assert model.decision_function(X).shape == (150, 3)


def test_a_table_with_text_gaps_and_the_label_as_a_column() -> None:
    rng = np.random.default_rng(0)
    color = rng.choice(["red", "blue", "green"], 400)
    size = rng.normal(size=400)
    is_good = rng.uniform(size=400) < 1 / (1 + np.exp(-3 * (size + (color == "red"))))
    frame = pd.DataFrame({"color": color, "size": size, "good": np.where(is_good, "yes", "no")})
    frame.loc[5:20, "size"] = np.nan
    model = CVGPClassifier(random_state=0).fit(frame, "good")
    assert list(model.feature_names_in_) == ["color", "size"]
    assert model.score(frame[["color", "size"]], frame["good"]) > 0.8
    assert np.isfinite(model.predict_proba(pd.DataFrame({"color": ["red", "blue"], "size": [np.nan, 1.0]}))).all()


def colored_table(num_rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Three classes that depend on a number with gaps, and on text of many levels."""
    rng = np.random.default_rng(seed)
    city, size = rng.choice([f"c{i}" for i in range(30)], num_rows), rng.normal(size=num_rows)
    z = size + (city < "c2") + 0.3 * rng.normal(size=num_rows)
    kind = np.select([z > 1.0, z > 0.0], ["big", "middle"], "small")
    size[3] = np.nan
    return pd.DataFrame({"city": city, "size": size, "other": rng.normal(size=num_rows), "kind": kind})


def test_a_table_in_a_file_gives_the_model_of_a_frame(tmp_path: Path) -> None:
    frame = colored_table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    options = {"n_coreset": 12, "random_state": 0}
    of_frame = CVGPClassifier(**options).fit(frame, "kind")
    of_file = CVGPClassifier(**options).fit(tmp_path / "a.csv", "kind")
    np.testing.assert_array_equal(of_file.predict_proba(frame), of_frame.predict_proba(frame))
    assert of_file.schema_["target"] == of_frame.schema_["target"] == "kind"
    np.testing.assert_allclose(of_file.class_prior_, frame["kind"].value_counts(normalize=True).sort_index())


def test_rows_without_a_label_are_left_out(tmp_path: Path) -> None:
    frame = colored_table()
    frame.loc[[5, 9], "kind"] = None
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.warns(CVGPWarning, match="missing in 2 of"):
        model = CVGPClassifier(n_coreset=5, random_state=0).fit(tmp_path / "a.csv", "kind")
    assert (model.n_rows_, model.n_bad_rows_) == (298, 2)
    with pytest.warns(CVGPWarning, match="missing in 2 of"):
        of_labels = CVGPClassifier(n_coreset=5, random_state=0).fit(frame.drop(columns="kind"), frame["kind"])
    assert of_labels.elbo_ == model.elbo_


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(["1", "2", "10"], [1, 2, 10]), (["0.5", "2", "1"], [0.5, 1.0, 2.0]), (["true", "false"], [False, True])],
)
def test_labels_of_a_text_file_are_numbers_or_true_and_false(
    labels: list[str], classes: list[object], tmp_path: Path
) -> None:
    frame = pd.DataFrame({"x": np.arange(60) % 7 + 0.5, "y": [labels[i % len(labels)] for i in range(60)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert CVGPClassifier(n_coreset=5, random_state=0).fit(tmp_path / "a.csv", "y").classes_.tolist() == classes


@pytest.mark.parametrize(("label", "found"), [("a", r"\['a'\]"), (None, "none")])
def test_one_class_or_none_in_a_file_is_refused(label: str | None, found: str, tmp_path: Path) -> None:
    pd.DataFrame({"x": np.arange(30.0), "y": label}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(InvalidInputError, match=f"at least two classes; column 'y' has {found}"):
        CVGPClassifier().fit(tmp_path / "a.csv", "y")


def test_text_among_labels_that_are_numbers_is_a_bad_row(tmp_path: Path) -> None:
    rows = [f"{i % 7}.5,{i % 2}" for i in range(200)]
    rows[40] = "1.5,oops"
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows]))
    with pytest.raises(InvalidInputError, match="data row 41: column 'y' is infinite or not a number: it holds 'oops'"):
        CVGPClassifier().fit(tmp_path / "a.csv", "y")


def test_importance_is_that_of_the_latent_values_and_is_in_the_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 3))
    y = rng.uniform(size=400) < 1 / (1 + np.exp(-8 * X[:, 0] - 4 * X[:, 1]))
    model = CVGPClassifier(n_coreset=20, kernel="linear", random_state=0).fit(X, y)
    # Of a linear function of independent columns, the shares are those of the squared slopes; in a sample, nearly.
    squares = (model._gp.mean(np.eye(3)) - model._gp.mean(np.zeros((1, 3))))[:, 0] ** 2
    np.testing.assert_allclose(model.feature_importances_, squares / squares.sum(), atol=0.12)
    assert model.feature_importances_.argmax() == 0
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(cvgp.load(tmp_path / "m").feature_importances_, model.feature_importances_)


@pytest.mark.slow
def test_a_class_that_a_fold_lacks_leaves_the_others_scored() -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.warns(UserWarning, match="least populated class"):
        folds = list(StratifiedKFold(2).split(X[:101], y[:101]))  # the third class has one row
    scores = cross_val_score(CVGPClassifier(n_coreset=8, random_state=0), X[:101], y[:101], cv=folds)
    assert scores.min() > 0.95
    with pytest.raises(InvalidInputError, match="at least two"):
        CVGPClassifier().fit(X[:50], y[:50])


@pytest.mark.slow
def test_weights_are_copies_and_classes_have_weights() -> None:
    X, y = moons(200)
    weight = np.where(np.arange(200) < 100, 3.0, 1.0)
    copies = np.concatenate([np.arange(200), np.arange(100), np.arange(100)])
    options = {"n_coreset": 20, "kernel": "rbf", "input_warp": "identity", "random_state": 0}
    weighted = CVGPClassifier(**options).fit(X, y, sample_weight=weight)
    copied = CVGPClassifier(**options).fit(X[copies], y[copies])
    assert weighted.n_rows_ == copied.n_rows_ == 400
    assert np.abs(weighted.predict_proba(X) - copied.predict_proba(X)).mean() < 0.03
    rare = np.flatnonzero((y == 0) | (np.arange(200) < 30))
    plain = CVGPClassifier(**options).fit(X[rare], y[rare]).predict_proba(X)[:, 1].mean()
    balanced = CVGPClassifier(**options, class_weight="balanced").fit(X[rare], y[rare]).predict_proba(X)[:, 1].mean()
    assert balanced > plain + 0.05


def test_weights_of_classes_are_not_in_a_file(tmp_path: Path) -> None:
    X, y = moons(60)
    model = CVGPClassifier(n_coreset=8, random_state=0, class_weight={0: 1.0, 1: 2.0}).fit(X, y)
    model.save(tmp_path / "model.cvgp")
    again = cvgp.load(tmp_path / "model.cvgp")
    assert again.class_weight is None
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("labels", [[0, 1], ["a", "b"], [True, False], [3, 7, 9]])
def test_a_file_gives_the_same_classes_and_probabilities(labels: list[object], tmp_path: Path) -> None:
    X, _ = moons(90)
    y = np.array(labels)[np.arange(90) % len(labels)]
    model = CVGPClassifier(n_coreset=10, random_state=0).fit(X, y)
    model.save(tmp_path / "model.cvgp")
    again = cvgp.load(tmp_path / "model.cvgp")
    assert isinstance(again, CVGPClassifier)
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert str(again.decisions_) == str(model.decisions_)


def test_few_rows_of_many_columns_are_no_worse_than_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 20))
    y = (rng.uniform(size=1100) < 1 / (1 + np.exp(-2 * X[:, :4].sum(1)))).astype(int)
    model = CVGPClassifier(random_state=0).fit(X[:150], y[:150])
    line = LogisticRegression().fit(X[:150], y[:150])
    ours, theirs = (log_loss(y[150:], one.predict_proba(X[150:])) for one in (model, line))
    assert ours < theirs + 0.03
    assert "linear" in model.decisions_.kernel.candidates


@pytest.mark.slow
def test_steps_in_the_log_odds_get_a_rough_kernel() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 6))
    f = 4.0 * (X[:, 0] > 0.3) - 3.0 * (X[:, 1] > 0.0) * (X[:, 2] < 0.5) - 1.0
    y = (rng.uniform(size=4000) < 1 / (1 + np.exp(-f))).astype(int)
    model = CVGPClassifier(random_state=0).fit(X[:2000], y[:2000])
    smooth = CVGPClassifier(kernel="matern32", random_state=0).fit(X[:2000], y[:2000])
    assert model.kernel_name_ == "matern32+matern12"
    ours, other = (log_loss(y[2000:], one.predict_proba(X[2000:])) for one in (model, smooth))
    assert ours < other


def test_a_time_limit_is_kept() -> None:
    X, y = moons(6000)
    model = CVGPClassifier(random_state=0, max_time=0.05).fit(X, y)
    rounds = model.history_["phase"] == "sites"
    assert not model.converged_
    assert rounds.sum() < 5  # without a limit there are more
    assert log_loss(y, model.predict_proba(X)) < 0.4


def test_a_fit_that_has_no_time_to_solve_with_all_rows_warns() -> None:
    X, y = moons(2000)
    few = TrainingOptions(heuristics=Heuristics(latent_rows=300))
    with pytest.warns(CVGPWarning, match="solved for with all rows"):
        model = CVGPClassifier(10, random_state=0, max_time=1e-3, training=few).fit(X, y)
    assert not model.converged_
    assert log_loss(y, model.predict_proba(X)) < 0.4


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(20), "at least two"),
        (np.linspace(0, 1, 20), "continuous|Unknown label type"),
        (np.arange(20.0) * np.nan, "none of its 20 rows has a target"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(y: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CVGPClassifier().fit(np.arange(40.0).reshape(20, 2), y)


@pytest.mark.parametrize(
    "y",
    [
        np.array([0, 1] * 20, dtype=object),
        pd.Series([0, 1] * 20, dtype="Int64"),
        pd.Series([0, 1] * 20, dtype="category"),
        [0, 1] * 20,
    ],
    ids=["objects", "Int64", "category", "list"],
)
def test_whole_numbers_in_any_container_are_classes(y: Any) -> None:
    X = np.tile([[0.0], [1.0]], (20, 1)) + np.linspace(0, 0.1, 40)[:, None]
    model = CVGPClassifier(5, random_state=0).fit(X, y)
    assert model.classes_.tolist() == [0, 1]
    assert model.classes_.dtype.kind == "i"
    assert model.score(X, [0, 1] * 20) == 1.0


@pytest.mark.parametrize(
    "y",
    [
        [np.nan, *["a", "b"] * 20],
        np.array([None, *[False, True] * 20]),
        pd.Series([None, *[0, 1] * 20], dtype="Int64"),
        pd.Series([None, *[False, True] * 20], dtype="boolean"),
        pd.Series([None, *["a", "b"] * 20], dtype="string"),
    ],
    ids=["list of text", "objects", "Int64", "boolean", "string"],
)
def test_a_missing_label_in_any_container_is_no_class(y: Any) -> None:
    X = np.arange(41.0)[:, None] % 7
    with pytest.warns(CVGPWarning, match="missing in 1 of"):
        model = CVGPClassifier(5, random_state=0).fit(X, y)
    assert len(model.classes_) == 2
    assert model.n_rows_ == 40


def test_labels_of_several_types_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"several types \(int, str\)"):
        CVGPClassifier().fit(np.arange(40.0)[:, None], [1, "one"] * 20)


def test_dates_are_no_labels() -> None:
    days = np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")
    with pytest.raises(InvalidTypeError, match="y holds dates"):
        CVGPClassifier().fit(np.arange(40.0)[:, None], np.tile(days, 20))


def test_too_many_classes_files_and_subclasses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="500 different classes"):
        CVGPClassifier().fit(np.arange(1000.0).reshape(500, 2), [f"c{i}" for i in range(500)])
    with pytest.raises(InvalidInputError, match=r"y='c' must be a column of X.*columns a, b"):
        CVGPClassifier().fit(pd.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]}), "c")

    class Other(CVGPRegressor):
        pass

    with pytest.raises(InvalidTypeError, match="Other"):
        save(Other(), tmp_path / "x.cvgp")
