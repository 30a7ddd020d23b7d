"""Well-formed model files with one wrong value and a checksum that fits.

Every field of the format is given every kind of wrong value. The file must raise a `CVGPError`, or give finite
predictions with positive standard deviations, and every command must end with a code and no traceback.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.errors import CVGPError
from cvgp.tables.table import read_table
from tests.robustness.fuzzing import run_cvgp
from tests.robustness.mutations import VALUES, ArrayDict, changed, places, read_parts, replaced, tensor_file

pytestmark = pytest.mark.slow


class Whole(NamedTuple):
    """A model that has every part that a file can have, and the table to predict."""

    arrays: ArrayDict
    metadata: dict[str, Any]
    table: Path
    folder: Path


class Case(NamedTuple):
    """A file with one wrong value."""

    name: str
    arrays: ArrayDict
    metadata: str


def whole_model(folder: Path) -> Whole:
    """Fit a small model to a table with all kinds of columns, and add the parts that such a fit does not learn."""
    rng, n = np.random.default_rng(0), 120
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": np.where(np.arange(n) % 17, rng.lognormal(size=n), np.nan),
            "c": rng.choice(["x", "y"], n),
            "d": rng.choice([f"level {i}" for i in range(40)], n),
            "e": rng.random(n) < 0.5,
            "when": days,
        }
    )
    frame["y"] = np.sin(frame["a"]) + (frame["c"] == "x") + 0.1 * rng.normal(size=n)
    frame.to_csv(folder / "table.csv", index=False)
    table = read_table(folder / "table.csv", "y").learn()
    model = cvgp.CVGPRegressor(
        4,
        n_neighbors=0,
        noise="constant",
        input_warp="identity",
        random_state=0,
        training=cvgp.TrainingOptions(solver="adam", max_iter=3),
    ).fit(folder / "table.csv", "y")
    model.merged_ = {"models": 2}
    model.save(folder / "whole.cvgp")
    arrays, metadata = read_parts(folder / "whole.cvgp")
    rows = table.load()
    D, K = len(arrays["scaling.x_mean"]), 2
    x = model._gp.scaling.scale_x(rows.x)
    counts = np.zeros(D, np.int64)
    counts[:2] = 3
    noise = {"alpha": np.zeros(K), "centers": x[:K], "inverse_lengthscale": np.ones(D), "level": -1.0, "lowest": -5.0}
    noise |= {"highest": 3.0, "f_prior": 1.0, "f_scale": 1.0, "variance_discount": 0.1, "base": 0.5, "constant": 0.3}
    noise |= {"multipliers": np.array([0.8, 2.8]), "weights": np.array([0.9, 0.1])}
    arrays = {name: array for name, array in arrays.items() if not name.startswith("importance.")}
    more = {
        **{f"noise.{name}": np.asarray(value, np.float64) for name, value in noise.items()},
        "rows.x": x,
        "rows.y": model._gp.scaling.scale_y(rows.y)[:, 0],
        "rows.sample_weight": np.ones(n),
        "rows.noise_variance": np.zeros(n),
        "target.centre": np.zeros(1),
        "target.unit": np.ones(1),
        "target.power": np.array([0.7]),
        "target.low": np.array([-50.0]),
        "target.high": np.array([50.0]),
        "outliers.variance": np.array([30.0]),
        "scaling.warp.shares": np.where(counts > 0, 0.4, 0.0),
        "scaling.warp.counts": counts,
        "scaling.warp.knots": np.tile([-1.0, 0.0, 1.0], 2),
        "scaling.warp.values": np.tile([-1.0, 0.2, 1.0], 2),
        **{f"importance.{name}": np.full(6, 0.1) for name in cvgp.estimators.importance.SobolIndices._fields},
    }
    metadata |= {"noise": {}, "rows": {"n_neighbors": 3}, "target": {"name": "yeo-johnson"}}
    metadata |= {"outliers": {"share": 0.02}, "importance": {}}
    metadata["scaling"]["warp"] = {"name": "mixed"}
    frame.head(4).to_csv(folder / "few.csv", index=False)
    return Whole(arrays | more, metadata, folder / "few.csv", folder)


def forged_files(whole: Whole) -> Iterator[Case]:
    """Every place of the description with every value, and every array with other values, shapes and types."""
    for path in places(whole.metadata):
        for value in VALUES:
            text = json.dumps(replaced(whole.metadata, path, value))
            yield Case(f"{'.'.join(map(str, path))} = {value!r:.20}", whole.arrays, text)
    text = json.dumps(whole.metadata)
    for name, array in whole.arrays.items():
        for change, forged in changed(array).items():
            yield Case(f"{name}: {change}", {**whole.arrays, name: forged}, text)
        yield Case(f"{name}: gone", {n: a for n, a in whole.arrays.items() if n != name}, text)


def attempt(whole: Whole, content: bytes, *, draw: bool = False) -> str:
    """What comes of a file: "used", or the name of the error of cvgp; anything else is raised."""
    path, out = whole.folder / "forged.cvgp", whole.folder / "out.csv"
    path.write_bytes(content)
    arguments: dict[str, tuple[object, ...]] = {
        "info": (path, "--json"),
        "predict": (path, whole.table, "--out", out, "--overwrite"),
        "coreset": (path, "--out", out, "--overwrite"),
        "evaluate": (path, whole.table),
    }
    if draw:  # which takes the most time
        arguments["plot"] = (path, "--out", whole.folder / "out.png", "--overwrite")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _predict(cvgp.load(path), whole.table)
        except CVGPError as error:
            str(error)
            return type(error).__name__
        for command, words in arguments.items():
            result = run_cvgp(command, *words)
            assert result.exit_code in (0, 1), result.stderr
            assert not {"\x1b", "\x9b", "\u202e"} & set(result.stdout + result.stderr), "what a terminal obeys"
    return "used"


def _predict(model: cvgp.CVGPRegressor, table: Path) -> None:
    frame = pd.read_csv(table, parse_dates=["when"]).drop(columns="y")
    mean, sd = model.predict(frame, return_std=True)
    assert np.isfinite(mean).all(), f"mean {mean}"
    assert (np.isfinite(sd) & (sd > 0)).all(), f"sd {sd}"
    draws = model.sample_y(frame, 2)
    assert np.isfinite(draws).all(), "draws"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole_model(tmp_path_factory.mktemp("whole"))


def test_the_whole_model_is_used_by_every_command(whole: Whole) -> None:
    assert attempt(whole, tensor_file(whole.arrays, json.dumps(whole.metadata)), draw=True) == "used"


def test_forged_files_are_used_or_refused(whole: Whole) -> None:
    for number, case in enumerate(Random(300).sample([*forged_files(whole)], 300)):
        try:
            attempt(whole, tensor_file(case.arrays, case.metadata), draw=number % 20 == 0)
        except Exception as error:
            raise AssertionError(f"{case.name!a}") from error
