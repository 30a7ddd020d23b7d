"""Fitting and predicting data frames with text, categories, dates and gaps."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import cvgp
from cvgp import CVGPRegressor, TrainingOptions, read_table
from cvgp.cli import app
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.estimators.frames import feature_names
from tests.flat_options import make_regressor

OPTIONS: dict[str, Any] = {"n_coreset": 12, "max_iter": 30, "n_neighbors": 0, "random_state": 0}


def raw(num_rows: int = 150, seed: int = 0) -> pd.DataFrame:
    """Numbers, true and false, few and many categories, ordered ones, dates, and gaps in all but one column."""
    rng = np.random.default_rng(seed)
    city = rng.integers(15, size=num_rows)
    effect = np.random.default_rng(5).normal(size=15)
    table = pd.DataFrame(
        {
            "size": rng.uniform(0.0, 4.0, num_rows),
            "city": [f"city {i}" for i in city],
            "color": rng.choice(["blue", "red"], num_rows),
            "sold": rng.random(num_rows) < 0.5,
            "grade": pd.Categorical(rng.choice(["low", "mid", "high"], num_rows), ["low", "mid", "high"], ordered=True),
            "when": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 300, num_rows), "D"),
        }
    )
    table["price"] = table["size"] + effect[city] + 0.2 * rng.normal(size=num_rows)
    table.loc[::7, "size"] = np.nan
    table.loc[::11, "city"] = None
    table.loc[::13, "color"] = None
    return table


X, Y = raw().drop(columns="price"), raw()["price"]


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return make_regressor(**OPTIONS).fit(X, Y)


# What a frame is.


# One door.


def test_a_raw_frame_is_learned_and_predicted(model: CVGPRegressor) -> None:
    new = raw(100, seed=1)
    assert model.score(new, new["price"]) > 0.7
    assert np.isfinite(model.log_predictive_density(new, new["price"])).all()
    assert model.predict_quantiles(new, [0.1, 0.9]).shape == (100, 2)
    assert model.sample_y(new[:5], 3).shape == (5, 3)


@pytest.mark.parametrize("kind", ["polars", "arrow"])
def test_frames_of_all_libraries_give_the_same_model(model: CVGPRegressor, kind: str) -> None:
    convert = pl.from_pandas if kind == "polars" else lambda frame: pa.Table.from_pandas(frame, preserve_index=False)
    plain = X.assign(grade=X["grade"].cat.codes)  # polars knows another kind of order
    first, second = (make_regressor(**OPTIONS).fit(make(plain), Y) for make in (lambda frame: frame, convert))
    np.testing.assert_array_equal(first.predict(plain), second.predict(convert(plain)))


def test_a_model_of_a_numeric_frame_can_predict_a_table_from_the_command_line(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": np.linspace(0.0, 1.0, 30), "b": np.arange(30) % 2 == 0})
    model = CVGPRegressor(5, random_state=0, training=TrainingOptions(max_iter=5)).fit(
        frame, pd.Series(frame["a"] ** 2, name="area")
    )
    model.save(tmp_path / "m.cvgp")
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = CliRunner().invoke(
        app, ["predict", str(tmp_path / "m.cvgp"), str(tmp_path / "t.csv"), "--out", str(tmp_path / "o.parquet")]
    )
    assert done.exit_code == 0
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "o.parquet")["area_mean"], model.predict(frame))


def test_a_numeric_frame_is_the_same_fit_as_its_array() -> None:
    frame = pd.DataFrame({"a": np.linspace(0.0, 1.0, 30), "b": np.linspace(1.0, 5.0, 30) ** 2})
    named, plain = (
        CVGPRegressor(5, random_state=0, training=TrainingOptions(max_iter=5)).fit(x, frame["a"])
        for x in (frame, frame.to_numpy())
    )
    assert named.elbo_ == plain.elbo_
    assert not hasattr(plain, "schema_")


def test_the_target_may_be_a_column_of_the_frame(model: CVGPRegressor) -> None:
    same = make_regressor(**OPTIONS).fit(raw(), "price")
    np.testing.assert_array_equal(same.predict(X), model.predict(X))


def test_weights_and_known_noise_are_given_beside_the_frame_or_in_it() -> None:
    weight, noise = np.linspace(0.5, 1.5, len(X)), np.full(len(X), 0.01)
    beside = make_regressor(**OPTIONS).fit(X, Y, sample_weight=weight, noise_variance=noise)
    inside = make_regressor(**OPTIONS).fit(raw().assign(w=weight, v=noise), "price", "w", "v")
    np.testing.assert_array_equal(beside.predict(X), inside.predict(X))


def test_new_rows_of_a_raw_frame_are_conditioned_on(model: CVGPRegressor) -> None:
    new = raw(20, seed=2)
    after = model.condition(new, new["price"])
    assert after.n_rows_ == model.n_rows_ + 20


def test_levels_without_any_effect_are_no_reason_for_a_warning() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.linspace(0.0, 1.0, 60), "city": [f"c{i % 20}" for i in range(60)]})
    y = np.round(frame["a"], 3) + 0.1 * np.repeat([-1.0, 1.0], 30) * rng.permutation(30)[np.arange(60) % 20]
    model = make_regressor(**OPTIONS).fit(frame, y - y.groupby(frame["city"]).transform("mean"))
    assert model.schema_["columns"][1]["prior_sd"] == [0.0]


# Cells that are not known.


def generated(num_rows: int, seed: int, gaps: float) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """Two numbers and a city that matter; the first number is missing more often where the second is large."""
    rng = np.random.default_rng(seed)
    effect = np.random.default_rng(3).normal(size=30)
    city = rng.integers(30, size=num_rows)
    a, b = rng.normal(size=num_rows), rng.normal(size=num_rows)
    y = np.sin(a) * 1.5 + 0.5 * b + effect[city] + 0.3 * rng.normal(size=num_rows)
    missing = rng.random(num_rows) < gaps * 2.0 / (1.0 + np.exp(-b))
    frame = pd.DataFrame({"a": np.where(missing, np.nan, a), "b": b, "city": [f"c{i}" for i in city]})
    return frame, pd.Series(y, name="y"), pd.Series(missing)


def coverage(model: CVGPRegressor, frame: pd.DataFrame, y: pd.Series) -> float:
    low, high = model.predict_quantiles(frame, [0.05, 0.95]).T
    return float(((low <= y) & (y <= high)).mean())


@pytest.mark.parametrize("gaps_in_training", [0.25, 0.0], ids=["learned from", "integrated out"])
@pytest.mark.slow
def test_intervals_of_rows_with_gaps_are_wider_and_hold_what_they_promise(gaps_in_training: float) -> None:
    train, y, _ = generated(600, 0, gaps_in_training)
    model = CVGPRegressor(n_neighbors=0, random_state=0).fit(train, y)
    new, y_new, missing = generated(1500, 1, 0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CVGPWarning)
        sd = model.predict(new, return_std=True)[1]
        assert sd[missing].mean() > 1.5 * sd[~missing].mean()
        assert 0.85 < coverage(model, new[missing], y_new[missing]) < 0.95
        unknown = new.assign(city="elsewhere")
        assert model.predict(unknown, return_std=True)[1].mean() > 1.5 * sd.mean()
        assert 0.83 < coverage(model, unknown, y_new) < 0.97


def test_a_level_that_was_never_seen_is_warned_of_by_column_count_and_first_rows(model: CVGPRegressor) -> None:
    with pytest.warns(CVGPWarning, match=r"did not have: 'city' 2 \(.*data row 1, 2\).*fit again with such rows"):
        model.predict(X.assign(city=["nowhere", "elsewhere", *X["city"][2:]]))


def test_dates_outside_the_training_range_are_warned_of(model: CVGPRegressor) -> None:
    with pytest.warns(CVGPWarning, match=r"outside the range of the training table: 'when' 150 \(.*data row 1, 2, 3\)"):
        model.predict(X.assign(when=pd.Timestamp("2030-01-01")))


def test_the_joint_covariance_has_the_variances_of_rows_with_gaps(model: CVGPRegressor) -> None:
    unknown = X[:9].assign(city="nowhere")
    with pytest.warns(CVGPWarning):
        cov = model.predict(unknown, return_cov=True)[1]
    with pytest.warns(CVGPWarning):
        sd = model.predict(unknown, return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd, rtol=0.05)


# Tables that differ from that of the fit.


def test_columns_are_matched_by_name(model: CVGPRegressor) -> None:
    np.testing.assert_array_equal(model.predict(X[X.columns[::-1]]), model.predict(X))


def test_extra_columns_are_ignored_with_one_warning(model: CVGPRegressor) -> None:
    with pytest.warns(CVGPWarning, match=r"does not know the columns \['note', 'id'\], which are ignored") as caught:
        found = model.predict(X.assign(note="x", id=1))
    assert len(caught) == 1
    np.testing.assert_array_equal(found, model.predict(X))


def test_a_column_that_the_fit_left_out_needs_no_warning_to_predict(tmp_path: Path) -> None:
    named = X.assign(name=[f"house {i}" for i in range(len(X))])
    with pytest.warns(CVGPWarning, match="Left out, since they are not informative: 'name'"):
        model = make_regressor(**OPTIONS).fit(read_table(named.assign(y=Y), "y", drop="sold"))
    model.save(tmp_path / "model.cvgp")
    for found in (model, cvgp.load(tmp_path / "model.cvgp")):
        found.predict(named)  # a warning would be an error here


def test_a_missing_and_a_renamed_column_are_named_with_near_names(model: CVGPRegressor) -> None:
    changed = X.rename(columns={"size": "Size"}).drop(columns="sold")
    with pytest.raises(
        InvalidInputError, match=r"lacks the columns \['size', 'sold'\].*Perhaps it has 'Size' for 'size'"
    ):
        model.predict(changed)


def test_a_column_that_changes_its_type_is_named(model: CVGPRegressor) -> None:
    with pytest.raises(
        InvalidTypeError, match=r"Column 'size' must hold numbers, .*: row 1 holds 'large', row 2 holds"
    ):
        model.predict(X.assign(size="large"))
    with pytest.raises(InvalidTypeError, match=r"Column 'when' must hold dates, .*: row 1 holds 3\.0"):
        model.predict(X.assign(when=3.0))


def test_numbers_that_became_text_are_read_if_they_still_spell_numbers(model: CVGPRegressor) -> None:
    as_text = X.assign(size=[None if np.isnan(size) else f"{size!r}" for size in X["size"].to_numpy().tolist()])
    np.testing.assert_array_equal(model.predict(as_text), model.predict(X))


def test_an_array_is_refused_where_columns_are_more_than_numbers(model: CVGPRegressor) -> None:
    with pytest.raises(InvalidTypeError, match=r"columns \['size', 'city'.*give a DataFrame.*not a ndarray"):
        model.predict(np.ones((2, 6)))


# Tables that cannot be learned from.


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"size": [1.0, "two"] * 75}, InvalidTypeError, "Column 'size' mixes types.*row 2 holds 'two'"),
        ({"size": [np.inf, *np.ones(149)]}, InvalidInputError, "data row 1: column 'size' is infinite"),
        ({"size": [[1]] * 150}, InvalidTypeError, "Column 'size' holds values of type list"),
    ],
    ids=["mixed types", "infinite", "lists"],
)
def test_a_column_that_cannot_be_used_is_named(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make_regressor(**OPTIONS).fit(X.assign(**change), Y)


@pytest.mark.parametrize(("dates", "has_trend"), [("trend", True), ("season", False), ("drop", False)])
def test_dates_become_the_features_that_are_asked_for(dates: Any, has_trend: bool) -> None:
    model = make_regressor(**OPTIONS).fit(read_table(X.assign(y=Y), "y", dates=dates))
    names = feature_names(model)
    assert ("when trend" in names) == has_trend
    assert any(name.startswith("when ") for name in names) == (dates != "drop")
    assert model.decisions_.dates is None
    first = X.assign(when=X["when"].dt.normalize().min())
    assert np.allclose(model.predict(X), model.predict(first)) == (dates == "drop")


def daily_rows(slope: float) -> pd.DataFrame:
    rng, day = np.random.default_rng(0), np.arange(1000)
    y = np.sin(2.0 * np.pi * day / 365.2425) + slope * day / 365.2425 + 0.1 * rng.normal(size=len(day))
    return pd.DataFrame({"when": pd.Timestamp("2020-01-01") + pd.to_timedelta(day, "D"), "y": y})


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.0, 2.0])
def test_a_trend_is_used_where_later_rows_need_it(slope: float) -> None:
    rows = daily_rows(slope)
    model = make_regressor(random_state=0).fit(rows[:800], "y")
    assert model.decisions_.dates.taken == ("with trend" if slope else "without trend")
    assert ("when trend" in feature_names(model)) == bool(slope)
    if not slope:  # the season goes on for ever
        error = model.predict(rows[800:]) - rows["y"][800:].to_numpy()
        assert np.sqrt(np.mean(error**2)) < 0.13
    again = make_regressor(random_state=0).fit(rows[:800], "y", decisions={"dates": model.decisions_.dates})
    assert feature_names(again) == feature_names(model)
    assert again.decisions_.dates == model.decisions_.dates
    if not slope:
        renamed = rows[:800].rename(columns={"when": "day"})
        with pytest.raises(InvalidInputError, match="other columns: when"):
            make_regressor(random_state=0).fit(renamed, "y", decisions={"dates": model.decisions_.dates})


def test_a_table_of_dates_alone_cannot_drop_them() -> None:
    with pytest.raises(InvalidInputError, match=r"No column is left.*dates='drop'"):
        make_regressor(**OPTIONS).fit(read_table(daily_rows(0.0), "y", dates="drop"))


def test_names_that_stand_twice_are_refused() -> None:
    twice = pd.concat([X, X[["size"]]], axis=1)
    with pytest.raises(InvalidInputError, match=r"must be unique: the frame has 'size'"):
        make_regressor(**OPTIONS).fit(twice, Y)


def test_rows_without_a_target_are_left_out_of_frames() -> None:
    gappy = Y.where(Y.index % 10 > 0)
    with pytest.warns(CVGPWarning, match="missing in 15 of 150"):
        model = make_regressor(**OPTIONS).fit(X, gappy)
    skipped = make_regressor(**OPTIONS).fit(read_table(X.assign(y=gappy), "y", on_bad_rows="skip"))
    assert model.n_bad_rows_ == skipped.n_bad_rows_ == 15
    assert model.elbo_ == skipped.elbo_


def test_rows_without_a_target_are_left_out_of_arrays_with_all_that_is_beside_them() -> None:
    rng = np.random.default_rng(0)
    x, group, weight = rng.normal(size=(60, 2)), np.arange(60) % 12, rng.uniform(0.5, 1.5, 60)
    y = np.where(np.arange(60) % 10 > 0, x[:, 0], np.nan)
    has_y = ~np.isnan(y)
    with pytest.warns(CVGPWarning, match="missing in 6 of 60"):
        model = make_regressor(**OPTIONS).fit(x, y, weight, groups=group)
    complete = make_regressor(**OPTIONS).fit(x[has_y], y[has_y], weight[has_y], groups=group[has_y])
    assert model.elbo_ == complete.elbo_


def test_text_as_the_target_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="y must hold numbers"):
        make_regressor(**OPTIONS).fit(X, pd.Series(["a"] * len(X)))


def test_rows_that_the_rule_drops_cannot_be_predicted() -> None:
    model = make_regressor(**OPTIONS).fit(read_table(X.assign(y=Y), "y", impute="drop"))
    with pytest.raises(InvalidInputError, match="rows have missing values, and the model's rule"):
        model.predict(X)


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_numbers_in_columns_of_another_order_are_found_by_name(convert: Any) -> None:
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame({"b": rng.normal(size=60), "a": 10.0 + rng.normal(size=60), "c": rng.normal(size=60)})
    model = make_regressor(**OPTIONS).fit(numbers, numbers["a"] - 2.0 * numbers["b"])
    expected = model.predict(numbers)
    np.testing.assert_array_equal(model.predict(convert(numbers[["c", "a", "b"]])), expected)
    with pytest.warns(CVGPWarning, match=r"does not know the columns \['other'\]"):
        more = model.predict(convert(numbers[["a", "c", "b"]].assign(other=1.0)))
    np.testing.assert_array_equal(more, expected)


def test_numbers_in_the_order_of_the_fit_are_read_as_those_in_another_and_checked() -> None:
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame({"a": rng.normal(size=60), "b": rng.integers(9, size=60), "c": rng.normal(size=60) > 0.0})
    for columns in (["a"], ["a", "b"], ["a", "b", "c"]):
        frame = numbers[columns]
        model = make_regressor(**OPTIONS).fit(frame, numbers["a"] - 2.0 * numbers["b"])
        np.testing.assert_array_equal(model.predict(frame[:3]), model.predict(frame[columns[::-1]][:3]))
        with pytest.raises(InvalidInputError, match="infinity"):
            model.predict(frame.assign(a=np.inf))
