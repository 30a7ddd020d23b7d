"""Commands about classes: which targets are classes, and what each command does with a classifier."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

import cvgp
from cvgp import CVGPClassifier, CVGPRegressor, metrics
from tests.cli.conftest import Run, flat, make_table
from tests.tables.helpers import read_frame, write

QUICK = ("--n-coreset", 8, "--quiet")


def flowers(rows: int, seed: int = 0) -> pd.DataFrame:
    """Three kinds of flowers by a length and a color."""
    rng = np.random.default_rng(seed)
    length, color = rng.normal(size=rows), rng.choice(["blue", "red"], rows)
    z = 2.0 * length + (color == "red") + 0.5 * rng.normal(size=rows)
    return pd.DataFrame(
        {"length": length, "color": color, "kind": np.select([z > 1.5, z > -0.5], ["iris", "rose"], "lily")}
    )


@pytest.fixture(scope="module")
def classifier(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier that the command line has fitted to text without being told so."""
    folder = tmp_path_factory.mktemp("classifier")
    write(folder / "train.csv", flowers(120))
    result = run("fit", folder / "train.csv", "--target", "kind", "--out", folder / "m", *QUICK)
    assert result.exit_code == 0, result.stderr
    assert "classifier of its 3 classes" in flat(result.stderr)
    return folder / "m"


@pytest.fixture
def unseen(tmp_path: Path) -> Path:
    return write(tmp_path / "test.csv", flowers(80, seed=1))


def test_the_fit_is_that_of_the_library(classifier: Path) -> None:
    frame = flowers(120)
    expected = CVGPClassifier(n_coreset=8, random_state=0).fit(frame, "kind")
    found = cvgp.load(classifier)
    np.testing.assert_allclose(found.predict_proba(frame), expected.predict_proba(frame), atol=1e-6)


@pytest.mark.parametrize(
    ("values", "options", "expected"),
    [
        ([1, 2], (), CVGPRegressor),
        ([1, 2], ("--task", "classify"), CVGPClassifier),
        (["true", "false"], (), CVGPClassifier),
        (["true", "false"], ("--task", "regress", "--max-iter", 5), CVGPRegressor),
    ],
)
def test_numbers_are_classes_if_asked_for(
    run: Run, tmp_path: Path, values: list[object], options: tuple[object, ...], expected: type
) -> None:
    write(tmp_path / "a.csv", make_table(40).assign(price=[values[i % 2] for i in range(40)]))
    result = run("fit", tmp_path / "a.csv", "--target", "price", "--out", tmp_path / "m", *QUICK, *options, "--json")
    assert result.exit_code == 0, result.stderr
    assert type(cvgp.load(tmp_path / "m")) is expected
    assert ("classes" in json.loads(result.stdout)) == (expected is CVGPClassifier)


@pytest.mark.parametrize(
    ("target", "options", "named"),
    [
        ("colour", ["--noise", "constant"], "--noise"),
        ("price", ["--link", "probit"], "--link"),
        ("colour", ["--solver", "adam"], "--solver"),
        ("price", ["--class-weight", "balanced"], "--class-weight"),
        ("price", ["--task", "classify", "--n-neighbors", 5], "--n-neighbors"),
    ],
)
def test_an_option_of_the_other_estimator_is_wrong_use(
    run: Run, table: Path, tmp_path: Path, target: str, options: list[object], named: str
) -> None:
    result = run("fit", table, "--target", target, "--out", tmp_path / "m", *options)
    assert (result.exit_code, f"'{named}'" in flat(result.stderr)) == (2, True)
    assert not (tmp_path / "m").exists()


def test_too_many_classes_are_a_failure_that_says_what_to_do(run: Run, tmp_path: Path) -> None:
    write(
        tmp_path / "a.csv", pd.DataFrame({"x": np.arange(20_000) % 7, "y": [f"c{i % 10_000}" for i in range(20_000)]})
    )
    result = run("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "m", *QUICK)
    assert (result.exit_code, "10000 different classes" in result.stderr) == (1, True)


@pytest.mark.filterwarnings("default:Left out")
def test_rows_without_a_label_are_left_out_with_a_line(run: Run, tmp_path: Path) -> None:
    frame = flowers(60)
    frame.loc[[7, 9], "kind"] = None
    words = ("fit", write(tmp_path / "a.csv", frame), "--target", "kind", "--out", tmp_path / "m", *QUICK, "--json")
    result = run(*words)
    assert "missing in 2 of" in result.stderr
    assert json.loads(result.stdout)["rows_skipped"] == 2


def test_predictions_are_the_class_and_a_probability_of_each(
    run: Run, classifier: Path, unseen: Path, tmp_path: Path
) -> None:
    frame, model = flowers(80, seed=1), cvgp.load(classifier)
    assert run("predict", classifier, unseen, "--out", tmp_path / "out.parquet").exit_code == 0
    found = read_frame(tmp_path / "out.parquet")
    columns = ["kind_p_iris", "kind_p_lily", "kind_p_rose"]
    assert list(found.columns) == [*frame.columns, "kind_predicted", *columns]
    np.testing.assert_allclose(found[columns], model.predict_proba(frame), rtol=1e-9)
    assert found["kind_predicted"].tolist() == model.predict(frame).tolist()
    result = run("predict", classifier, unseen, "--out", tmp_path / "b.csv", "--quantiles", ".1")
    assert (result.exit_code, "--quantiles" in result.stderr) == (2, True)


def test_bad_rows_have_no_predicted_class(run: Run, classifier: Path, tmp_path: Path) -> None:
    frame = flowers(5)
    frame.loc[2, "length"] = np.inf
    write(tmp_path / "a.parquet", frame)
    words = ("predict", classifier, tmp_path / "a.parquet", "--out", tmp_path / "out.parquet")
    assert run(*words, "--on-bad-rows", "skip").exit_code == 0
    assert read_frame(tmp_path / "out.parquet")["kind_predicted"].isna().tolist() == [False, False, True, False, False]


def test_the_scores_are_those_of_the_probabilities_and_of_the_class_frequencies(
    run: Run, classifier: Path, unseen: Path
) -> None:
    model, frame = cvgp.load(classifier), flowers(80, seed=1)
    scores = json.loads(run("evaluate", classifier, unseen, "--json").stdout)["scores"]
    codes = np.searchsorted(model.classes_, frame["kind"])
    assert scores["cvgp"] == pytest.approx(metrics.class_scores(codes, model.predict_proba(frame)))
    shares = flowers(120)["kind"].value_counts(normalize=True).sort_index().to_numpy()
    assert scores["frequencies"]["log_loss"] == pytest.approx(-np.log(shares[codes]).mean())
    text = run("evaluate", classifier, unseen).stdout
    assert all(name in text for name in ("log loss", "Brier", "AUC", "accuracy", "calibration error"))


def test_labels_that_the_fit_has_not_seen_are_named(run: Run, classifier: Path, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", flowers(20).replace({"kind": {"rose": "tulip"}}))
    result = run("evaluate", classifier, tmp_path / "a.csv")
    assert (result.exit_code, "not fitted with: ['tulip']" in flat(result.stderr)) == (1, True)


@pytest.mark.parametrize("labels", [[1, 2], [0.5, 1.5], [True, False]])
def test_labels_of_any_kind_are_recognized_in_other_files(run: Run, tmp_path: Path, labels: list[object]) -> None:
    frame = make_table(60).assign(price=[labels[i % 2] for i in range(60)])
    write(tmp_path / "a.csv", frame)
    fitted = run("fit", tmp_path / "a.csv", "--target", "price", "--task", "classify", "--out", tmp_path / "m", *QUICK)
    assert fitted.exit_code == 0, fitted.stderr
    results = [
        run("evaluate", tmp_path / "m", write(tmp_path / f"b{end}", frame), "--json") for end in (".csv", ".parquet")
    ]
    scores = [json.loads(result.stdout)["scores"]["cvgp"]["log_loss"] for result in results]
    assert scores[0] == pytest.approx(scores[1])


def test_info_and_coreset_describe_a_classifier(run: Run, classifier: Path, tmp_path: Path) -> None:
    facts = json.loads(run("info", classifier, "--json").stdout)
    assert facts["classes"] == ["iris", "lily", "rose"]
    assert facts["feature_importances"]["length"] > facts["feature_importances"]["color"]
    assert "left-out row" in run("info", classifier).stdout
    assert run("coreset", classifier, "--out", tmp_path / "c.csv").exit_code == 0
    found, coresets = read_frame(tmp_path / "c.csv"), cvgp.load(classifier).coresets_
    assert sorted(found["kind=lily"]) == pytest.approx(sorted(coresets[1].y))
    assert found.filter(like="beta=").sum(axis=1).is_monotonic_decreasing


def test_plot_shows_a_classifier_and_with_a_table_its_reliability(
    run: Run, classifier: Path, unseen: Path, tmp_path: Path
) -> None:
    assert json.loads(run("plot", classifier, "--out", tmp_path / "p.png", "--json").stdout)["pictures"] == [
        "relevance",
        "training",
    ]
    result = run("plot", classifier, "--out", tmp_path / "q.png", "--data", unseen, "--json")
    assert json.loads(result.stdout)["pictures"][-1] == "reliability"
    assert imread(tmp_path / "q.png")[..., :3].std() > 0.05


def test_classifiers_are_not_merged(run: Run, classifier: Path, tmp_path: Path) -> None:
    result = run("merge", classifier, classifier, "--out", tmp_path / "b")
    assert (result.exit_code, "CVGPRegressor" in result.stderr) == (1, True)
