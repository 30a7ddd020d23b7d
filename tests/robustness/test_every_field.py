"""Forged but well-formed model files: refused by the name of the field, or used; the whole run is a command."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import cvgp
from cvgp.errors import FileFormatError
from tests.robustness.every_field import Whole, arrays_cases, attempt, json_cases, whole_model
from tests.robustness.mutations import tensor_file


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return whole_model(tmp_path_factory.mktemp("whole"))


def test_the_whole_model_is_used_by_every_command(whole: Whole) -> None:
    assert attempt(whole, tensor_file(whole.arrays, json.dumps(whole.metadata))) == "used"


def test_some_forged_files_are_used_or_refused(whole: Whole) -> None:
    chosen = Random(0)
    cases = [*json_cases(whole), *arrays_cases(whole)]
    for case in chosen.sample(cases, 80):
        assert attempt(whole, case.content, ("info",)), case.name


def forged_by(whole: Whole, where: str, value: Any) -> Path:
    """The file with one value changed: in an array, or under names with dots in the description."""
    path = whole.folder / "forged.cvgp"
    if where in whole.arrays:
        arrays = {**whole.arrays, where: np.full_like(whole.arrays[where], value)}
        path.write_bytes(tensor_file(arrays, json.dumps(whole.metadata)))
        return path
    metadata = json.loads(json.dumps(whole.metadata))
    at, names = metadata, where.split(".")
    for name in names[:-1]:
        at = at[int(name) if isinstance(at, list) else name]
    at[int(names[-1]) if isinstance(at, list) else names[-1]] = value
    path.write_bytes(tensor_file(whole.arrays, json.dumps(metadata)))
    return path


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        ("history.phase.0", None, "phase of a row"),
        ("history.phase.0", "long" * 10**6, "phase of the history"),
        ("history.phase.0", "\ud800", r"history\.phase"),
        ("history.iteration", -1, "iteration of a row"),
        ("fit.n_iter", 10**400, r"fit\.n_iter"),
        ("fit.n_rows", 5e-324, r"fit\.n_rows"),
        ("fit.n_neighbors", 10**400, r"fit\.n_neighbors"),
        ("fit.solver", "long" * 1000, r"fit\.solver"),
        ("fit.feature_names.0", "\udcff", r"feature_names\[0\]"),
        ("parameters.max_iter", 10**400, "max_iter"),
        ("schema.target", 3, "target"),
        ("schema.n_dropped", 10**400, "dropped"),
        ("schema.columns.1.n_missing", 10**400, "missing"),
        ("schema.columns.1.typical", [], "missing"),
        ("schema.columns.2.categories.0", "\ud800", "categories"),
        ("baselines.slopes.0", 10**400, "slopes"),
        ("baselines.line_sd", 5e-324, r"baselines\.line_sd"),
        ("columns_seen.num_rows", 10**400, r"columns_seen\.num_rows"),
        ("columns_seen.y", [], "columns that were seen"),
        ("boosting.num_rows", 0, r"boosting\.num_rows"),
        ("boosting.start", np.inf, r"boosting\.start"),
        ("boosting.sd", 0.0, r"boosting\.sd"),
        ("boosting.sizes", 200, r"boosting\.sizes"),
        ("boosting.feature", 250, r"boosting\.feature"),
        ("boosting.right", 1, r"boosting\.right"),
        ("boosting.value", np.nan, r"boosting\.value"),
        ("scaling.y_scale", 1e-200, r"scaling\.y_scale"),
        ("scaling.y_scale", 1e200, r"scaling\.y_scale"),
        ("scaling.x_scale", 5e-324, r"scaling\.x_scale"),
        ("scaling.x_scale", 1.7e308, "scaling"),
        ("scaling.x_limit", np.nan, r"scaling\.x_limit"),
        ("model.raw_beta", -1e5, r"model\.raw_beta"),
        ("warp.shares", 2.0, r"warp\.shares"),
        ("warp.counts", 2**62, r"warp\.counts"),
        ("warp.knots", 0.0, r"warp\.knots"),
        ("noise.doubt", 1e200, r"noise\.doubt"),
        ("noise.constant", 1e-200, r"noise\.constant"),
        ("noise.weights", 1e-3, r"noise\.weights"),
        ("noise.multipliers", 1e100, r"noise\.multipliers"),
        ("target.unit", 1e-200, r"target\.unit"),
        ("target.centre", 1e200, r"target\.centre"),
        ("outliers.share", 1.0, r"outliers\.share"),
        ("outliers.variance", 1.7e308, r"outliers\.variance"),
        ("sobol.total", -1.0, r"sobol\.total"),
        ("sobol.total", np.nan, r"sobol\.total"),
        ("rows.sample_weight", 0.0, "Weights of rows"),
        ("rows.y", np.inf, r"rows\.y"),
    ],
)
def test_a_forged_field_is_refused_by_its_name(whole: Whole, where: str, value: Any, named: str) -> None:
    with pytest.raises(FileFormatError, match=named):
        cvgp.load(forged_by(whole, where, value))


def test_importances_of_another_number_of_columns_are_refused(whole: Whole) -> None:
    arrays = {name: a[:-1] if name.startswith("sobol.") else a for name, a in whole.arrays.items()}
    (whole.folder / "forged.cvgp").write_bytes(tensor_file(arrays, json.dumps(whole.metadata)))
    with pytest.raises(FileFormatError, match=r"sobol\."):
        cvgp.load(whole.folder / "forged.cvgp")


@pytest.mark.parametrize("value", [np.nan, -1.7e308])
def test_a_history_that_cannot_be_drawn_ends_the_picture_with_a_message(whole: Whole, value: float) -> None:
    path = forged_by(whole, "history.bound", value)
    assert attempt(whole, path.read_bytes(), ("plot",)) == "used"
