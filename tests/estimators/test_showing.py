import numpy as np
import pytest
import sklearn

from cvgp import CVGPRegressor

X = np.linspace(0, 6, 40)[:, None]


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return CVGPRegressor(8, max_iter=5, random_state=0).fit(X, np.sin(X[:, 0]))


def test_a_notebook_shows_the_diagram_and_the_facts_of_a_fit(model: CVGPRegressor) -> None:
    shown = model._repr_mimebundle_()["text/html"]
    assert "sk-" in shown  # scikit-learn's own
    assert "<th scope='row'>coreset</th><td>8 points for 40 rows" in shown
    assert model._repr_html_().endswith("</table>")


def test_before_the_fit_the_diagram_is_all() -> None:
    assert "points for" not in CVGPRegressor()._repr_mimebundle_()["text/html"]


def test_where_scikit_learn_shows_text_there_is_no_html(model: CVGPRegressor) -> None:
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert list(model._repr_mimebundle_()) == ["text/plain"]
