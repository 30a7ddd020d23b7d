"""Saved estimators: what comes back, what is refused, and what no file can do."""

import errno
import json
import os
import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RFFKernel, ScaleKernel, SpectralMixtureKernel
from gpytorch.means import LinearMean
from hypothesis import HealthCheck, given, settings
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import cvgp
from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)
from cvgp.estimators import saving
from cvgp.estimators.saving import VERSION
from cvgp.files import packed_model
from cvgp.files.modules import unpack_part
from cvgp.files.tensors import read_tensors, write_tensors

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=60)
FRAME = pd.DataFrame(X, columns=["depth", "width"])

OLD_FILE = Path(__file__).parent / "version_1.cvgp"
"""Written by the last cvgp with version 1 of the format."""
SECOND_FILE = Path(__file__).parent / "version_2.cvgp"
"""Written by the last cvgp with version 2 of the format."""
THIRD_FILE = Path(__file__).parent / "version_3.cvgp"
"""Written by the last cvgp with version 3 of the format."""
FOURTH_FILE = Path(__file__).parent / "version_4.cvgp"
"""Written by the last cvgp with version 4 of the format."""
OLD_POINTS, OLD_PREDICTIONS = [[0.0, 0.0], [2.0, -0.5], [1e6, 0.0]], [0.0763925393, 0.8947932946, 0.0029668637]

Estimator = cvgp.CVGPRegressor


def regressor(**parameters: Any) -> Estimator:
    return Estimator(**{"n_coreset": 10, "max_iter": 20, "random_state": 0, **parameters})


def user_kernel() -> Any:
    return ScaleKernel(RBFKernel(active_dims=[0])) * MaternKernel(1.5, ard_num_dims=2) + LinearKernel()


def pruned() -> Estimator:
    estimator = regressor().fit(X, Y)
    assert estimator.prune(5.0) > 0
    return estimator


FITS: dict[str, Callable[[], Estimator]] = {
    "frame": lambda: regressor().fit(FRAME, Y),
    "user kernel": lambda: regressor(kernel=user_kernel(), mean=LinearMean(2)).fit(X, Y),
    "random features": lambda: regressor(kernel=RFFKernel(num_samples=5)).fit(X, Y),
    "two outputs": lambda: regressor(mean="constant").fit(X, np.column_stack([Y, -Y])),
    "one output as a column": lambda: regressor(kernel="rq").fit(X, Y[:, None]),
    "float32": lambda: regressor(dtype="float32", solver="adam").fit(X, Y),
    "the paper's recipe": lambda: regressor(solver="paper").fit(X, Y),
    "known noise": lambda: regressor(kernel="rbf").fit(X, Y, noise_variance=np.linspace(0.01, 0.1, 60)),
    "weights, not standardised": lambda: regressor(standardize=False).fit(X, Y, sample_weight=np.arange(60.0)),
    "power EP": lambda: regressor(bound="power", power=0.7).fit(X, Y),
    "pruned": pruned,
}


@pytest.fixture(scope="module")
def fitted() -> Callable[[str], Estimator]:
    made: dict[str, Estimator] = {}

    def get(name: str) -> Estimator:
        if name not in made:
            made[name] = FITS[name]()
        return made[name]

    return get


@pytest.fixture
def model(fitted: Callable[[str], Estimator]) -> Estimator:
    return fitted("frame")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.cvgp"


def reloaded(estimator: Estimator, path: Path) -> Estimator:
    estimator.save(path)
    return cvgp.load(path)


def inputs(estimator: Estimator) -> Any:
    return FRAME if hasattr(estimator, "feature_names_in_") else X


def everything(estimator: Estimator) -> list[Any]:
    """All that a user can ask a fitted estimator for."""
    x = inputs(estimator)
    coreset = estimator.coreset_
    return [
        *estimator.predict(x, return_std=True),
        *estimator.predict(x, return_cov=True, include_noise=False),
        estimator.sample_y(x[:5], 2, random_state=0),
        *(coreset.X, coreset.y, coreset.beta),
        *(estimator.elbo_, estimator.noise_variance_, estimator.lengthscales_, estimator.feature_importances_),
        *(estimator.n_iter_, estimator.converged_, estimator.solver_, estimator.n_rows_, estimator.n_features_in_),
        *estimator.statistics_,
    ]


@pytest.mark.parametrize("name", FITS)
def test_all_that_was_learned_comes_back_to_the_bit(fitted: Callable[[str], Estimator], path: Path, name: str) -> None:
    before = fitted(name)
    after = reloaded(before, path)
    assert [np.array_equal(a, b) for a, b in zip(everything(before), everything(after), strict=True)].count(False) == 0


@pytest.mark.parametrize("name", FITS)
def test_the_history_comes_back(fitted: Callable[[str], Estimator], path: Path, name: str) -> None:
    np.testing.assert_equal(reloaded(fitted(name), path).history_, fitted(name).history_)


@pytest.mark.parametrize("name", FITS)
def test_the_same_attributes_come_back(fitted: Callable[[str], Estimator], path: Path, name: str) -> None:
    assert set(vars(reloaded(fitted(name), path))) == set(vars(fitted(name)))


def test_a_loaded_estimator_is_of_its_own_class(model: Estimator, path: Path) -> None:
    assert type(reloaded(model, path)) is Estimator


def test_plain_parameters_come_back(model: Estimator, path: Path) -> None:
    assert reloaded(model, path).get_params() == model.get_params()


def test_numbers_of_numpy_come_back_as_plain_ones(fitted: Callable[[str], Estimator], path: Path) -> None:
    model = deepcopy(fitted("frame")).set_params(n_coreset=np.int64(7), tol=np.float32(0.5), ard=np.bool_(False))
    after = reloaded(model, path)
    assert (after.n_coreset, after.tol, after.ard) == (7, 0.5, False)


def test_feature_names_come_back(model: Estimator, path: Path) -> None:
    assert reloaded(model, path).feature_names_in_.tolist() == ["depth", "width"]


def test_columns_are_still_checked_by_name(model: Estimator, path: Path) -> None:
    with pytest.raises(InvalidInputError, match="feature names"):
        reloaded(model, path).predict(FRAME[["width", "depth"]])


def test_a_kernel_comes_back_as_it_was_before_the_fit(fitted: Callable[[str], Estimator], path: Path) -> None:
    before, after = fitted("user kernel"), reloaded(fitted("user kernel"), path)
    points = torch.tensor(X[:5], dtype=torch.float32)
    assert torch.equal(after.kernel(points).to_dense(), before.kernel(points).to_dense())


def test_a_clone_of_a_loaded_estimator_fits_as_the_original_did(fitted: Callable[[str], Estimator], path: Path) -> None:
    before = fitted("user kernel")
    again = clone(reloaded(before, path)).fit(X, Y)
    # Not to the bit: where arrays lie in memory may change how a BLAS rounds.
    np.testing.assert_allclose(again.predict(X), before.predict(X), rtol=1e-5, atol=1e-5)


def test_a_loaded_estimator_can_be_pruned(fitted: Callable[[str], Estimator], path: Path) -> None:
    before = deepcopy(fitted("frame"))
    after = reloaded(before, path)
    assert (after.prune(5.0), after.elbo_) == (before.prune(5.0), before.elbo_)


@pytest.mark.parametrize(
    "copy", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"]
)
def test_a_copy_of_a_loaded_estimator_predicts_the_same(
    model: Estimator, path: Path, copy: Callable[[Estimator], Estimator]
) -> None:
    assert np.array_equal(copy(reloaded(model, path)).predict(FRAME), model.predict(FRAME))


@pytest.mark.parametrize(
    "copy", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"]
)
def test_a_copy_can_be_saved(model: Estimator, path: Path, copy: Callable[[Estimator], Estimator]) -> None:
    assert np.array_equal(reloaded(copy(model), path).predict(FRAME), model.predict(FRAME))


def test_what_is_loaded_and_saved_again_is_the_same_file(model: Estimator, path: Path) -> None:
    model.save(path)
    before = path.read_bytes()
    cvgp.load(path).save(path)
    assert path.read_bytes() == before


def test_the_global_random_states_are_left_alone(model: Estimator, path: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    reloaded(model, path)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("callbacks", [print], None),
        ("checkpoint_dir", "somewhere", None),
        ("init", cvgp.Coreset(X[:3], Y[:3], np.ones(3)), "kmeans"),
        ("random_state", np.random.RandomState(0), None),
    ],
)
def test_a_parameter_that_is_not_stored_has_its_default_again(
    model: Estimator, path: Path, name: str, value: object, default: object
) -> None:
    assert getattr(reloaded(deepcopy(model).set_params(**{name: value}), path), name) == default


def test_a_schema_comes_back(model: Estimator, path: Path) -> None:
    with_schema = regressor().fit(FRAME.rename(columns={"depth": "é"}), Y)
    assert reloaded(with_schema, path).schema_ == with_schema.schema_


def test_a_schema_of_other_columns_is_reported(path: Path) -> None:
    with_schema = regressor().fit(FRAME, Y)
    with_schema.schema_["columns"][0]["name"] = "other"
    with pytest.raises(InvalidInputError, match="schema names other columns"):
        with_schema.save(path)


@pytest.mark.parametrize("schema", [[1], {"a": {1, 2}}, {"a": (1, 2)}, {1: 2}, {"a": float("nan")}], ids=str)
def test_a_schema_that_is_no_json_is_refused(model: Estimator, path: Path, schema: object) -> None:
    with_schema = deepcopy(model)
    with_schema.schema_ = schema
    with pytest.raises(InvalidTypeError, match="schema_ must be a dictionary of JSON values"):
        with_schema.save(path)


def test_the_file_says_which_versions_wrote_it(model: Estimator, path: Path) -> None:
    model.save(path)
    libraries = read_tensors(path)[1]["libraries"]
    assert (set(libraries), libraries["cvgp"]) == ({"cvgp", "torch", "gpytorch", "numpy"}, cvgp.__version__)


def test_the_size_of_the_file_does_not_depend_on_the_number_of_rows(tmp_path: Path) -> None:
    sizes = []
    for copies in (1, 20):
        noise = 0.01 * np.random.default_rng(1).normal(size=(60 * copies, 2))
        # Noise that depends on x has up to 200 centres, one for ten rows.
        estimator = regressor(solver="adam", noise="constant").fit(np.tile(X, (copies, 1)) + noise, np.tile(Y, copies))
        # Of more rows trees have more leaves, up to 31.
        del estimator.boosting_
        # How many starts were tried, and how long, may differ.
        estimator.history_ = {name: column[:10] for name, column in estimator.history_.items()}
        estimator.save(tmp_path / "model.cvgp")
        sizes.append((tmp_path / "model.cvgp").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 100


def test_no_row_of_the_training_data_is_in_the_file(model: Estimator, path: Path) -> None:
    model.save(path)
    arrays, metadata = read_tensors(path)
    stored = np.concatenate([np.ravel(array) for array in arrays.values()])
    scaling = model.gp_.scaling
    secret = [X, Y, scaling.scale_x(X), scaling.scale_y(Y[:, None])]
    text = json.dumps(metadata)
    assert not any(np.isin(values, stored).any() for values in secret)
    assert not any(repr(float(value)) in text for values in secret for value in np.ravel(values))


def test_an_estimator_that_is_not_fitted_is_refused(path: Path) -> None:
    with pytest.raises(NotFittedError):
        regressor().save(path)


class OwnRegressor(Estimator):
    pass


def test_an_estimator_of_another_class_is_refused(path: Path) -> None:
    with pytest.raises(InvalidTypeError, match="can hold a CVGPRegressor; got a OwnRegressor"):
        OwnRegressor().save(path)


def test_a_kernel_that_a_file_cannot_hold_is_refused(model: Estimator, path: Path) -> None:
    odd = deepcopy(model).set_params(kernel=SpectralMixtureKernel(num_mixtures=2))
    with pytest.raises(InvalidTypeError, match="SpectralMixtureKernel; it can hold"):
        odd.save(path)


@pytest.mark.parametrize(("name", "value"), [("solver", print), ("max_time", float("inf")), ("verbose", [1])])
def test_a_parameter_that_a_file_cannot_hold_is_refused(model: Estimator, path: Path, name: str, value: object) -> None:
    with pytest.raises(InvalidTypeError, match=f"cannot hold the parameter {name}="):
        deepcopy(model).set_params(**{name: value}).save(path)


@pytest.mark.parametrize(("name", "value"), [("elbo_", float("nan")), ("n_features_in_", 3), ("n_rows_", 0)])
def test_an_estimator_that_could_not_be_loaded_is_refused(
    model: Estimator, path: Path, name: str, value: object
) -> None:
    odd = deepcopy(model)
    setattr(odd, name, value)
    with pytest.raises(InvalidInputError, match="could not be loaded again"):
        odd.save(path)


def with_nan(model: Estimator, name: str) -> Estimator:
    odd = deepcopy(model)
    with torch.no_grad():
        dict(odd.model_.named_parameters())[name].fill_(torch.nan)
    return odd


@pytest.mark.parametrize("name", ["X_c", "kernel.raw_outputscale"])
def test_a_model_with_nan_is_refused(model: Estimator, path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match="could not be loaded again"):
        with_nan(model, name).save(path)


def test_a_parameter_that_could_not_be_loaded_is_refused(model: Estimator, path: Path) -> None:
    batch = RBFKernel(batch_shape=torch.Size([2]))
    with pytest.raises(InvalidInputError, match="could not be loaded again"):
        deepcopy(model).set_params(kernel=batch).save(path)


def test_what_is_saved_is_checked_once(model: Estimator, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = []

    def counted(*arguments: Any) -> Any:
        unpacked.append(arguments)
        return unpack_part(*arguments)

    for module in (saving, packed_model):
        monkeypatch.setattr(module, "unpack_part", counted)
    model.save(path)
    assert sorted(prefix for _, _, prefix, _ in unpacked) == ["kernel", "likelihood.noise_covar", "mean"]


def test_a_failed_write_leaves_the_old_file(model: Estimator, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileAccessError, match="No space left on device"):
        model.save(path)
    assert {file.name: file.read_text() for file in path.parent.iterdir()} == {"model.cvgp": "old"}


def test_a_missing_folder_is_reported(model: Estimator, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="folder does not exist"):
        model.save(tmp_path / "no" / "model.cvgp")


def test_a_path_of_another_type_is_refused(model: Estimator) -> None:
    with pytest.raises(InvalidTypeError, match="path must be text"):
        model.save(3)  # type: ignore[arg-type]


def test_a_missing_file_is_reported(path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"There is no file .*model\.cvgp"):
        cvgp.load(path)


def test_a_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="not a regular file"):
        cvgp.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"garbage", bytes(10_000), pickle.dumps(print)])
def test_a_file_of_garbage_is_reported(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"model\.cvgp is not a cvgp file"):
        cvgp.load(path)


class Bomb:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return Path.touch, (Path(os.environ["CVGP_TEST_BOMB"]),)  # type: ignore[return-value]


def test_a_pickle_is_not_executed(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVGP_TEST_BOMB", str(tmp_path / "exploded"))
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileFormatError):
        cvgp.load(path)
    assert not (tmp_path / "exploded").exists()


def test_a_file_cut_short_is_reported(model: Estimator, path: Path) -> None:
    model.save(path)
    content = path.read_bytes()
    for length in [*range(0, 64), *range(64, len(content), 97), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            cvgp.load(path)


def test_a_changed_bit_is_reported(model: Estimator, path: Path) -> None:
    model.save(path)
    content = path.read_bytes()
    for position in range(0, len(content), 31):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            cvgp.load(path)


def test_a_newer_file_says_to_upgrade(model: Estimator, path: Path) -> None:
    model.save(path)
    arrays, _ = read_tensors(path)
    write_tensors(path, arrays, {"format": "cvgp estimator", "version": VERSION + 1, "of the future": True})
    with pytest.raises(FileFormatError, match=rf"newer cvgp, in version {VERSION + 1} .* Upgrade cvgp"):
        cvgp.load(path)


def test_a_file_of_version_1_predicts_as_it_did() -> None:
    loaded = cvgp.load(OLD_FILE)
    assert loaded.gp_.scaling.x_limit == np.inf
    np.testing.assert_allclose(loaded.predict(OLD_POINTS), OLD_PREDICTIONS, rtol=1e-6)


def test_a_file_of_version_2_predicts_as_it_did() -> None:
    loaded = cvgp.load(SECOND_FILE)
    mean, sd = loaded.predict([[-1.5], [0.0], [1.2]], return_std=True)
    np.testing.assert_allclose(mean, [-0.9656638330, 0.0656589320, 0.9261649251], rtol=1e-6)
    np.testing.assert_allclose(sd, [0.0873198927, 0.1000529688, 0.0847749342], rtol=1e-6)
    assert (loaded.target_, loaded.n_neighbors_, loaded.noise_) == ("identity", 2, "input-dependent")


def test_a_file_of_version_3_predicts_as_it_did() -> None:
    loaded = cvgp.load(THIRD_FILE)
    mean, sd = loaded.predict([[-1.5], [0.0], [1.2]], return_std=True)
    np.testing.assert_allclose(mean, [0.9055228324, 1.0323446338, 1.9614534917], rtol=1e-6)
    np.testing.assert_allclose(sd, [0.1206562094, 0.1272259837, 0.2489006734], rtol=1e-6)
    assert (loaded.target_, loaded.n_neighbors_, loaded.noise_) == ("log", 0, "constant")


def test_a_file_of_version_4_predicts_as_it_did() -> None:
    loaded = cvgp.load(FOURTH_FILE)
    expected = [0.4850367381, 0.9992255134, 2.6400568422]
    np.testing.assert_allclose(loaded.predict([[-1.5], [0.0], [1.2]]), expected, rtol=1e-6)
    assert (loaded.target_, loaded.inputs_) == ("yeo-johnson", "identity")


def test_a_file_of_version_5_predicts_as_it_did() -> None:
    loaded = cvgp.load(Path(__file__).parent / "version_5.cvgp")
    rows = pd.DataFrame({"depth": [0.5, 1.0, 3.0], "soil": ["clay", "sand", "sand"]})
    mean, sd = loaded.predict(rows, return_std=True)
    np.testing.assert_allclose(mean, [-0.6985809241, 1.0007665991, 2.0985909818], rtol=1e-6)
    np.testing.assert_allclose(sd, [0.1143576029, 0.1141929236, 0.116547932], rtol=1e-6)
    assert (loaded.inputs_, loaded.n_neighbors_, list(loaded.feature_names_in_)) == ("mixed", 0, ["depth", "soil"])


def test_a_file_of_version_6_predicts_as_it_did() -> None:
    loaded = cvgp.load(Path(__file__).parent / "version_6.cvgp")
    mean, sd = loaded.predict([[-1.5], [0.0], [1.2]], return_std=True)
    np.testing.assert_allclose(mean, [-0.1024800521, 0.06830967915, 0.6627034093], rtol=1e-6)
    np.testing.assert_allclose(sd, [0.2298191273, 0.1651277278, 0.1844523323], rtol=1e-6)
    assert (loaded.columns_seen_["num_rows"], loaded.columns_seen_["x"][0]) == (40, [-1.989046])
    assert loaded.baselines_["mean"] == 0.1949401661403703


def test_there_is_a_file_of_every_version_of_the_format_and_a_line_on_its_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "file_format.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE) == [str(n) for n in range(1, VERSION + 1)]
    missing = [n for n in range(1, VERSION + 1) if not (Path(__file__).parent / f"version_{n}.cvgp").is_file()]
    assert missing == [], "write a tiny file with the new version, and test what it predicts"


def test_a_file_of_version_1_is_saved_in_the_version_of_today(path: Path) -> None:
    loaded = cvgp.load(OLD_FILE)
    again = reloaded(loaded, path)
    assert read_tensors(path)[1]["version"] == VERSION
    np.testing.assert_array_equal(again.predict(X), loaded.predict(X))


def test_a_file_of_today_without_a_limit_of_inputs_is_reported(model: Estimator, path: Path) -> None:
    model.save(path)
    arrays, metadata = read_tensors(path)
    del arrays["scaling.x_limit"]
    write_tensors(path, arrays, metadata)
    with pytest.raises(FileFormatError, match=r"no array 'scaling.x_limit'"):
        cvgp.load(path)


@pytest.mark.parametrize("change", [{"format": "checkpoint"}, {"version": "1"}, {"version": 0}, {"version": True}])
def test_a_cvgp_file_of_another_kind_is_reported(model: Estimator, path: Path, change: dict[str, object]) -> None:
    model.save(path)
    arrays, metadata = read_tensors(path)
    write_tensors(path, arrays, metadata | change)
    with pytest.raises(FileFormatError, match="not a cvgp model"):
        cvgp.load(path)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("class", "Pipeline"),
        ("class", "os.system"),
        ("extra", 1),
        ("schema", [1]),
        ("parameters/n_neighbours", 3),
        ("parameters/callbacks", None),
        ("parameters/tol", [1e-4]),
        ("parameters/kernel", {"class": "eval"}),
        ("fit/feature_names", ["depth"]),
        ("fit/feature_names", [1, 2]),
        ("fit/n_features", 3),
        ("fit/single_output", "no"),
        ("fit/dtype", "float16"),
        ("fit/n_rows", -1.0),
        ("fit/elbo", None),
        ("fit/elbo", 10**400),
        ("fit/extra", 1),
        ("history/phase", ["start"]),
        ("history/phase", [["start"]]),
        ("history/phase", None),
        ("history/bound", []),
        ("history/bound", ["high"]),
        ("history/speed", None),
    ],
)
def test_forged_metadata_are_reported(model: Estimator, path: Path, where: str, value: object) -> None:
    model.save(path)
    arrays, metadata = read_tensors(path)
    *parents, last = where.split("/")
    at = metadata
    for name in parents:
        at = at[name]
    at[last] = value
    write_tensors(path, arrays, metadata)
    with pytest.raises(FileFormatError, match=r"model\.cvgp is damaged"):
        cvgp.load(path)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("scaling.x_scale", np.array([1.0, -1.0])),
        ("scaling.x_limit", np.array(np.nan)),
        ("scaling.y_scale", np.array([-1.0])),
        ("scaling.x_mean", np.zeros(3)),
        ("scaling.y_mean", np.zeros(1, dtype=np.float32)),
        ("statistics.Phi", np.zeros((3, 3))),
        ("statistics.b", np.full((10, 1), np.nan)),
        ("statistics.yy", np.zeros(1)),
        ("model.X_c", np.zeros((10, 3))),
        ("model.extra", np.zeros(1)),
        ("extra", np.zeros(1)),
        ("history.bound", np.zeros(1)),
        ("history.iteration", np.array(["a"], dtype="S1").view(np.uint8)),
    ],
)
def test_forged_arrays_are_reported(model: Estimator, path: Path, name: str, array: Any) -> None:
    model.save(path)
    arrays, metadata = read_tensors(path)
    write_tensors(path, arrays | {name: array}, metadata)
    with pytest.raises(FileFormatError, match=r"model\.cvgp is damaged"):
        cvgp.load(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("ScaleKernel"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, *above: Any) -> list[tuple[Any, ...]]:
    """The paths to everything in a JSON value; of lists, to the first two items."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    return [path for key, inner in items for path in [(*above, key), *places(inner, *above, key)]]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_metadata_say_only_errors_of_cvgp_come_out(
    fitted: Callable[[str], Estimator], path: Path, data: st.DataObject
) -> None:
    if not path.exists():
        fitted("user kernel").save(path)
        path.rename(path.with_suffix(".original"))
    arrays, metadata = read_tensors(path.with_suffix(".original"))
    *parents, last = data.draw(st.sampled_from(places(metadata)))
    at = metadata
    for name in parents:
        at = at[name]
    at[last] = data.draw(json_values)
    write_tensors(path, arrays, metadata)
    with suppress(CVGPError):
        mean, sd = cvgp.load(path).predict(X[:3], return_std=True)
        assert mean.shape == sd.shape == (3,)
