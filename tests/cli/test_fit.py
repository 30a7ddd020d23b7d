import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.data.schema import Schema
from tests.cli.conftest import Run, flat, make_table

QUICK = ("--coreset", 8, "--max-iter", 20, "--quiet")


def test_the_model_is_saved_with_the_schema_of_its_table(model: Path) -> None:
    assert cvgp.load(model).schema_["target"] == "price"


def test_text_columns_become_indicators(model: Path) -> None:
    names = Schema.from_json(cvgp.load(model).schema_).feature_names
    assert names == ("size", "weight", "colour=blue", "colour=red")


def test_flags_reach_the_estimator(run: Run, table: Path, tmp_path: Path) -> None:
    flags = [
        *(
            "--kernel",
            "rbf",
            "--neighbors",
            4,
            "--no-ard",
            "--init",
            "random",
            "--solver",
            "adam",
            "--bound",
            "power",
            "--power",
            0.7,
            "--dtype",
            "float32",
        ),
        *("--device", "cpu", "--seed", 3, "--batch-size", 16, "--learning-rate", 0.02, "--early-stopping"),
        *("--max-time", 60, "--noise", "constant", "--target-transform", "yeo-johnson"),
    ]
    run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK, *flags)
    found = cvgp.load(tmp_path / "m").get_params()
    expected = {
        "n_coreset": 8,
        "kernel": "rbf",
        "neighbors": 4,
        "ard": False,
        "init": "random",
        "solver": "adam",
        "bound": "power",
        "power": 0.7,
        "dtype": "float32",
        "device": "cpu",
        "random_state": 3,
        "batch_size": 16,
        "learning_rate": 0.02,
        "early_stopping": True,
        "max_iter": 20,
        "max_time": 60.0,
        "noise": "constant",
        "target": "yeo-johnson",
    }
    assert {name: found[name] for name in expected} == expected


def test_the_same_seed_gives_the_same_model(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    run("fit", model.with_name("train.csv"), "--target", "price", "--out", out, "--coreset", 10, "--max-iter", 20)
    assert cvgp.load(out).coreset_ == cvgp.load(model).coreset_


def test_json_is_all_there_is_on_the_standard_output(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", "--json", "--coreset", 8, "--max-iter", 20)
    facts = json.loads(result.stdout)
    assert (facts["rows"], facts["coreset_size"], facts["iterations"]) == (60, 8, 20)


def test_a_coreset_is_at_most_as_large_as_the_table(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", "--json", "--coreset", 500, *QUICK[2:])
    assert json.loads(result.stdout)["coreset_size"] == 60


def test_the_text_says_what_was_chosen_and_where_it_is(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK)
    names = [line.split("  ")[0] for line in result.stdout.splitlines() if not line.startswith(" ")]
    assert names == ["solver", "coreset", "neighbours", "kernel", "bound", "noise sd", "importance", "time", "saved"]


def test_progress_in_a_log_is_lines_on_the_standard_error(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", "--coreset", 8, "--max-iter", 20)
    assert "lbfgs  20/20  bound " in result.stderr


def test_quiet_shows_no_progress(run: Run, table: Path, tmp_path: Path) -> None:
    assert run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK).stderr == ""


@pytest.mark.parametrize(
    "flags",
    [
        ("--coreset", "many"),
        ("--coreset", 0),
        ("--kernel", "rbff"),
        ("--solver", "newton"),
        ("--max-iter", 0),
        ("--max-time", 0),
        ("--learning-rate", -1),
        ("--power", 0),
        ("--power", 1.5),
        ("--power", "nan"),
        ("--device", "abacus"),
        ("--device", "cuda:99"),
        ("--impute", "zero"),
        ("--seed", -1),
    ],
)
def test_a_wrong_value_is_wrong_use(run: Run, table: Path, tmp_path: Path, flags: tuple[object, ...]) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *flags)
    assert (result.exit_code, str(flags[0]) in result.stderr) == (2, True)


def test_a_target_that_is_not_there_is_wrong_use_and_similar_names_are_offered(
    run: Run, table: Path, tmp_path: Path
) -> None:
    result = run("fit", table, "--target", "Prise", "--out", tmp_path / "m")
    assert result.exit_code == 2
    assert "did you mean 'price'? It has size, weight, colour, price." in flat(result.stderr)


@pytest.mark.parametrize(("out", "reason"), [("no-such-folder/model", "Cannot write"), (".", "is a folder")])
def test_a_model_that_cannot_be_written_is_refused_before_the_table_is_read(
    run: Run, tmp_path: Path, out: str, reason: str
) -> None:
    result = run("fit", tmp_path / "no-such-table.csv", "--target", "price", "--out", tmp_path / out)
    assert reason in result.stderr


@pytest.mark.parametrize(("rule", "rows"), [("median", 60), ("mean", 60), ("drop", 57)])
def test_missing_values_are_treated_by_the_rule(run: Run, tmp_path: Path, rule: str, rows: int) -> None:
    frame = make_table(60)
    frame.loc[[3, 5], "size"] = None
    frame.loc[[7], "colour"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    result = run(
        "fit", tmp_path / "gaps.csv", "--target", "price", "--out", tmp_path / "m", "--impute", rule, "--json", *QUICK
    )
    assert json.loads(result.stdout)["rows"] == rows


@pytest.mark.parametrize("ending", [".tsv", ".parquet", ".feather"])
def test_tables_of_other_formats_can_be_fitted(run: Run, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table{ending}"
    frame = make_table(60)
    {
        ".tsv": lambda: frame.to_csv(path, sep="\t", index=False),
        ".parquet": lambda: frame.to_parquet(path),
        ".feather": lambda: frame.to_feather(path),
    }[ending]()
    assert run("fit", path, "--target", "price", "--out", tmp_path / "m", *QUICK).exit_code == 0


def test_names_that_look_like_markup_are_shown_as_they_are(run: Run, tmp_path: Path) -> None:
    frame = make_table(40).rename(columns={"size": "[red]size[/red]"})
    frame.to_csv(tmp_path / "odd.csv", index=False)
    result = run("fit", tmp_path / "odd.csv", "--target", "price", "--out", tmp_path / "m", *QUICK)
    assert "[red]size[/red]" in result.stdout


def test_a_warning_is_one_line(run: Run, model: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    unknown = pd.DataFrame({"size": [1.0], "weight": [50.0], "colour": ["green"]})
    unknown.to_csv(tmp_path / "unknown.csv", index=False)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = run("predict", model, tmp_path / "unknown.csv", "--out", tmp_path / "out.csv")
    assert result.stderr.startswith("Warning: Cells with a category that the training table did not have: 'colour' 1")
    assert len(result.stderr.splitlines()) == 1


def test_a_sum_of_kernels_is_fitted_and_described(run: Run, table: Path, tmp_path: Path) -> None:
    flags = ("--target", "price", "--out", tmp_path / "m", "--kernel", "rbf+linear", *QUICK)
    assert run("fit", table, *flags).exit_code == 0
    facts = json.loads(run("info", tmp_path / "m", "--json").stdout)
    assert (facts["kernel"], facts["ard"]) == ("rbf+linear", True)


def test_a_number_of_neighbours_is_a_whole_number_or_auto(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK, "--neighbors", "-3")
    assert result.exit_code == 2
    assert "neither 'auto' nor a whole number of at least 0" in flat(result.output)


@pytest.mark.parametrize(("neighbors", "said"), [(0, "holds no training rows"), (3, "holds all training rows")])
def test_info_says_whether_the_file_holds_the_rows(
    run: Run, table: Path, tmp_path: Path, neighbors: int, said: str
) -> None:
    run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK, "--neighbors", neighbors)
    assert said in flat(run("info", tmp_path / "m").output)
    assert json.loads(run("info", tmp_path / "m", "--json").output)["neighbors"] == neighbors


def test_info_says_how_much_of_each_feature_are_its_ranks(run: Run, table: Path, tmp_path: Path) -> None:
    flags = ("--inputs", "rank", "--json")
    facts = json.loads(run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK, *flags).stdout)
    assert facts["inputs"] == "rank"
    assert max(facts["rank_shares"].values()) == 1.0
    assert "features mixed with their ranks" in flat(run("info", tmp_path / "m").stdout)


def test_info_and_predict_speak_of_the_target_of_a_model_of_its_logarithm(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "skewed.csv"
    make_table(80).assign(price=lambda rows: np.exp(rows["price"])).to_csv(table, index=False)
    flags = ("--target-transform", "log", "--json")
    facts = json.loads(run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK, *flags).stdout)
    assert facts["target_transform"] == "log"
    assert "described by its logarithm" in run("info", tmp_path / "m").stdout
    run("predict", tmp_path / "m", table, "--out", tmp_path / "p.csv")
    predicted = pd.read_csv(tmp_path / "p.csv")
    assert (predicted["price_lower"] > 0.0).all()
    assert (
        predicted["price_mean"] - predicted["price_lower"] < predicted["price_upper"] - predicted["price_mean"]
    ).all()
    scores = json.loads(run("evaluate", tmp_path / "m", table, "--json").stdout)["scores"]["cvgp"]
    assert 0.0 < scores["crps"] < scores["rmse"]
    assert scores["coverage_90"] > 0.7
