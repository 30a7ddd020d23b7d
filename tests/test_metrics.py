from collections.abc import Callable

import numpy as np
import pytest
import sklearn.metrics
from scipy import integrate, stats
from sklearn.calibration import calibration_curve

from cvgp import metrics
from cvgp.errors import InvalidInputError

rng = np.random.default_rng(0)
Y = rng.normal(size=7)
MEAN = rng.normal(size=7)
SD = rng.uniform(0.2, 3.0, size=7)


# Point predictions.


def test_rmse_is_the_root_of_the_mean_square() -> None:
    assert metrics.rmse(Y, MEAN) == pytest.approx(np.sqrt(sum((Y - MEAN) ** 2) / 7), rel=1e-12)


# Log densities.


def test_mean_log_density_is_that_of_scipy() -> None:
    expected = stats.norm.logpdf(Y, MEAN, SD).mean()
    assert metrics.mean_log_density(Y, MEAN, SD) == pytest.approx(expected, rel=1e-12)


# CRPS.


def crps_by_integration(y: float, mean: float, sd: float) -> float:
    below, _ = integrate.quad(lambda t: stats.norm.cdf(t, mean, sd) ** 2, mean - 12 * sd, y, epsabs=1e-12)
    above, _ = integrate.quad(lambda t: stats.norm.sf(t, mean, sd) ** 2, y, mean + 12 * sd, epsabs=1e-12)
    return below + above


@pytest.mark.parametrize(("y", "mean", "sd"), [(0.0, 0.0, 1.0), (1.3, 0.4, 2.0), (-4.0, 1.0, 0.7), (2.0, 3.0, 0.4)])
def test_crps_is_the_integral_of_its_definition(y: float, mean: float, sd: float) -> None:
    assert metrics.crps([y], [mean], [sd]) == pytest.approx(crps_by_integration(y, mean, sd), abs=1e-9)


# Intervals.


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_of_simulated_data_is_the_level(level: float) -> None:
    n = 40_000
    mean, sd = rng.normal(size=n), rng.uniform(0.1, 5.0, size=n)
    y = mean + sd * rng.normal(size=n)
    assert metrics.coverage(y, mean, sd, level) == pytest.approx(level, abs=4 * np.sqrt(0.25 / n))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95, np.nan])
def test_level_outside_zero_and_one_is_refused(level: float) -> None:
    with pytest.raises(InvalidInputError, match=r"level must lie between 0 and 1.*write 95 % as 0\.95"):
        metrics.interval(MEAN, SD, level)


# Unusable arguments.


SCORES: list[Callable] = [
    lambda y, mean, sd: metrics.mean_log_density(y, mean, sd),
    lambda y, mean, sd: metrics.crps(y, mean, sd),
    lambda y, mean, sd: metrics.coverage(y, mean, sd, 0.9),
]


score = pytest.mark.parametrize("score", SCORES, ids=["density", "crps", "coverage"])


@score
@pytest.mark.parametrize("sd", [0.0, -1.0])
def test_sd_that_is_not_positive_is_refused(score: Callable, sd: float) -> None:
    with pytest.raises(InvalidInputError, match="must be positive, but its smallest value"):
        score(Y, MEAN, np.r_[SD[:-1], sd])


@score
@pytest.mark.parametrize("shape", [(7, 1), (1, 7), ()], ids=str)
def test_shape_that_numpy_would_broadcast_is_refused(score: Callable, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="Expected vectors of one length"):
        score(Y, np.zeros(shape), SD)


@score
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_value_that_is_not_finite_is_refused(score: Callable, bad: float) -> None:
    with pytest.raises(InvalidInputError, match="must be finite, but 1 of its 7"):
        score(np.r_[Y[:-1], bad], MEAN, SD)


# Classes.


def some_probabilities(num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    own = np.random.default_rng(1)
    p = own.dirichlet(np.full(num_classes, 0.7), size=400)
    return np.array([own.choice(num_classes, p=row) for row in 0.7 * p + 0.3 / num_classes]), p


@pytest.mark.parametrize("num_classes", [2, 4])
def test_scores_of_classes_are_those_of_scikit_learn(num_classes: int) -> None:
    y, p = some_probabilities(num_classes)
    found = metrics.class_scores(y, p)
    assert found["log_loss"] == pytest.approx(sklearn.metrics.log_loss(y, p), rel=1e-12)
    one_hot = np.eye(num_classes)[y]
    brier = np.mean((p[:, 1] - y) ** 2) if num_classes == 2 else np.mean(np.sum((p - one_hot) ** 2, axis=1))
    assert found["brier"] == pytest.approx(brier, rel=1e-12)
    expected = sklearn.metrics.roc_auc_score(y, p[:, 1] if num_classes == 2 else p, multi_class="ovr")
    assert found["auc"] == pytest.approx(expected, rel=1e-12)
    assert found["accuracy"] == sklearn.metrics.accuracy_score(y, p.argmax(1))


def test_the_bins_of_two_classes_are_those_of_scikit_learn() -> None:
    y, p = some_probabilities(2)
    share, mean = calibration_curve(y, p[:, 1], n_bins=15)
    found = metrics.reliability(y, p)
    np.testing.assert_allclose(found.share, share)
    np.testing.assert_allclose(found.probability, mean)
    assert found.num_rows.sum() == 400


def test_the_calibration_error_of_three_classes_by_hand() -> None:
    # The predicted classes have .9, .9 (one of them right) and .5 (right): (2 |.9 - .5| + |.5 - 1|) / 3.
    p = [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.5, 0.3, 0.2]]
    assert metrics.class_scores([0, 0, 0], p)["calibration_error"] == pytest.approx(1.3 / 3)


def test_calibrated_probabilities_have_a_small_calibration_error() -> None:
    own = np.random.default_rng(0)
    p = own.uniform(size=50_000)
    y = own.uniform(size=50_000) < p
    assert metrics.class_scores(y, np.column_stack([1 - p, p]))["calibration_error"] < 0.01


def test_auc_leaves_out_classes_that_no_row_has_and_is_nan_for_one_class() -> None:
    y, p = some_probabilities(3)
    rows = y > 0
    expected = np.mean([sklearn.metrics.roc_auc_score(y[rows] == k, p[rows, k]) for k in (1, 2)])
    assert metrics.class_scores(y[rows], p[rows])["auc"] == pytest.approx(expected)
    assert np.isnan(metrics.class_scores(y[y == 1], p[y == 1])["auc"])


@pytest.mark.parametrize(
    ("y", "p", "message"),
    [
        ([0, 1], [0.5, 0.5], "Expected classes"),
        ([0, 2], [[0.5, 0.5], [0.5, 0.5]], "columns of p"),
        ([0, 1], [[0.5, 0.6], [0.5, 0.5]], "add up to 1"),
    ],
)
def test_what_are_no_classes_or_probabilities_is_refused(y: list[int], p: list[object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        metrics.class_scores(y, p)
