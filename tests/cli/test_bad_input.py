"""Whatever a user can get wrong about files and tables ends in a message and an exit code, never in a traceback."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import Run, flat, make_table

QUICK = ("--coreset", 5, "--max-iter", 5, "--quiet")


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """No file can grow beyond `size` bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def with_column(values: object) -> pd.DataFrame:
    return make_table(40).assign(extra=values)


BAD_TABLES = {
    "dates": (
        with_column(pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d")),
        "dates='features', --dates expand",
    ),
    "infinity": (with_column(np.where(np.arange(40) == 3, np.inf, 1.0)), "data row 4: column 'extra' is infinite"),
    "a target of text": (
        make_table(40).assign(price="cheap"),
        "data row 1: column 'price' is infinite or not a number",
    ),
    "a target with gaps": (
        make_table(40).assign(price=[None] + [1.0] * 39),
        "data row 1: column 'price' is missing. Correct it, or leave such rows out",
    ),
    "only the target": (make_table(40)[["price"]], "needs different columns for ['price'] and at least one beside"),
    "no rows": (make_table(40)[:0], "holds no rows, or only empty ones"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_a_table_that_cannot_be_used_is_a_failure_that_says_why(run: Run, tmp_path: Path, kind: str) -> None:
    frame, message = BAD_TABLES[kind]
    frame.to_csv(tmp_path / "bad.csv", index=False)
    result = run("fit", tmp_path / "bad.csv", "--target", "price", "--out", tmp_path / "m", *QUICK)
    assert result.exit_code == 1
    assert message in flat(result.stderr)


@pytest.mark.parametrize(
    "frame",
    [
        make_table(1),
        make_table(40).assign(price=2.5),
        with_column(7.0),
        make_table(40).assign(again=lambda frame: frame["size"]),
        pd.concat([make_table(5)] * 8, ignore_index=True),
        make_table(40).assign(size=lambda frame: frame["size"] * 1e12, weight=lambda frame: frame["weight"] * 1e-12),
        make_table(40).assign(price=lambda frame: frame["price"] * 1e6),
    ],
    ids=["one row", "constant target", "constant column", "equal columns", "equal rows", "extreme units", "unit of y"],
)
@pytest.mark.filterwarnings("ignore:Columns with one value", "ignore:Left out", "ignore:y is .* in every row")
def test_an_unusual_table_can_be_fitted_and_predicted(run: Run, tmp_path: Path, frame: pd.DataFrame) -> None:
    if len(frame) == 1:  # a category in every row is refused as the name of the row
        frame = frame.drop(columns="colour")
    frame.to_csv(tmp_path / "table.csv", index=False)
    run("fit", tmp_path / "table.csv", "--target", "price", "--out", tmp_path / "m", *QUICK)
    result = run("predict", tmp_path / "m", tmp_path / "table.csv", "--out", tmp_path / "out.csv")
    assert result.exit_code == 0
    assert np.isfinite(pd.read_csv(tmp_path / "out.csv")["price_sd"]).all()


def test_a_missing_table_is_wrong_use(run: Run, tmp_path: Path) -> None:
    result = run("fit", tmp_path / "no.csv", "--target", "y", "--out", tmp_path / "m")
    assert (result.exit_code, "There is no file" in result.stderr) == (2, True)


def test_a_missing_model_is_wrong_use(run: Run, tmp_path: Path) -> None:
    result = run("info", tmp_path / "no.cvgp")
    assert (result.exit_code, "There is no file" in result.stderr) == (2, True)


def test_a_folder_in_place_of_a_table_is_a_failure(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    result = run("fit", tmp_path / "folder.csv", "--target", "y", "--out", tmp_path / "m")
    assert (result.exit_code, "cannot be read" in result.stderr) == (1, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="everything may be read by root")
def test_a_table_without_permission_is_a_failure(run: Run, table: Path, tmp_path: Path) -> None:
    table.chmod(0)
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m")
    assert (result.exit_code, "cannot be read" in result.stderr) == (1, True)


@pytest.mark.parametrize("name", ["noise.csv", "noise.parquet", "noise.feather", "noise.csv.gz"])
def test_a_table_of_garbage_is_a_failure(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(np.random.default_rng(0).bytes(2000))
    assert run("fit", tmp_path / name, "--target", "y", "--out", tmp_path / "m").exit_code == 1


@pytest.mark.parametrize("command", ["predict", "evaluate", "coreset", "info", "plot"])
def test_a_model_of_garbage_is_a_failure(run: Run, table: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "model").write_bytes(np.random.default_rng(0).bytes(2000))
    arguments = {
        "predict": [table, "--out", tmp_path / "out.csv"],
        "evaluate": [table],
        "coreset": ["--out", tmp_path / "out.csv"],
        "info": [],
        "plot": ["--out", tmp_path / "out.png"],
    }
    result = run(command, tmp_path / "model", *arguments[command])
    assert (result.exit_code, "is not a cvgp file" in result.stderr) == (1, True)


def test_a_truncated_model_is_a_failure(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(model.read_bytes()[:-100])
    assert run("info", tmp_path / "model").exit_code == 1


def test_a_full_disk_ends_a_fit_with_a_message_and_leaves_no_file(run: Run, table: Path, tmp_path: Path) -> None:
    with disk_of(2000):
        result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK)
    assert result.exit_code == 1
    assert "check the free space" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_a_fit_that_a_full_disk_ended_can_go_on(run: Run, table: Path, tmp_path: Path) -> None:
    arguments = ("fit", table, "--target", "price", "--out", tmp_path / "m", "--checkpoint-dir", tmp_path / "c", *QUICK)
    with disk_of(5000):
        assert "--resume" in run(*arguments).stderr
    assert run(*arguments, "--resume").exit_code == 0


def test_a_checkpoint_that_a_full_disk_refuses_is_a_failure(run: Run, table: Path, tmp_path: Path) -> None:
    with disk_of(100):
        result = run(
            "fit", table, "--target", "price", "--out", tmp_path / "m", "--checkpoint-dir", tmp_path / "c", *QUICK
        )
    assert (result.exit_code, "free space" in result.stderr) == (1, True)


def test_a_full_disk_keeps_the_old_predictions(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("old")
    with disk_of(1000):
        result = run("predict", model, table, "--out", tmp_path / "out.csv")
    assert (result.exit_code, (tmp_path / "out.csv").read_text()) == (1, "old")


def test_a_picture_that_does_not_fit_on_the_disk_is_a_failure(run: Run, model: Path, tmp_path: Path) -> None:
    with disk_of(1000):
        result = run("plot", model, "--out", tmp_path / "p.png")
    assert (result.exit_code, (tmp_path / "p.png").exists()) == (1, False)


def test_an_existing_file_in_place_of_the_demo_folder_is_a_failure(run: Run, table: Path) -> None:
    result = run("demo", "--out", table)
    assert (result.exit_code, "Could not make the folder" in result.stderr) == (1, True)
