"""What is on the page, as far as it can be told without a browser."""

import re
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

import cvgp
from cvgp import CVGPRegressor, metrics
from cvgp.errors import InvalidInputError
from cvgp.estimators.inputs import check_prediction
from tests.report.conftest import IMAGE, SCRIPT, Case

SECTIONS = [
    "warnings",
    "scores",
    "quality",
    "errors",
    "coreset",
    "relevance",
    "dependence",
    "rests",
    "training",
    "model",
]
VOID = {"meta", "br", "img", "link", "input"}


class Checked(HTMLParser):
    """Refuses elements that are not closed, and ids that two elements have; notes what there is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.references: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.tags.append(tag)
        self.ids += [own["id"]] if own.get("id") else []
        self.references += (own.get("aria-labelledby") or "").split()
        self.references += [own["href"][1:]] if (own.get("href") or "").startswith("#") else []
        assert not [name for name in own if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_elements_are_closed_and_references_lead_somewhere(case: Case) -> None:
    page = Checked(case.report.html)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.references) <= set(page.ids)


def test_all_sections_are_there_in_their_order(case: Case) -> None:
    assert re.findall(r"<section aria-labelledby='([\w-]+)'", case.report.html) == SECTIONS


def test_every_chart_has_a_title_a_description_and_a_table(case: Case) -> None:
    page = case.report.html
    charts = re.findall(r"<svg .*?</svg>", page)
    assert len(charts) > 10
    assert all("<title" in chart and "<desc" in chart for chart in charts)
    # The explorer's table is the one of its points.
    assert page.count("<summary>The numbers as a table</summary>") == len(charts) - 1


def test_nothing_is_fetched_and_one_script_may_run(case: Case) -> None:
    page = case.report.html
    assert not re.findall(r"(?:src|href)=['\"](?!#)", page)
    assert "url(http" not in page
    assert re.search(r"content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-[\w+/=]+'", page)
    assert page.count("<script") == 1


def test_names_and_values_are_escaped(case: Case) -> None:
    assert SCRIPT not in case.report.html
    assert IMAGE not in case.report.html
    assert "&lt;img src=x onerror=alert(1)&gt;" in case.report.html


def test_long_names_are_shortened(case: Case) -> None:
    assert "n" * 61 not in case.report.html


def test_the_scores_are_those_of_the_predictions(case: Case) -> None:
    mean, sd = case.model.predict(case.test, return_std=True)
    y = case.test["<b>price"].to_numpy()
    assert case.report.scores["cvgp"]["rmse"] == pytest.approx(metrics.rmse(y, mean))
    assert case.report.scores["cvgp"]["crps"] == pytest.approx(metrics.crps(y, mean, sd))


def test_simple_models_have_learned_from_the_rows_of_the_fit(case: Case) -> None:
    y, known = case.test["<b>price"].to_numpy(), case.train["<b>price"].to_numpy()
    assert case.report.scores["constant"]["rmse"] == pytest.approx(metrics.rmse(y, np.full(len(y), known.mean())))
    features = [
        np.column_stack([own.iloc[:, 0], pd.get_dummies(own["colour"]), own.iloc[:, 2]])
        for own in (case.train, case.test)
    ]
    trees = HistGradientBoostingRegressor(random_state=0, early_stopping=False).fit(features[0], known)
    expected = metrics.rmse(y, trees.predict(features[1]))
    assert case.report.scores["boosting"]["rmse"] == pytest.approx(expected, rel=0.05)
    assert "has learned from 90 rows of the fit. Its interval" in case.report.html


def test_a_file_needs_no_rows_of_the_fit_for_the_same_scores(case: Case, tmp_path: Path) -> None:
    case.model.save(tmp_path / "m")
    again = cvgp.load(tmp_path / "m").report(case.test, "<b>price")
    assert again.scores == case.report.scores
    again.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == again.html


def test_stored_trees_depend_neither_on_the_rows_of_the_page_nor_on_those_that_are_given(case: Case) -> None:
    half = case.test[:30]
    scores = [case.model.report(half, "<b>price").scores["boosting"]]
    y = half["<b>price"].to_numpy()
    scores.append(case.model.report(half, "<b>price", train=(case.test, "<b>price")).scores["boosting"])
    assert scores[0] == scores[1]
    x = case.model.gp_.scaling.scale_x(check_prediction(case.model, half.drop(columns="<b>price")))
    assert scores[0]["rmse"] == pytest.approx(metrics.rmse(y, case.model.boosting_.predict(x)[0]))


def test_a_model_without_trees_learns_them_from_rows_that_are_given(case: Case) -> None:
    bare = deepcopy(case.model)
    del bare.boosting_
    found = bare.report(case.test, "<b>price", train=(case.train, "<b>price")).scores["boosting"]["rmse"]
    assert found == pytest.approx(case.report.scores["boosting"]["rmse"], rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "outputs", "count", "reason"),
    [
        ({}, 2, 30, "a model of several outputs stores no trees"),
        ({}, 1, 15, "the fit had fewer than 20 rows"),
        ({"max_time": 0.01}, 1, 30, "left the fit no time"),
    ],
)
def test_the_page_says_why_there_is_no_boosting(
    rows: tuple[np.ndarray, np.ndarray], settings: dict[str, float], outputs: int, count: int, reason: str
) -> None:
    X, y = rows
    Y = np.column_stack([y] * outputs) if outputs > 1 else y
    model = CVGPRegressor(4, max_iter=2, neighbors=0, noise="constant", random_state=0, **settings)
    found = model.fit(X[:count], Y[:count]).report(X[120:], Y[120:])
    assert "boosting" not in found.scores
    assert reason in found.html


def test_the_page_of_a_merged_model_says_why_there_is_no_boosting(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = rows
    model = CVGPRegressor(4, max_iter=2, neighbors=0, noise="constant", random_state=0)
    parts = [clone(model).fit(X[part], y[part]) for part in (slice(0, 60), slice(60, 120))]
    assert "a merged model has seen no rows" in cvgp.merge(parts).report(X[120:], y[120:]).html


def test_a_model_without_stored_numbers_is_reported_all_the_same(case: Case, tmp_path: Path) -> None:
    case.model.save(tmp_path / "m")
    bare = cvgp.load(tmp_path / "m")
    del bare.baselines_, bare.columns_seen_, bare.boosting_
    found = bare.report(case.test, "<b>price")
    assert list(found.scores) == ["cvgp"]
    assert "A constant and a linear model are missing" in found.html
    assert "the model has stored no trees" in found.html
    assert any("drift was not looked for" in words for words in found.warnings)


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(case: Case) -> None:
    shown = case.report._repr_html_()
    assert shown.startswith("<iframe srcdoc='&lt;!doctype html&gt;")
    assert shown.count("<") == 2


def test_the_page_of_many_rows_and_columns_is_small() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 20))
    y = X[:, 0] + rng.normal(size=2500)
    model = CVGPRegressor(310, max_iter=1, neighbors=0, noise="constant", inputs="identity", random_state=0)
    model.fit(X[:400], y[:400])
    page = model.report(X, y).html
    assert len(page.encode()) < 1_000_000
    (dots,) = re.findall(r"id='predicted'.*?</svg>", page)
    assert dots.count("h0") == 2000
    assert page.count("data-row='299'") == 1
    assert "data-row='300'" not in page


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (160, 2))
    return X, np.sin(8 * X[:, 0]) + 0.1 * rng.normal(size=160)


def test_a_page_about_several_outputs_says_which_one_it_shows(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = rows
    Y = np.column_stack([y, -2.0 * y])
    model = CVGPRegressor(10, max_iter=5, noise="constant", random_state=0).fit(X, Y)
    found = model.report(X, Y, output=1)
    assert "It has 2 outputs, and this page is about y1 alone." in found.html
    assert found.scores["cvgp"]["rmse"] == pytest.approx(metrics.rmse(Y[:, 1], model.predict(X)[:, 1]))
    with pytest.raises(InvalidInputError, match="one of the model's 2"):
        model.report(X, Y, output=2)


def test_a_model_with_neighbours_shows_those_that_a_prediction_consults(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = rows
    model = CVGPRegressor(5, neighbors=4, max_time=2.0, noise="constant", random_state=0).fit(X[:120], y[:120])
    found = model.report(X[120:], y[120:])
    assert model.n_neighbors_ == 4
    assert "each prediction consults the 4 nearest of these rows too" in found.html
    assert "neighbour 4" in found.html
    assert "boosting" in found.scores


def test_a_model_of_the_logarithm_is_reported_in_the_units_of_the_target(rows: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = rows
    model = CVGPRegressor(10, max_iter=5, target="log", noise="constant", random_state=0).fit(X[:120], np.exp(y[:120]))
    found = model.report(X[120:], np.exp(y[120:]))
    assert "describes the logarithm of the target" in found.html
    assert found.scores["cvgp"]["rmse"] == pytest.approx(metrics.rmse(np.exp(y[120:]), model.predict(X[120:])))


def test_one_row_of_one_column_can_be_reported() -> None:
    X = np.linspace(0, 1, 20)[:, None]
    model = CVGPRegressor(4, max_iter=3, noise="constant", random_state=0).fit(X, X[:, 0])
    assert "Row 1, a typical error" in model.report(X[:1], X[:1, 0]).html


def test_a_target_of_another_name_is_refused(case: Case) -> None:
    with pytest.raises(InvalidInputError, match="The model predicts"):
        case.model.report(case.test, "colour")
