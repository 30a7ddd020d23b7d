"""What is on the page, as far as it can be told without a browser."""

import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

import cvgp
from cvgp import CVGPRegressor, TrainingOptions, metrics
from cvgp.errors import InvalidInputError
from cvgp.report.page import CHOICES
from tests.flat_options import make_regressor
from tests.report.conftest import IMAGE, SCRIPT, TARGET, Case

Data = tuple[np.ndarray, np.ndarray]


class Checked(HTMLParser):
    """Refuses elements that are not closed and handlers of events; collects ids, and references to them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "link")
        for name, value in attrs:
            assert not name.startswith("on")
            self.ids += [value or ""] if name == "id" else []
            self.references += re.findall(r"url\(#(.*?)\)", value or "")
            if name in ("href", "xlink:href", "src"):
                assert (value or "").startswith(("#", "data:image/png;"))
                self.references += [value[1:]] if value and value[0] == "#" else []
        if tag not in ("meta", "image", "use", "path", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("path", "rect"):
            assert self.open.pop() == tag


def test_elements_are_closed_and_nothing_is_fetched_or_run(case: Case) -> None:
    page = Checked(case.report.html)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.references) <= set(page.ids)
    assert "default-src 'none'" in case.report.html


def test_names_and_values_are_escaped_and_shortened(case: Case) -> None:
    for hostile in (SCRIPT, SCRIPT[:39], IMAGE, "<b title", "\u202e", "n" * 41):
        assert hostile not in case.report.html
    assert "&lt;img src=x onerror=alert(1)&gt;" in case.report.html


def test_the_scores_are_those_of_the_predictions(case: Case) -> None:
    mean, sd = case.model.predict(case.test, return_std=True)
    y = case.test[TARGET].to_numpy()
    assert case.report.scores["cvgp"]["rmse"] == pytest.approx(metrics.rmse(y, mean))
    assert case.report.scores["cvgp"]["crps"] == pytest.approx(metrics.crps(y, mean, sd))


def test_simple_models_are_trained_on_the_training_rows(case: Case) -> None:
    y, known = case.test[TARGET].to_numpy(), case.train[TARGET].to_numpy()
    assert case.report.scores["constant"]["rmse"] == pytest.approx(metrics.rmse(y, np.full(len(y), known.mean())))
    features = [
        np.column_stack([own.iloc[:, 0], pd.get_dummies(own["color"]), own.iloc[:, 2]])
        for own in (case.train, case.test)
    ]
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False).fit(features[0], known)
    assert case.report.scores["boosting"]["rmse"] == pytest.approx(metrics.rmse(y, trees.predict(features[1])))


def test_without_training_rows_there_is_no_boosting_and_all_else_is_the_same(case: Case, tmp_path: Path) -> None:
    case.model.save(tmp_path / "m")
    again = cvgp.load(tmp_path / "m").report(case.test, TARGET)
    assert again.scores == {name: own for name, own in case.report.scores.items() if name != "boosting"}
    again.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == again.html


def test_a_model_without_a_summary_is_reported_all_the_same(case: Case, tmp_path: Path) -> None:
    case.model.save(tmp_path / "m")
    bare = cvgp.load(tmp_path / "m")
    del bare._baselines, bare._feature_quantiles
    found = bare.report(case.test, TARGET)
    assert list(found.scores) == ["cvgp"]
    assert any("drift was not looked for" in words for words in found.cautions)


@pytest.mark.slow
def test_reports_in_threads_are_the_same_and_neither_change_nor_use_the_settings_of_matplotlib(case: Case) -> None:
    with mpl.rc_context({"axes.grid": True, "text.usetex": True}):
        before = dict(mpl.rcParams)
        with ThreadPoolExecutor(3) as threads:
            pages = [threads.submit(case.model.report, case.test, TARGET, train=(case.train, TARGET)) for _ in "abc"]
        assert dict(mpl.rcParams) == before
    assert {page.result().html for page in pages} == {case.report.html}


def test_the_page_of_many_rows_points_and_columns_is_small() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 12))
    y = X[:, 0] + rng.normal(size=2500)
    model = make_regressor(150, max_iter=1, n_neighbors=0, noise="constant", input_warp="identity", random_state=0)
    assert len(model.fit(X[:400], y[:400]).report(X, y).html.encode()) < 700_000


@pytest.fixture(scope="module")
def rows() -> Data:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (160, 2))
    return X, np.sin(8 * X[:, 0]) + 0.1 * rng.normal(size=160)


def test_a_page_about_several_outputs_is_about_the_chosen_one(rows: Data) -> None:
    X, y = rows
    Y = np.column_stack([y, -2.0 * y])
    model = CVGPRegressor(10, noise="constant", random_state=0, training=TrainingOptions(max_iter=5)).fit(X, Y)
    found = model.report(X, Y, output=1)
    assert "this page is about “y1” only" in found.html
    assert found.scores["cvgp"]["rmse"] == pytest.approx(metrics.rmse(Y[:, 1], model.predict(X)[:, 1]))
    with pytest.raises(InvalidInputError, match="one of the model's 2"):
        model.report(X, Y, output=2)


def test_a_model_with_neighbors_recognizes_its_own_training_rows(rows: Data) -> None:
    X, y = rows
    model = CVGPRegressor(5, n_neighbors=4, max_time=2.0, noise="constant", random_state=0).fit(X[:120], y[:120])
    found = model.report(X[100:], y[100:])
    assert any("33% of these rows are training rows" in words for words in found.cautions)
    assert "boosting" not in found.scores


def test_one_row_of_one_column_can_be_reported() -> None:
    X = np.linspace(0, 1, 20)[:, None]
    model = make_regressor(4, max_iter=3, noise="constant", random_state=0).fit(X, X[:, 0])
    Checked(model.report(X[:1], X[:1, 0]).html)


def test_a_target_of_another_name_is_refused(case: Case) -> None:
    with pytest.raises(InvalidInputError, match="The model predicts"):
        case.model.report(case.test, "color")


def test_the_page_shows_what_the_fit_decided() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    model = CVGPRegressor(5, random_state=0, training=TrainingOptions(max_iter=5)).fit(X, X[:, 0])
    html = model.report(X, X[:, 0]).html
    assert "What did the fit decide?" in html
    assert all(f">{CHOICES.get(name, name)}<" in html for name, _ in model.decisions_)
    del model.decisions_
    assert "What did the fit decide?" not in model.report(X, X[:, 0]).html
