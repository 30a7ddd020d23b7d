from collections.abc import Callable
from typing import Any
from unittest import mock

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cvgp import Coreset, CVGPClassifier, CVGPRegressor, TrainingOptions, plots, read_table
from cvgp.errors import InvalidInputError
from cvgp.estimators.display import number
from tests.flat_options import make_regressor

Data = tuple[pd.DataFrame, np.ndarray]
QUALITY = {"size": [1, 2, 4], "rmse": [0.5, 0.3, 0.2], "mean_log_likelihood": [-1.0, -0.5, -0.4]}


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(80, 3)), columns=["strong", "weak", "useless"])
    return x, (2.0 * np.sin(2 * x["strong"]) + 0.5 * x["weak"] + rng.normal(0.0, 0.1, 80)).to_numpy()


@pytest.fixture(scope="module")
def model(data: Data) -> CVGPRegressor:
    return CVGPRegressor(15, random_state=0, training=TrainingOptions(max_iter=40)).fit(*data)


@pytest.fixture(scope="module")
def table_model() -> CVGPRegressor:
    """A model of a number and a text of three categories."""
    rng = np.random.default_rng(0)
    size, color = rng.normal(size=60), rng.choice(["blue", "green", "red"], 60)
    frame = pd.DataFrame({"size": size, "color": color, "price": size + 3.0 * (color == "red")})
    return make_regressor(15, random_state=0, max_iter=40).fit(frame, "price")


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()


def tick_labels(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_xticklabels()]


DRAWINGS: dict[str, Callable[[CVGPRegressor, Data, Axes], Axes]] = {
    "relevance": lambda model, data, ax: plots.plot_relevance(model, ax),
    "explanation": lambda model, data, ax: plots.plot_explanation(model.explain(data[0][:1]), ax),
    "dependence": lambda model, data, ax: plots.plot_partial_dependence(model, ax=ax),
    "training": lambda model, data, ax: plots.plot_training(model, ax),
    "posterior": lambda model, data, ax: plots.plot_posterior(model, ax=ax),
    "coreset": lambda model, data, ax: plots.plot_coreset(model, ax=ax),
    "weights": lambda model, data, ax: plots.plot_weights(model, ax),
    "noise": lambda model, data, ax: plots.plot_noise(model, ax=ax),
    "calibration": lambda model, data, ax: plots.plot_calibration(model, *data, ax),
    "predicted": lambda model, data, ax: plots.plot_predicted(model, *data, ax),
    "quality": lambda model, data, ax: plots.plot_quality_by_size(QUALITY, ax),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_axes_that_go_in_come_out_and_can_be_drawn(name: str, model: CVGPRegressor, data: Data, ax: Axes) -> None:
    assert DRAWINGS[name](model, data, ax) is ax
    ax.figure.canvas.draw()


def test_without_axes_the_current_ones_are_used(model: CVGPRegressor) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    current = plt.figure().add_subplot()
    assert plots.plot_relevance(model) is current
    plt.close()


def test_relevance_has_a_bar_a_column_with_its_uncertainty_and_the_largest_on_top(
    model: CVGPRegressor, ax: Axes
) -> None:
    plots.plot_relevance(model, ax)
    found = model.sobol_indices()
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[::-1] == plots.columns_by_importance(model)
    alone, together = ax.patches[: len(names)], ax.patches[len(names) :]
    np.testing.assert_allclose([bar.get_width() for bar in alone], found.first_order[np.argsort(found.total)])
    ends = [bar.get_x() + bar.get_width() for bar in together]
    np.testing.assert_allclose(ends, np.sort(model.feature_importances_))
    ends = [segment[:, 0] for segment in ax.containers[-1].errorbar.lines[2][0].get_segments()]
    np.testing.assert_allclose(0.5 * np.diff(ends, axis=1)[:, 0], found.total_error[np.argsort(found.total)])
    assert len(plots.plot_relevance(model, Figure().add_subplot(), top=2).patches) == 4


def test_an_explanation_is_drawn_as_steps_from_the_baseline_to_the_prediction(
    model: CVGPRegressor, data: Data, ax: Axes
) -> None:
    found = model.explain(data[0].iloc[[3]])
    plots.plot_explanation(found, ax)
    ends = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in ax.patches]
    assert ends[0][0] == pytest.approx(found.baseline)
    assert ends[-1][1] == pytest.approx(found.prediction)
    np.testing.assert_allclose([before[1] for before in ends[:-1]], [after[0] for after in ends[1:]])
    names = [label.get_text().split(" = ")[0] for label in ax.get_yticklabels()]
    assert names[::-1] == [found.columns[j] for j in np.argsort(-np.abs(found.effects))]


def test_small_effects_are_drawn_together_with_their_joint_uncertainty(
    model: CVGPRegressor, data: Data, ax: Axes
) -> None:
    found = model.explain(data[0].iloc[[3]])
    plots.plot_explanation(found, ax, top=1)
    others = np.argsort(-np.abs(found.effects))[1:]
    assert len(ax.patches) == 2
    assert ax.patches[0].get_width() == pytest.approx(found.effects[others].sum())
    interval = np.diff(ax.containers[-1].errorbar.lines[2][0].get_segments()[0][:, 0])[0]
    assert interval == pytest.approx(2 * 1.959964 * np.sqrt(found.covariance[np.ix_(others, others)].sum()), rel=1e-5)


def test_partial_dependence_is_the_weighted_mean_over_the_coreset_with_its_interval(
    model: CVGPRegressor, ax: Axes
) -> None:
    line = plots.plot_partial_dependence(model, "strong", ax).lines[0]
    value = line.get_xdata()[7]
    points = pd.DataFrame(model.coreset_.X.copy(), columns=model.feature_names_in_).assign(strong=value)
    mean, cov = model.predict(points, return_cov=True, include_noise=False)
    share = model.coreset_.beta / model.coreset_.beta.sum()
    assert line.get_ydata()[7] == pytest.approx(share @ mean)
    band = ax.collections[0].get_paths()[0].vertices
    heights = band[np.isclose(band[:, 0], value), 1]
    assert np.ptp(heights) == pytest.approx(2 * 1.959964 * np.sqrt(share @ cov @ share), rel=1e-5)


def test_the_axis_of_a_column_covers_the_data_and_far_pseudo_points_do_not_stretch_it(
    model: CVGPRegressor, data: Data, ax: Axes
) -> None:
    plots.plot_partial_dependence(model, "strong", ax)
    line, (low, high) = ax.lines[0].get_xdata(), ax.get_ylim()
    np.testing.assert_allclose(line[[0, -1]], [data[0]["strong"].min(), data[0]["strong"].max()], rtol=1e-6)
    assert high - low < 8 * data[1].std()


def test_true_and_false_are_drawn_by_their_names() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=80), "garden": rng.random(80) < 0.5})
    table["price"] = table["size"] + 2.0 * table["garden"]
    model = make_regressor(20, max_iter=20, n_neighbors=0, noise="constant", random_state=0).fit(table, "price")
    ax = plots.plot_partial_dependence(model, "garden", Figure().add_subplot())
    without, garden = ax.lines[0].get_ydata()
    assert tick_labels(ax) == ["false", "true"]
    assert garden - without == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.012345, "0.0123"),
        (2013.2, "2013"),
        (92730.4, "92,700"),
        (44000, "44,000"),
        (-1234567.0, "-1,230,000"),
    ],
)
def test_numbers_are_written_as_people_do(value: float, text: str) -> None:
    assert number(value) == text


def test_a_text_column_is_drawn_by_category(table_model: CVGPRegressor, ax: Axes) -> None:
    blue, green, red = plots.plot_partial_dependence(table_model, "color", ax).lines[0].get_ydata()
    assert tick_labels(ax) == ["blue", "green", "red"]
    assert red - max(blue, green) > 2.0
    assert sorted(plots.columns_by_importance(table_model)) == ["color", "size"]
    plots.plot_posterior(table_model, ax=(other := Figure().add_subplot()), column="color")
    assert tick_labels(other) == ["blue", "green", "red"]
    plots.plot_coreset(table_model, ["color", "size"], other := Figure().add_subplot())
    assert tick_labels(other) == ["blue", "green", "red"]
    assert set(other.collections[0].get_offsets()[:, 0]) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize("wanted", ["strange", 3, -1])
def test_a_column_that_is_not_there_is_refused(model: CVGPRegressor, ax: Axes, wanted: str | int) -> None:
    with pytest.raises(InvalidInputError, match=r"choose from \['strong', 'weak', 'useless'\]"):
        plots.plot_partial_dependence(model, wanted, ax)


@pytest.mark.parametrize("rate", [1.0, 20.0], ids=["coreset", "neighbors"])
def test_the_course_is_that_of_the_solver_that_trained_the_model(rate: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    y = np.sin(rate * X[:, 0]) * np.cos(rate * X[:, 1]) + 0.1 * rng.standard_normal(600)
    fitted = CVGPRegressor(10, noise="constant", random_state=0).fit(X, y)
    assert (fitted.n_neighbors_ > 0) == (rate > 1.0)
    line = plots.plot_training(fitted, Figure().add_subplot()).lines[0]
    assert len(line.get_xdata()) > 5
    assert (np.diff(line.get_xdata()) > 0).all()


def test_calibration_shows_the_coverage_of_each_level(model: CVGPRegressor, data: Data, ax: Axes) -> None:
    line = plots.plot_calibration(model, *data, ax).lines[1]
    low, high = model.predict_interval(data[0], 0.5).T
    assert line.get_ydata()[9] == pytest.approx(((low <= data[1]) & (data[1] <= high)).mean())


@pytest.mark.parametrize(("num_classes", "name"), [(2, "probability of b"), (3, "probability of the predicted class")])
def test_reliability_shows_how_often_probabilities_came_true(num_classes: int, name: str, ax: Axes) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + 0.5 * rng.normal(size=200), [0.0, 1.0][: num_classes - 1])]
    model = CVGPClassifier(8, random_state=0).fit(X[:100], y[:100])
    plots.plot_reliability(model, X[100:], y[100:], ax)
    drawn = ax.lines[-1].get_xydata()
    p, hit = model.predict_proba(X[100:]), y[100:, None] == model.classes_
    own = np.ones(100, dtype=int) if num_classes == 2 else p.argmax(axis=1)
    p, hit = (np.take_along_axis(values, own[:, None], 1)[:, 0] for values in (p, hit))
    rows = [np.ceil(15 * p) == number for number in range(1, 16)]
    np.testing.assert_allclose(drawn, [(p[part].mean(), hit[part].mean()) for part in rows if part.any()])
    assert ax.get_xlabel() == name


def test_predictions_outside_their_interval_are_marked_and_many_rows_are_sampled(
    model: CVGPRegressor, data: Data, ax: Axes
) -> None:
    x, y = pd.concat([data[0]] * 40, ignore_index=True), np.tile(data[1], 40)
    y[:1600] += 100.0
    inside, outside = (len(dots.get_offsets()) for dots in plots.plot_predicted(model, x, y, ax).collections)
    assert inside + outside == 2000
    assert outside > 900


def test_the_posterior_of_several_inputs_is_a_slice_along_the_most_important_one(
    model: CVGPRegressor, ax: Axes
) -> None:
    line = plots.plot_posterior(model, ax=ax).lines[0]
    scaled = model._gp.scaling.scale_x(model.coreset_.X)
    center = np.average(scaled, axis=0, weights=model.coreset_.beta)
    middle = model.coreset_.X[np.linalg.norm(scaled - center, axis=1).argmin()]
    at = line.get_xdata()
    rows = pd.DataFrame(np.tile(middle, (len(at), 1)), columns=model.feature_names_in_).assign(strong=at)
    np.testing.assert_allclose(line.get_ydata(), model.predict(rows))
    assert ax.get_xlabel() == "strong"


def test_points_are_drawn_over_two_columns_by_weight_and_weightless_ones_are_not(
    model: CVGPRegressor, ax: Axes
) -> None:
    dots = plots.plot_coreset(model, ["weak", "strong"], ax).collections[0]
    order = np.argsort(-model.coreset_.beta, kind="stable")
    order = order[model.coreset_.beta[order] >= 1e-4 * model.coreset_.beta.mean()]
    np.testing.assert_allclose(dots.get_offsets(), model.coreset_.X[order][:, [1, 0]])
    areas, weights = dots.get_sizes(), model.coreset_.beta[order]
    heavy = areas > 4.0
    np.testing.assert_allclose(areas[heavy] / areas[0], weights[heavy] / weights[0])


@pytest.mark.parametrize("beta", [[1.0, 1.0], [0.0, 3.0], [1e-30, 1.0, 50.0], [2.0]])
def test_the_histogram_of_weights_counts_each_point_that_has_one_once(
    model: CVGPRegressor, ax: Axes, beta: list[float]
) -> None:
    weighted = CVGPRegressor()
    weighted.__dict__.update(model.__dict__)
    points = np.zeros((len(beta), 1))
    with mock.patch.object(CVGPRegressor, "coreset_", Coreset(points, points[:, 0], beta)):
        plots.plot_weights(weighted, ax)
    assert sum(bar.get_height() for bar in ax.patches) == np.count_nonzero(np.array(beta) > 1e-3)


def test_what_cannot_be_drawn_is_refused(model: CVGPRegressor, data: Data, ax: Axes) -> None:
    x, y = data
    double = make_regressor(5, random_state=0, max_iter=3).fit(x, np.column_stack([y, -y]))
    refused: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
        ("of one output, but the model has 2", plots.plot_predicted, (double, x, y, ax)),
        ("the model has 3", plots.plot_posterior, (model, x, y, ax)),
        ("give both or none", plots.plot_posterior, (model, x, None, ax)),
        ("over two columns", plots.plot_coreset, (model, ["strong"], ax)),
        (r"lacks \['rmse'\]", plots.plot_quality_by_size, ({"size": [1], "mean_log_likelihood": [0.0]}, ax)),
    ]
    for words, draw, arguments in refused:
        with pytest.raises(InvalidInputError, match=words):
            draw(*arguments)


def test_noise_is_drawn_in_the_units_of_the_target(ax: Axes) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(800, 2))
    y = 100.0 * (np.sin(x[:, 0]) + (0.05 + 0.3 * (x[:, 1] > 0)) * rng.normal(size=800))
    fitted = CVGPRegressor(n_coreset=20, random_state=0, training=TrainingOptions(max_iter=30)).fit(x, y)
    line = plots.plot_noise(fitted, 1, ax).lines[0]
    along, noise = line.get_xdata(), line.get_ydata()
    quiet, loud = noise[along < -0.5].mean(), noise[along > 0.5].mean()
    assert loud > 3.0 * quiet
    assert 25.0 < loud < 50.0


@pytest.mark.parametrize("start", ["2024-01-01", "9990-01-01"])
def test_the_axis_of_a_column_of_dates_shows_dates(ax: Axes, start: str) -> None:
    days = np.datetime64(start) + np.arange(60) * np.timedelta64(60, "D")
    frame = pd.DataFrame({"day": days.astype("datetime64[s]"), "y": np.arange(60.0)})
    fitted = make_regressor(6, max_iter=2, n_neighbors=0, noise="constant", random_state=0)
    plots.plot_partial_dependence(fitted.fit(frame, "y"), "day", ax)
    ax.figure.canvas.draw()
    assert start[:3] in {label[:3] for label in tick_labels(ax)}


@pytest.mark.slow
def test_dates_without_a_trend_are_drawn_along_the_year() -> None:
    day = np.arange(800)
    rows = pd.DataFrame({"when": pd.Timestamp("1970-01-01") + pd.to_timedelta(day, "D")})
    rows["y"] = np.sin(2.0 * np.pi * day / 365.2425)
    model = make_regressor(n_coreset=12, max_iter=30, random_state=0).fit(read_table(rows, "y", dates="season"))
    ax = plots.plot_partial_dependence(model, ax=Figure().subplots())
    (line,) = (line for line in ax.lines if len(line.get_xdata()) > 10)
    x, y = np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)
    assert 0.0 <= x.min() < 20.0
    assert 340.0 < x.max() < 366.0
    np.testing.assert_allclose(y, np.sin(2.0 * np.pi * x / 365.2425), atol=0.05)
    assert ax.get_xlabel() == "when (day of the year)"


@pytest.mark.slow
def test_training_is_drawn_from_its_last_start() -> None:
    x = np.random.default_rng(0).normal(size=(600, 3))
    model = make_regressor(random_state=0, n_neighbors=0).fit(x, np.sin(4.0 * x).sum(axis=1))
    is_lbfgs = model.history_["phase"] == "lbfgs"
    assert (np.diff(model.history_["iteration"][is_lbfgs]) < 0).any()  # all rows are fitted after the audit
    (line,) = plots.plot_training(model, ax=Figure().subplots()).lines
    assert (np.diff(np.asarray(line.get_xdata(), dtype=float)) > 0).all()
