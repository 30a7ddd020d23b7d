"""The page about a classifier: its scores, its sections, and what it warns of."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

import cvgp
from cvgp import CVGPClassifier, metrics
from cvgp.errors import InvalidInputError
from tests.report.conftest import IMAGE, SCRIPT, ClassCase
from tests.report.test_page import Checked

Data = tuple[np.ndarray, np.ndarray]


def rows(num_rows: int, seed: int) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(num_rows, 2))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=num_rows) > 0.0, "yes", "no")


@pytest.fixture(scope="module")
def model() -> CVGPClassifier:
    return CVGPClassifier(10, random_state=0).fit(*rows(300, 0))


def test_elements_are_closed_and_labels_are_escaped(class_case: ClassCase) -> None:
    page = Checked(class_case.report.html)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.references) <= set(page.ids)
    assert {"quality", "confusion", "relevance"} <= set(page.ids)
    for hostile in (SCRIPT, SCRIPT[:39], IMAGE, "\u202e"):
        assert hostile not in class_case.report.html


def test_the_scores_are_those_of_the_probabilities(class_case: ClassCase) -> None:
    codes = np.searchsorted(class_case.model.classes_, class_case.test["kind"])
    p = class_case.model.predict_proba(class_case.test)
    assert class_case.report.scores["cvgp"] == pytest.approx(metrics.class_scores(codes, p))
    shares = class_case.train["kind"].value_counts(normalize=True).sort_index().to_numpy()
    assert class_case.report.scores["frequencies"]["brier"] == pytest.approx(
        np.square(shares - np.eye(3)[codes]).sum(axis=1).mean()
    )
    assert set(class_case.report.scores) == {"cvgp", "frequencies", "boosting", "linear"}


def test_boosting_is_trained_on_the_training_rows(model: CVGPClassifier) -> None:
    (X, y), (X_new, y_new) = rows(300, 0), rows(200, 1)
    trees = HistGradientBoostingClassifier(random_state=0, early_stopping=False)
    order = np.random.default_rng(0).permutation(len(X))
    expected = (trees.fit(X[order], y[order]).predict(X_new) == y_new).mean()
    assert model.report(X_new, y_new, train=(X, y)).scores["boosting"]["accuracy"] == pytest.approx(expected)


def test_the_confusion_table_counts_the_rows(class_case: ClassCase) -> None:
    section = class_case.report.html.split('id="confusion"')[1].split("</section>")[0]
    counts = [int(cell.split("</td>")[0]) for cell in section.split("<td>")[1:]]
    predicted = class_case.model.predict(class_case.test)
    classes = class_case.model.classes_
    expected = [((class_case.test["kind"] == a) & (predicted == b)).sum() for a in classes for b in classes]
    assert counts == expected


def test_rows_like_the_training_rows_give_no_caution(model: CVGPClassifier) -> None:
    assert model.report(*rows(300, 1)).cautions == []


def test_unlike_rows_and_poor_probabilities_are_reported(model: CVGPClassifier) -> None:
    X, y = rows(300, 1)
    drifted = " ".join(model.report(X[y == "yes"], y[y == "yes"]).cautions)
    assert "The target is distributed differently" in drifted
    wrong = " ".join(model.report(X, np.where(y == "yes", "no", "yes"), train=rows(300, 0)).cautions)
    assert "The class frequencies have a lower log loss" in wrong
    assert "off on average" in wrong
    same = " ".join(model.report(*rows(300, 0), train=rows(300, 0)).cautions)
    assert "100% of these rows are training rows" in same


def test_unseen_labels_and_other_outputs_are_refused(model: CVGPClassifier) -> None:
    X, y = rows(20, 1)
    with pytest.raises(InvalidInputError, match=r"not fitted with: \['maybe'\]"):
        model.report(X, np.where(y == "yes", "maybe", y))
    with pytest.raises(InvalidInputError, match="output must be"):
        model.report(X, y, output=1)


def test_a_loaded_classifier_makes_the_same_page(model: CVGPClassifier, tmp_path: object) -> None:
    model.save(f"{tmp_path}/m")
    X, y = rows(100, 1)
    assert cvgp.load(f"{tmp_path}/m").report(X, y).html == model.report(X, y).html
