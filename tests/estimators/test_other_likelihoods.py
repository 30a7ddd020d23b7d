"""CVGPRegressor for counts, proportions, positive numbers and heavy tails: against truth, other libraries, itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import GammaRegressor, PoissonRegressor

import cvgp
from cvgp import CVGPRegressor, TrainingOptions
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files import read_state, write_state

Array = np.ndarray
NAMES = ["student_t", "poisson", "negative_binomial", "gamma", "beta"]
COUNTS = ("poisson", "negative_binomial")
SHIFT, UNIT = 3e5, 1e4  # of y with heavy tails, whose units a fit must find by itself


def true_mean(name: str, f: Array, exposure: Array) -> Array:
    if name == "student_t":
        return SHIFT + UNIT * f
    return 1 / (1 + np.exp(-f)) if name == "beta" else np.exp(f) * (exposure if name in COUNTS else 1.0)


def drawn(name: str, f: Array, exposure: Array, rng: np.random.Generator) -> Array:
    mean = true_mean(name, f, exposure)
    draws: dict[str, Callable[[], Array]] = {
        "student_t": lambda: mean + 0.2 * UNIT * rng.standard_t(3.0, len(f)),
        "poisson": lambda: rng.poisson(mean),
        "negative_binomial": lambda: rng.negative_binomial(2.0, 2.0 / (2.0 + mean)),
        "gamma": lambda: rng.gamma(3.0, mean / 3.0),
        "beta": lambda: np.clip(rng.beta(6.0 * mean, 6.0 * (1.0 - mean)), 1e-6, 1.0 - 1e-6),
    }
    return np.asarray(draws[name](), dtype=np.float64)


class Problem:
    """Rows of a known function, to fit and to predict."""

    def __init__(self, name: str, num_rows: int = 400, num_new: int = 1000) -> None:
        rng = np.random.default_rng(0)
        self.X = rng.uniform(-3, 3, (num_rows + num_new, 2))
        exposure = rng.uniform(0.5, 5.0, num_rows + num_new)
        f = np.sin(self.X[:, 0]) + 0.3 * self.X[:, 1]
        y = drawn(name, f, exposure, rng)
        old, new = slice(num_rows), slice(num_rows, None)
        is_count = name in COUNTS
        self.given: dict[str, Any] = {"exposure": exposure[old]} if is_count else {}
        self.wanted: dict[str, Any] = {"exposure": exposure[new]} if is_count else {}
        model = CVGPRegressor(20, likelihood=name, input_warp="identity", random_state=0)  # type: ignore[arg-type]
        self.fitted = model.fit(self.X[old], y[old], **self.given)
        self.X, self.y, self.mean = self.X[new], y[new], true_mean(name, f, exposure)[new]


@pytest.fixture(scope="module")
def problems() -> dict[str, Problem]:
    return {name: Problem(name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_means_intervals_and_densities_are_those_of_the_truth(name: str, problems: dict[str, Problem]) -> None:
    own = problems[name]
    mean, sd = own.fitted.predict(own.X, return_std=True, **own.wanted)
    assert np.corrcoef(mean, own.mean)[0, 1] > 0.95
    low, high = own.fitted.predict_interval(own.X, level=0.9, **own.wanted).T
    inside = np.mean((low <= own.y) & (own.y <= high))
    assert 0.87 < inside < (0.98 if name in COUNTS else 0.93)  # intervals of counts hold more than asked for
    if name in COUNTS:
        assert (low == np.round(low)).all()
        assert (low >= 0).all()
    density = own.fitted.log_predictive_density(own.X, own.y, **own.wanted).mean()
    assert own.fitted.left_out_log_density_ == pytest.approx(density, abs=0.2)
    if name != "student_t":  # whose variance exists only on average
        assert np.mean((own.y - mean) ** 2 / sd**2) == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("name", NAMES)
def test_draws_have_the_moments_and_quantiles_of_the_predictions(name: str, problems: dict[str, Problem]) -> None:
    own = problems[name]
    few = {key: values[:20] for key, values in own.wanted.items()}
    draws = own.fitted.sample_y(own.X[:20], n_samples=20_000, **few)
    mean, sd = own.fitted.predict(own.X[:20], return_std=True, **few)
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.05 * sd.max())
    if name != "student_t":
        np.testing.assert_allclose(draws.std(1), sd, rtol=0.05)
    median = own.fitted.predict_quantiles(own.X[:20], 0.5, **few)
    assert (np.mean(draws <= median, axis=1) > 0.48).all()
    assert (np.mean(draws < median, axis=1) < 0.52).all()
    _, cov = own.fitted.predict(own.X[:20], return_cov=True, **few)
    if name != "student_t":
        np.testing.assert_allclose(cov, np.cov(draws), atol=0.05 * cov.max())
    np.testing.assert_allclose(np.sqrt(cov.diagonal()), sd, rtol=1e-6)


@pytest.mark.parametrize("name", COUNTS)
def test_probabilities_of_counts_add_up_to_one(name: str, problems: dict[str, Problem]) -> None:
    model, x = problems[name].fitted, problems[name].X[:1]
    counts = np.arange(2000.0)
    density = model.log_predictive_density(np.repeat(x, 2000, axis=0), counts, exposure=1.0)
    p = np.exp(density)
    assert p.sum() == pytest.approx(1.0, abs=1e-6)
    mean, sd = model.predict(x, return_std=True, exposure=1.0)
    assert p @ counts == pytest.approx(mean[0], rel=1e-4)
    assert np.sqrt(p @ (counts - mean[0]) ** 2) == pytest.approx(sd[0], rel=1e-3)
    assert model.log_predictive_density(np.repeat(x, 2, axis=0), [0.5, -1.0], exposure=1.0).tolist() == [-np.inf] * 2


@pytest.mark.parametrize("name", COUNTS)
def test_twice_the_exposure_doubles_the_mean(name: str, problems: dict[str, Problem]) -> None:
    model, X = problems[name].fitted, problems[name].X[:5]
    np.testing.assert_allclose(model.predict(X, exposure=2.0), 2.0 * model.predict(X, exposure=1))
    np.testing.assert_allclose(model.predict(X, exposure=np.full(5, 2.0)), model.predict(X, exposure=2.0))


def test_a_unit_of_exposure_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    X, days = rng.uniform(-2, 2, (150, 1)), rng.uniform(1, 9, 150)
    y = rng.poisson(days * np.exp(X[:, 0]))
    by_day = CVGPRegressor(15, likelihood="poisson", random_state=0).fit(X, y, exposure=days)
    by_year = CVGPRegressor(15, likelihood="poisson", random_state=0).fit(X, y, exposure=days / 365)
    # Digits differ, so L-BFGS takes other steps until they gain too little.
    np.testing.assert_allclose(by_day.predict(X, exposure=7.0), by_year.predict(X, exposure=7.0 / 365), rtol=3e-3)
    assert by_day.elbo_ == pytest.approx(by_year.elbo_, abs=0.1)


@pytest.mark.parametrize(
    ("name", "peer"),
    [("poisson", PoissonRegressor(alpha=0.0, tol=1e-8)), ("gamma", GammaRegressor(alpha=0.0, tol=1e-8))],
)
def test_a_linear_kernel_is_the_generalized_linear_model_of_scikit_learn(name: str, peer: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    y = drawn(name, 0.5 + X @ [0.4, -0.3], np.ones(3000), rng)
    model = CVGPRegressor(3, kernel="linear", likelihood=name, random_state=0).fit(X, y)  # type: ignore[arg-type]
    np.testing.assert_allclose(model.predict(X), peer.fit(X, y).predict(X), rtol=0.02)


def test_heavy_tails_ignore_gross_errors() -> None:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 6, (200, 1)), axis=0)
    y = np.sin(X[:, 0]) + 0.05 * rng.normal(size=200)
    y[::10] += 30.0 * rng.normal(size=20)
    model = CVGPRegressor(20, likelihood="student_t", random_state=0).fit(X, y)
    assert np.abs(model.predict(X) - np.sin(X[:, 0])).max() < 0.15
    spread = stats.t(model.likelihood_.degrees, 0.0, model.likelihood_.scale)
    assert spread.ppf(0.75) < 0.06


def test_the_parameters_of_a_likelihood_are_found(problems: dict[str, Problem]) -> None:
    assert problems["negative_binomial"].fitted.likelihood_.size == pytest.approx(2.0, rel=0.3)
    assert problems["gamma"].fitted.likelihood_.shape == pytest.approx(3.0, rel=0.2)
    assert problems["beta"].fitted.likelihood_.precision == pytest.approx(6.0, rel=0.2)
    tails = problems["student_t"].fitted.likelihood_
    assert tails.degrees == pytest.approx(3.0, rel=0.4)
    assert tails.scale == pytest.approx(0.2 * UNIT, rel=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["negative_binomial", "gamma", "beta"])
def test_targets_with_hardly_any_noise_are_not_taken_for_noise(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (120, 2))
    f = np.sin(X[:, 0]) + 0.3 * X[:, 1]
    y = {
        "negative_binomial": rng.poisson(1e5 * np.exp(f)),
        "gamma": np.exp(f),
        "beta": 1 / (1 + np.exp(-f)),
    }[name]
    model = CVGPRegressor(likelihood=name, random_state=0).fit(X, y)  # type: ignore[arg-type]
    assert model.score(X, y) > 0.999


@pytest.mark.parametrize("name", NAMES)
def test_a_file_gives_the_same_model(name: str, problems: dict[str, Problem], tmp_path: Path) -> None:
    own = problems[name]
    own.fitted.save(tmp_path / "model.cvgp")
    again = cvgp.load(tmp_path / "model.cvgp")
    assert again.likelihood_ == own.fitted.likelihood_
    assert (again.elbo_, again.n_rows_, again.solver_) == (own.fitted.elbo_, own.fitted.n_rows_, own.fitted.solver_)
    assert again.left_out_log_density_ == own.fitted.left_out_log_density_
    assert str(again.decisions_) == str(own.fitted.decisions_)
    np.testing.assert_array_equal(again.predict(own.X, **own.wanted), own.fitted.predict(own.X, **own.wanted))
    if own.wanted:
        with pytest.raises(InvalidInputError, match="predictions need them too"):
            again.predict(own.X)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "gaussian", "noise": 1.0},
        {"name": "bernoulli"},
        {"name": "negative_binomial", "size": -1.0},
        {"name": "negative_binomial", "size": np.inf},
        {"name": "negative_binomial", "size": "many"},
        {"name": "negative_binomial"},
        {"name": "poisson", "size": 2.0},
        {},
        None,
    ],
)
def test_a_likelihood_that_cannot_be_is_not_loaded(
    change: dict[str, Any] | None, problems: dict[str, Problem], tmp_path: Path
) -> None:
    problems["negative_binomial"].fitted.save(tmp_path / "model.cvgp")
    write_state(tmp_path / "other.cvgp", read_state(tmp_path / "model.cvgp") | {"likelihood": change})
    with pytest.raises(FileFormatError):
        cvgp.load(tmp_path / "other.cvgp")


def claims(num_rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(18, 80, num_rows),
            "car": rng.choice(["small", "large"], num_rows),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, num_rows), unit="D"),
            "years": rng.uniform(0.1, 3.0, num_rows),
        }
    )
    rate = np.exp(1.0 - frame["age"] / 40 + (frame["car"] == "large"))
    frame["claims"] = rng.poisson(frame["years"] * rate)
    frame.loc[5:20, "age"] = np.nan
    return frame


def test_the_exposure_is_a_column_of_a_frame_and_not_an_input() -> None:
    frame = claims()
    model = CVGPRegressor(15, likelihood="poisson", random_state=0).fit(frame, "claims", exposure="years")
    assert list(model.feature_names_in_) == ["age", "car", "since"]
    predicted = model.predict(frame)
    np.testing.assert_array_equal(predicted, model.predict(frame, exposure="years"))
    np.testing.assert_array_equal(predicted, model.predict(frame.drop(columns="years"), exposure=frame["years"]))
    assert predicted.sum() == pytest.approx(frame["claims"].sum(), rel=0.05)
    by_array = CVGPRegressor(15, likelihood="poisson", random_state=0).fit(
        frame.drop(columns=["years", "claims"]), frame["claims"], exposure=frame["years"]
    )
    np.testing.assert_allclose(by_array.predict(frame, exposure="years"), predicted, rtol=1e-6)
    with pytest.raises(InvalidInputError, match="column 'years'"):
        model.predict(frame.drop(columns="years"))
    frame.loc[3, "years"] = np.nan
    with pytest.raises(InvalidInputError, match=r"NaN|missing"):
        model.predict(frame)
    with pytest.raises(InvalidInputError, match="'years' is missing"):
        CVGPRegressor(likelihood="poisson").fit(frame, "claims", exposure="years")


def test_a_frame_of_numbers_may_name_its_exposure_too() -> None:
    frame = claims()[["age", "years", "claims"]].dropna()
    model = CVGPRegressor(likelihood="negative_binomial", random_state=0).fit(
        frame[["age", "years"]], frame["claims"], exposure="years"
    )
    assert list(model.feature_names_in_) == ["age"]
    assert model.score(frame[["age", "years"]], frame["claims"]) > 0.0


def test_a_weighted_row_is_several_copies() -> None:
    rng = np.random.default_rng(0)
    X, e = rng.uniform(-2, 2, (100, 1)), rng.uniform(1, 3, 100)
    y = rng.poisson(e * np.exp(X[:, 0]))
    twice = np.concatenate([np.arange(100), np.arange(50)])
    weight = np.where(np.arange(100) < 50, 2.0, 1.0)
    options: dict[str, Any] = {"n_coreset": 10, "likelihood": "poisson", "input_warp": "identity", "random_state": 0}
    weighted = CVGPRegressor(**options).fit(X, y, sample_weight=weight, exposure=e)
    copied = CVGPRegressor(**options).fit(X[twice], y[twice], exposure=e[twice])
    assert weighted.n_rows_ == copied.n_rows_ == 150
    np.testing.assert_allclose(weighted.predict(X, exposure=e), copied.predict(X, exposure=e), rtol=0.02)


def test_equal_rows_with_different_exposures_stay_apart() -> None:
    X, y, e = np.zeros((40, 1)), np.tile([0.0, 3.0], 20), np.tile([1.0, 2.0, 3.0, 4.0], 10)
    X[:20] = 1.0
    model = CVGPRegressor(2, likelihood="poisson", random_state=0).fit(X, y, exposure=e)
    assert model.predict([[0.0]], exposure=1.0)[0] == pytest.approx(y.sum() / e.sum(), rel=0.1)


def test_a_fit_that_is_worse_than_a_linear_model_warns() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (300, 5))
    y = rng.poisson(np.exp(X @ [0.5, -0.5, 0.5, -0.5, 0.5]))
    with pytest.warns(ConvergenceWarning, match="generalized linear model"):
        CVGPRegressor(1, kernel="matern12", likelihood="poisson", random_state=0).fit(X, y)


def test_another_fit_leaves_nothing_of_the_one_before() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 1))
    y = rng.poisson(np.exp(X[:, 0]))
    model = CVGPRegressor(8, likelihood="poisson", random_state=0).fit(X, y, exposure=2.0)
    fresh = CVGPRegressor(8, random_state=0).fit(X, y)
    model.set_params(likelihood="gaussian").fit(X, y)
    np.testing.assert_array_equal(model.predict(X), fresh.predict(X))
    assert model.likelihood_ is None
    assert not hasattr(model, "left_out_log_density_")
    model.set_params(likelihood="poisson").fit(X, y)
    assert not hasattr(model, "noise_variance_")
    assert model.predict(X).shape == (80,)


def test_a_time_limit_ends_the_fit_early() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (3000, 2))
    model = CVGPRegressor(likelihood="poisson", max_time=0.05, random_state=0).fit(X, rng.poisson(np.exp(X[:, 0])))
    assert not model.converged_
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("poisson", [1, 2, -1, 4], "whole numbers of at least 0; got -1"),
        ("negative_binomial", [1, 2, 0.5, 4], "got 0.5"),
        ("gamma", [1, 2, 0, 4], "above 0; got 0"),
        ("gamma", [1, 2, 1e200, 4], "another unit"),
        ("beta", [0.1, 1.0, 0.5, 0.0], "got 1 in row 2; 2 of 4 rows"),
        ("poisson", [[1, 2], [3, 4], [5, 6], [7, 8]], "one output, and y has 2"),
    ],
)
def test_targets_that_cannot_be_are_refused(name: Any, y: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CVGPRegressor(likelihood=name).fit(np.arange(8.0).reshape(4, 2), np.array(y))


@pytest.mark.parametrize("exposure", [0.0, -1.0, np.nan, [1.0, 1.0], [1.0, 1.0, 0.0, 1.0], "days", np.inf])
def test_exposures_that_cannot_be_are_refused(exposure: Any) -> None:
    X, y = np.arange(4.0)[:, None], np.array([0.0, 1.0, 3.0, 2.0])
    with pytest.raises(InvalidInputError, match="exposure"):
        CVGPRegressor(likelihood="poisson").fit(X, y, exposure=exposure)
    model = CVGPRegressor(likelihood="poisson", random_state=0).fit(X, y, exposure=1.0)
    for method in (model.predict, model.predict_interval, model.sample_y):
        with pytest.raises(InvalidInputError, match="exposure"):
            method(X, exposure=exposure)


@pytest.mark.parametrize(
    ("parameters", "given", "named"),
    [
        ({"target_transform": "log"}, {}, "target_transform"),
        ({"noise": "input-dependent"}, {}, "noise"),
        ({"n_neighbors": 20}, {}, "n_neighbors"),
        ({"mean": "constant"}, {}, "mean"),
        ({"training": TrainingOptions(solver="adam")}, {}, "training__solver"),
        ({}, {"noise_variance": np.ones(4)}, "noise_variance"),
    ],
)
def test_what_cannot_be_combined_is_refused(parameters: Any, given: Any, named: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{named} is for likelihood='gaussian'"):
        CVGPRegressor(likelihood="poisson", **parameters).fit(np.arange(4.0)[:, None], np.arange(4.0), **given)


def test_exposures_need_a_likelihood_of_counts() -> None:
    X, y = np.arange(1.0, 5.0)[:, None], np.arange(1.0, 5.0)
    for name in ("gaussian", "gamma"):
        with pytest.raises(InvalidInputError, match="exposure is for counts"):
            CVGPRegressor(likelihood=name).fit(X, y, exposure=y)
        table = cvgp.read_table(pd.DataFrame({"a": y, "b": y[::-1], "e": y}), "b", exposure="e")
        with pytest.raises(InvalidInputError, match="exposure is for counts"):
            CVGPRegressor(likelihood=name).fit(table)
    model = CVGPRegressor(2, random_state=0).fit(X, np.sin(X[:, 0]))
    with pytest.raises(InvalidInputError, match="exposure is for"):
        model.predict(X, exposure=1.0)
    with pytest.raises(InvalidInputError, match="must be one of"):
        CVGPRegressor(likelihood="normal").fit(X, y)  # type: ignore[arg-type]


def test_what_only_a_gaussian_model_can_do_is_refused(problems: dict[str, Problem]) -> None:
    own = problems["gamma"]
    model, X, y = own.fitted, own.X, own.y
    for work in (
        model.prune,
        lambda: model.grow(500, X, y),
        lambda: model.condition(X, y),
        lambda: model.calibrate(X, y),
        lambda: cvgp.merge([model, model]),
        lambda: cvgp.quality_by_size(model, X, y),
        lambda: model.predict(X, return_std=True, noise_variance=np.ones(len(X))),
    ):
        with pytest.raises(InvalidInputError, match="likelihood='gaussian'"):
            work()
