import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from gpytorch.kernels import PolynomialKernel
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cvgp import CVGPRegressor, plots
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.plots.pseudo_points import weight_histogram

Data = tuple[pd.DataFrame, np.ndarray]


QUALITY = {"size": [1, 2, 4], "rmse": [0.5, 0.3, 0.2], "mean_log_likelihood": [-1.0, -0.5, -0.4]}


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(80, 3)), columns=["strong", "weak", "useless"])
    return x, (2.0 * np.sin(2 * x["strong"]) + 0.5 * x["weak"] + rng.normal(0.0, 0.1, 80)).to_numpy()


@pytest.fixture(scope="module")
def model(data: Data) -> CVGPRegressor:
    return CVGPRegressor(15, random_state=0, max_iter=40).fit(*data)


@pytest.fixture(scope="module")
def table_model() -> CVGPRegressor:
    """A model of a number and a text of three categories."""
    rng = np.random.default_rng(0)
    size, colour = rng.normal(size=60), rng.choice(["blue", "green", "red"], 60)
    frame = pd.DataFrame({"size": size, "colour": colour, "price": size + 3.0 * (colour == "red")})
    table = ds.dataset(pa.Table.from_pandas(frame))
    return CVGPRegressor(15, random_state=0, max_iter=40).fit(table, "price")


@pytest.fixture
def ax() -> Axes:
    return Figure().add_subplot()


def test_the_axes_that_go_in_come_out(model: CVGPRegressor, data: Data) -> None:
    drawings = [
        lambda ax: plots.plot_relevance(model, ax),
        lambda ax: plots.plot_partial_dependence(model, ax=ax),
        lambda ax: plots.plot_training(model, ax),
        lambda ax: plots.plot_posterior(model, ax=ax),
        lambda ax: plots.plot_coreset(model, ax=ax),
        lambda ax: plots.plot_weights(model, ax),
        lambda ax: plots.plot_noise(model, ax=ax),
        lambda ax: plots.plot_calibration(model, *data, ax),
        lambda ax: plots.plot_predicted(model, *data, ax),
        lambda ax: plots.plot_quality_by_size(QUALITY, ax),
    ]
    for draw in drawings:
        ax = Figure().add_subplot()
        assert draw(ax) is ax


def test_without_axes_the_current_ones_are_used(model: CVGPRegressor) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    current = plt.figure().add_subplot()
    assert plots.plot_relevance(model) is current
    plt.close()


def test_importance_has_a_bar_a_feature_with_the_largest_on_top(model: CVGPRegressor, ax: Axes) -> None:
    plots.plot_relevance(model, ax)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[::-1] == [model.feature_names_in_[d] for d in np.argsort(model.feature_importances_)[::-1]]
    assert [bar.get_width() for bar in ax.patches] == sorted(model.feature_importances_)


def test_importance_shows_how_uncertain_it_is(model: CVGPRegressor, ax: Axes) -> None:
    plots.plot_relevance(model, ax)
    (bars,) = ax.containers[-1:]
    found = model.sobol_indices()
    ends = [segment[:, 0] for segment in bars.errorbar.lines[2][0].get_segments()]
    half = 0.5 * np.diff(ends, axis=1)[:, 0]
    np.testing.assert_allclose(half, found.total_uncertainty[np.argsort(found.total)])


def test_importance_shows_at_most_as_many_bars_as_asked(model: CVGPRegressor, ax: Axes) -> None:
    assert len(plots.plot_relevance(model, ax, top=2).patches) == 2


def test_columns_of_any_kernel_come_by_their_importance(data: Data) -> None:
    polynomial = CVGPRegressor(5, kernel=PolynomialKernel(2), random_state=0, max_iter=3).fit(*data)
    assert plots.columns_by_importance(polynomial)[0] == "strong"


def test_partial_dependence_is_the_weighted_mean_over_the_coreset(model: CVGPRegressor, ax: Axes) -> None:
    line = plots.plot_partial_dependence(model, "strong", ax).lines[0]
    value = line.get_xdata()[7]
    points = pd.DataFrame(model.coreset_.X.copy(), columns=model.feature_names_in_).assign(strong=value)
    expected = np.average(model.predict(points), weights=model.coreset_.beta)
    assert line.get_ydata()[7] == pytest.approx(expected)


def test_the_band_of_partial_dependence_is_that_of_the_mean_function(model: CVGPRegressor, ax: Axes) -> None:
    plots.plot_partial_dependence(model, 0, ax)
    band = ax.collections[0].get_paths()[0].vertices
    value = ax.lines[0].get_xdata()[7]
    points = pd.DataFrame(model.coreset_.X.copy(), columns=model.feature_names_in_).assign(strong=value)
    _, cov = model.predict(points, return_cov=True, include_noise=False)
    share = model.coreset_.beta / model.coreset_.beta.sum()
    heights = band[np.isclose(band[:, 0], value), 1]
    assert np.ptp(heights) == pytest.approx(2 * 1.959964 * np.sqrt(share @ cov @ share), rel=1e-5)


def test_a_text_column_is_drawn_by_category(table_model: CVGPRegressor, ax: Axes) -> None:
    line = plots.plot_partial_dependence(table_model, "colour", ax).lines[0]
    blue, green, red = line.get_ydata()
    assert list(line.get_xdata()) == ["blue", "green", "red"]
    assert red - max(blue, green) > 2.0


def test_columns_of_a_table_are_ranked_as_columns(table_model: CVGPRegressor) -> None:
    assert sorted(plots.columns_by_importance(table_model)) == ["colour", "size"]


@pytest.mark.parametrize("wanted", ["strange", 3, -1])
def test_a_column_that_is_not_there_is_refused(model: CVGPRegressor, ax: Axes, wanted: str | int) -> None:
    with pytest.raises(InvalidInputError, match=r"choose from \['strong', 'weak', 'useless'\]"):
        plots.plot_partial_dependence(model, wanted, ax)


def test_a_schema_of_other_features_is_refused(table_model: CVGPRegressor, model: CVGPRegressor, ax: Axes) -> None:
    model_with_wrong_schema = CVGPRegressor()
    model_with_wrong_schema.__dict__.update(model.__dict__, schema_=table_model.schema_)
    with pytest.raises(FileFormatError, match="other features"):
        plots.plot_partial_dependence(model_with_wrong_schema, "size", ax)


def test_far_pseudo_points_do_not_stretch_the_picture(model: CVGPRegressor, ax: Axes) -> None:
    low, high = plots.plot_partial_dependence(model, "strong", ax).get_ylim()
    assert high - low < 8 * model.gp_.scaling.y_scale[0]


def test_history_is_that_of_the_solver_alone(model: CVGPRegressor, ax: Axes) -> None:
    line = plots.plot_training(model, ax).lines[0]
    assert list(line.get_xdata()) == list(range(1, model.n_iter_ + 1))


@pytest.mark.parametrize("rate", [1.0, 20.0], ids=["coreset", "neighbours"])
def test_history_is_that_of_training_where_neighbours_were_judged(rate: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (600, 2))
    y = np.sin(rate * X[:, 0]) * np.cos(rate * X[:, 1]) + 0.1 * rng.standard_normal(600)
    fitted = CVGPRegressor(10, noise="constant", random_state=0).fit(X, y)
    assert (fitted.solver_ == "neighbours") == (rate > 1.0)
    line = plots.plot_training(fitted, Figure().add_subplot()).lines[0]
    assert len(line.get_xdata()) > 5
    assert (np.diff(line.get_xdata()) > 0).all()


def test_history_shows_the_validation_error_on_its_own_axis(data: Data) -> None:
    figure = Figure()
    fitted = CVGPRegressor(10, random_state=0, max_iter=60, early_stopping=True).fit(*data)
    plots.plot_training(fitted, figure.add_subplot())
    assert figure.axes[1].get_ylabel() == "validation RMSE (in sd of y)"


def test_calibration_shows_the_coverage_of_each_level(model: CVGPRegressor, data: Data, ax: Axes) -> None:
    line = plots.plot_calibration(model, *data, ax).lines[1]
    mean, sd = model.predict(data[0], return_std=True)
    inside = np.abs(data[1] - mean) < 0.67449 * sd
    assert line.get_ydata()[9] == pytest.approx(inside.mean(), abs=1e-3)


def test_predictions_outside_their_interval_are_marked(model: CVGPRegressor, data: Data, ax: Axes) -> None:
    x, y = data
    far = y.copy()
    far[:4] += 100.0
    inside, outside = plots.plot_predicted(model, x, far, ax).collections
    assert len(outside.get_offsets()) >= 4
    assert len(inside.get_offsets()) + len(outside.get_offsets()) == 80


def test_many_rows_are_thinned_out(model: CVGPRegressor, data: Data, ax: Axes) -> None:
    x, y = pd.concat([data[0]] * 40, ignore_index=True), np.tile(data[1], 40)
    shown = sum(len(points.get_offsets()) for points in plots.plot_predicted(model, x, y, ax).collections)
    assert shown == 2000


def test_the_posterior_of_one_input_is_drawn_beyond_the_data(data: Data, ax: Axes) -> None:
    x, y = data[0][["strong"]].to_numpy(), data[1]
    fitted = CVGPRegressor(10, random_state=0, max_iter=20).fit(x, y)
    low, high = plots.plot_posterior(fitted, x, y, ax).get_xlim()
    assert (low < x.min(), high > x.max()) == (True, True)


def test_the_posterior_of_several_inputs_is_a_slice_along_the_most_important_one(
    model: CVGPRegressor, ax: Axes
) -> None:
    line = plots.plot_posterior(model, ax=ax).lines[0]
    scaled = model.gp_.scaling.scale_x(model.coreset_.X)
    centre = np.average(scaled, axis=0, weights=model.coreset_.beta)
    middle = model.coreset_.X[np.linalg.norm(scaled - centre, axis=1).argmin()]
    rows = pd.DataFrame(np.tile(middle, (60, 1)), columns=model.feature_names_in_).assign(strong=line.get_xdata())
    np.testing.assert_allclose(line.get_ydata(), model.predict(rows))
    assert ax.get_xlabel() == "strong"


def test_the_posterior_along_a_text_column_has_an_interval_per_category(table_model: CVGPRegressor, ax: Axes) -> None:
    plots.plot_posterior(table_model, ax=ax, column="colour")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["blue", "green", "red"]


def test_data_do_not_lie_on_the_slice_of_several_inputs(model: CVGPRegressor, data: Data, ax: Axes) -> None:
    with pytest.raises(InvalidInputError, match="the model has 3"):
        plots.plot_posterior(model, *data, ax)


def test_inputs_without_outputs_cannot_be_shown(model: CVGPRegressor, data: Data, ax: Axes) -> None:
    with pytest.raises(InvalidInputError, match="give both or none"):
        plots.plot_posterior(model, data[0], ax=ax)


def test_the_coreset_is_drawn_over_two_columns_with_areas_in_proportion_to_weights(
    model: CVGPRegressor, ax: Axes
) -> None:
    dots = plots.plot_coreset(model, ["weak", "strong"], ax).collections[0]
    order = np.argsort(-model.coreset_.beta)
    np.testing.assert_allclose(dots.get_offsets(), model.coreset_.X[order][:, [1, 0]])
    areas, weights = dots.get_sizes(), model.coreset_.beta[order]
    heavy = areas > 4.0
    np.testing.assert_allclose(areas[heavy] / areas[0], weights[heavy] / weights[0])


def test_pseudo_points_stand_at_their_nearest_category(table_model: CVGPRegressor, ax: Axes) -> None:
    plots.plot_coreset(table_model, ["colour", "size"], ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["blue", "green", "red"]
    assert set(ax.collections[0].get_offsets()[:, 0]) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize("columns", [["strong"], ["strong", "weak", "useless"]])
def test_a_coreset_over_other_than_two_columns_is_refused(model: CVGPRegressor, ax: Axes, columns: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="over two columns"):
        plots.plot_coreset(model, columns, ax)


@pytest.mark.parametrize("beta", [[1.0, 1.0], [0.0, 3.0], [1e-30, 1.0, 50.0], [2.0]])
def test_the_histogram_of_weights_counts_each_point_once(beta: list[float]) -> None:
    counts, edges = weight_histogram(np.array(beta))
    assert counts.sum() == len(beta)
    assert (np.diff(edges) > 0).all()


def test_several_outputs_cannot_be_drawn(data: Data, ax: Axes) -> None:
    x, y = data
    fitted = CVGPRegressor(5, random_state=0, max_iter=3).fit(x, np.column_stack([y, -y]))
    with pytest.raises(InvalidInputError, match="of one output, but the model has 2"):
        plots.plot_predicted(fitted, x, y, ax)


def test_quality_by_size_has_an_axis_for_the_error_and_one_for_the_likelihood(ax: Axes) -> None:
    plots.plot_quality_by_size(QUALITY, ax)
    error, likelihood = (axes.lines[0] for axes in ax.figure.axes)
    np.testing.assert_array_equal(error.get_xydata(), [[1, 0.5], [2, 0.3], [4, 0.2]])
    np.testing.assert_array_equal(likelihood.get_ydata(), [-1.0, -0.5, -0.4])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "4"]


def test_quality_without_its_columns_is_refused(ax: Axes) -> None:
    with pytest.raises(InvalidInputError, match="lacks \\['rmse'\\]"):
        plots.plot_quality_by_size({"size": [1], "mean_log_likelihood": [0.0]}, ax)


def test_noise_is_drawn_in_the_units_of_the_target(ax: Axes) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(800, 2))
    y = 100.0 * (np.sin(x[:, 0]) + (0.05 + 0.3 * (x[:, 1] > 0)) * rng.normal(size=800))
    fitted = CVGPRegressor(n_coreset=20, max_iter=30, random_state=0).fit(x, y)
    line = plots.plot_noise(fitted, 1, ax).lines[0]
    along, noise = line.get_xdata(), line.get_ydata()
    quiet, loud = noise[along < -0.5].mean(), noise[along > 0.5].mean()
    assert loud > 3.0 * quiet
    assert 25.0 < loud < 50.0
    assert ax.get_ylim()[0] == 0.0


def test_the_axis_of_a_column_of_dates_shows_dates(ax: Axes) -> None:
    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=60), "y": np.arange(60.0)})
    fitted = CVGPRegressor(6, max_iter=2, neighbors=0, noise="constant", dates="features", random_state=0)
    plots.plot_partial_dependence(fitted.fit(frame, "y"), "day", ax)
    ax.figure.canvas.draw()
    assert {label.get_text()[:5] for label in ax.get_xticklabels()} <= {"2023-", "2024-"}
