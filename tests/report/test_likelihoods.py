"""Pages and pictures of models with another likelihood than the Gaussian one."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError
from cvgp.plots import plot_calibration, plot_partial_dependence, plot_posterior, plot_predicted
from tests.report.test_page import Checked


def claims(num_rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, years = rng.uniform(-2, 2, num_rows), rng.uniform(0.2, 4.0, num_rows)
    rate = np.exp(np.sin(age))
    facts = {"claims": rng.poisson(years * rate), "cost": rng.gamma(3.0, rate / 3.0)}
    return pd.DataFrame({"age": age, "years": years, **facts})


TRAIN, TEST = claims(200, 0), claims(80, 1)


@pytest.fixture(scope="module")
def counts() -> CVGPRegressor:
    model = CVGPRegressor(8, likelihood="poisson", random_state=0)
    return model.fit(TRAIN.drop(columns="cost"), "claims", exposure="years")


@pytest.mark.slow
def test_the_page_of_counts_has_their_exposures(counts: CVGPRegressor, tmp_path: Path) -> None:
    rows, train = TEST.drop(columns="cost"), (TRAIN.drop(columns="cost"), "claims")
    found = counts.report(rows, "claims", train=train)
    page = Checked(found.html)
    assert page.open == []
    density = counts.log_predictive_density(TEST[["age"]], TEST["claims"], exposure=TEST["years"])
    assert found.scores["cvgp"]["mean_log_likelihood"] == pytest.approx(density.mean())
    given = counts.report(TEST[["age"]], TEST["claims"], exposure=TEST["years"].to_numpy())
    assert given.scores["cvgp"] == pytest.approx(found.scores["cvgp"])
    TEST.to_csv(tmp_path / "test.csv", index=False)
    assert counts.report(tmp_path / "test.csv", "claims").scores["cvgp"] == pytest.approx(found.scores["cvgp"])
    with pytest.raises(InvalidInputError, match="predictions need them too"):
        counts.report(TEST[["age"]], TEST["claims"])


@pytest.mark.slow
def test_the_page_of_positive_numbers_compares_simple_models() -> None:
    model = CVGPRegressor(8, likelihood="gamma", random_state=0).fit(TRAIN[["age"]], TRAIN["cost"])
    found = model.report(TEST[["age"]], TEST["cost"], train=(TRAIN[["age"]], TRAIN["cost"]))
    assert {"cvgp", "boosting", "linear", "constant"} == set(found.scores)
    assert found.scores["cvgp"]["mean_log_likelihood"] > found.scores["linear"]["mean_log_likelihood"]


def test_pictures_along_a_column_show_the_rate(counts: CVGPRegressor) -> None:
    for draw in (plot_partial_dependence, plot_posterior):
        ax = draw(counts, ax=plt.figure().add_subplot())
        assert ax.get_ylabel() == "claims per unit of years"
        (line,) = ax.get_lines()
        x, y = line.get_data()
        expected = counts.predict(pd.DataFrame({"age": np.asarray(x)}), exposure=1.0)
        np.testing.assert_allclose(y, expected, rtol=1e-6)
    for picture in (plot_predicted, plot_calibration):
        picture(counts, TEST[["age"]], TEST["claims"], plt.figure().add_subplot(), exposure=TEST["years"])
    plt.close("all")
