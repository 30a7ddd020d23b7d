"""Saved estimators: everything that was learned comes back, and a file can do nothing but fail to load."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PolynomialKernel, RBFKernel, RFFKernel, ScaleKernel
from gpytorch.means import LinearMean
from gpytorch.priors import GammaPrior
from sklearn.exceptions import NotFittedError

import cvgp
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.files import read_state, split_state, write_state
from cvgp.gp.kernels import KERNEL_NAMES
from tests.flat_options import make_regressor
from tests.forging import GONE, forge

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=60)
FRAME = pd.DataFrame(X, columns=["depth", "width"])

Estimator = cvgp.CVGPRegressor


def regressor(**parameters: Any) -> Estimator:
    return make_regressor(**{"n_coreset": 10, "max_iter": 20, "random_state": 0, **parameters})


def user_kernel() -> Kernel:
    return ScaleKernel(RBFKernel(active_dims=[0])) * MaternKernel(1.5, ard_num_dims=2) + LinearKernel()


def pruned() -> Estimator:
    estimator = regressor().fit(X, Y)
    assert estimator.prune(5.0) > 0
    return estimator


FITS: dict[str, Callable[[], Estimator]] = {
    "frame": lambda: regressor().fit(FRAME, Y),
    "user kernel": lambda: regressor(kernel=user_kernel(), mean=LinearMean(2)).fit(X, Y),
    "two outputs": lambda: regressor(mean="constant").fit(X, np.column_stack([Y, -Y])),
    "one output as a column": lambda: regressor(kernel="rq").fit(X, Y[:, None]),
    "float32": lambda: regressor(dtype="float32", solver="adam").fit(X, Y),
    "the paper's recipe": lambda: regressor(solver="paper").fit(X, Y),
    "known noise": lambda: regressor(kernel="rbf").fit(X, Y, noise_variance=np.linspace(0.01, 0.1, 60)),
    "weights, not standardised": lambda: regressor(standardize=False).fit(X, Y, sample_weight=np.arange(60.0)),
    "rows to consult": lambda: regressor(n_neighbors=5, input_warp="mixed").fit(
        X, Y, sample_weight=np.arange(1.0, 61.0)
    ),
    "transform and noise": lambda: regressor(target_transform="yeo-johnson", noise="input-dependent").fit(X, np.exp(Y)),
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


def reloaded(estimator: Estimator, path: Path, **options: Any) -> Estimator:
    estimator.save(path)
    return cvgp.load(path, **options)


def objects(name: str) -> dict[str, Any]:
    """What `load` has to be given for a model of FITS."""
    return {"kernel": user_kernel(), "mean": LinearMean(2)} if name == "user kernel" else {}


def everything(estimator: Estimator) -> list[Any]:
    """All that a user can ask a fitted estimator for."""
    x = FRAME if hasattr(estimator, "feature_names_in_") else X
    coreset = estimator.coreset_
    return [
        *estimator.predict(x, return_std=True),
        *estimator.predict(x, return_cov=True, include_noise=False),
        estimator.sample_y(x[:5], 2, random_state=0),
        *(coreset.X, coreset.y, coreset.beta),
        *(estimator.elbo_, estimator.noise_variance_, estimator.lengthscales_, estimator.feature_importances_),
        *(estimator.n_iter_, estimator.converged_, estimator.solver_, estimator.n_rows_, estimator.n_features_in_),
        *estimator._statistics,
    ]


@pytest.mark.parametrize("name", FITS)
def test_all_that_was_learned_comes_back_to_the_bit(fitted: Callable[[str], Estimator], path: Path, name: str) -> None:
    before = fitted(name)
    after = reloaded(before, path, **objects(name))
    assert set(vars(after)) == set(vars(before))
    assert type(after) is Estimator
    np.testing.assert_equal(after.history_, before.history_)
    assert [np.array_equal(a, b) for a, b in zip(everything(before), everything(after), strict=True)].count(False) == 0
    stored = path.read_bytes()
    after.save(path)
    assert path.read_bytes() == stored


def test_parameters_and_columns_come_back(fitted: Callable[[str], Estimator], path: Path) -> None:
    model = deepcopy(fitted("frame")).set_params(
        n_coreset=np.int64(7), training__tol=np.float32(0.5), ard=np.bool_(False)
    )
    after = reloaded(model, path)
    expected = model.get_params() | {"n_coreset": 7, "training__tol": 0.5, "ard": False, "training": after.training}
    assert after.get_params() == expected
    assert type(after.n_coreset) is int
    assert after.feature_names_in_.tolist() == ["depth", "width"]
    assert after.schema_ == model.schema_


def test_a_loaded_estimator_can_be_pruned_copied_and_pickled(model: Estimator, path: Path) -> None:
    before = deepcopy(model)
    after = reloaded(pickle.loads(pickle.dumps(before)), path)
    assert np.array_equal(pickle.loads(pickle.dumps(after)).predict(FRAME), model.predict(FRAME))
    assert (after.prune(5.0), after.elbo_) == (before.prune(5.0), before.elbo_)


@pytest.mark.parametrize(
    ("name", "value", "default"),
    [
        ("training__callbacks", [print], None),
        ("training__checkpoint_dir", "somewhere", None),
        ("training__init", cvgp.Coreset(X[:3], Y[:3], np.ones(3)), "kmeans"),
        ("random_state", np.random.RandomState(0), None),
    ],
)
def test_a_parameter_that_is_not_stored_has_its_default_again(
    model: Estimator, path: Path, name: str, value: object, default: object
) -> None:
    assert reloaded(deepcopy(model).set_params(**{name: value}), path).get_params()[name] == default


def test_without_neighbors_the_file_holds_no_row_of_the_training_data(model: Estimator, path: Path) -> None:
    model.save(path)
    arrays, text = split_state(read_state(path))
    stored = np.concatenate([np.ravel(array) for array in arrays.values()])
    scaling = model._gp.scaling
    secret = [X, Y, scaling.scale_x(X), scaling.scale_y(Y[:, None])]
    assert not any(np.isin(values, stored).any() for values in secret)
    assert not any(repr(float(value)) in text for values in secret for value in np.ravel(values))


# Kernels and means.


@pytest.mark.parametrize("name", [*KERNEL_NAMES, "matern32+matern12", "rbf*periodic+linear"])
@pytest.mark.parametrize("ard", [True, False])
def test_a_kernel_by_name_comes_back_to_the_bit(name: str, ard: bool, path: Path) -> None:
    x = np.abs(X)  # fingerprints are not negative
    before = regressor(kernel=name, ard=ard, max_iter=2, n_neighbors=0, noise="constant").fit(x, Y)
    after = reloaded(before, path)
    assert repr(after.kernel_) == repr(before.kernel_)
    np.testing.assert_array_equal(after.predict(x[:5], return_std=True), before.predict(x[:5], return_std=True))


class OwnKernel(RBFKernel):  # type: ignore[misc]
    pass


class OwnConstraint(Positive):  # type: ignore[misc]
    pass


KERNELS: dict[str, Callable[[], Kernel]] = {
    "of GPyTorch": user_kernel,
    "of a class of one's own": lambda: ScaleKernel(OwnKernel(ard_num_dims=2)),
    "with a power": lambda: PolynomialKernel(power=2),
    "with random features": lambda: RFFKernel(num_samples=5, num_dims=2),
    "with a constraint of one's own": lambda: RBFKernel(lengthscale_constraint=OwnConstraint()),
    "between bounds": lambda: RBFKernel(ard_num_dims=2, lengthscale_constraint=Interval(0.1, torch.tensor([1.0, 4.0]))),
    "with a prior": lambda: ScaleKernel(RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0))),
}


def bits(module: torch.nn.Module) -> dict[str, bytes]:
    return {name: value.detach().numpy().tobytes() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("name", KERNELS)
def test_a_model_with_a_kernel_object_is_loaded_with_one_built_like_it(name: str, path: Path) -> None:
    torch.manual_seed(0)
    before = regressor(kernel=KERNELS[name]()).fit(X, Y)
    given = KERNELS[name]()
    unchanged = bits(given)
    after = reloaded(before, path, kernel=given)
    np.testing.assert_array_equal(after.predict(X, return_std=True), before.predict(X, return_std=True))
    assert (bits(given), after.kernel) == (unchanged, given)
    with pytest.raises(InvalidInputError, match=r"cvgp\.load\(path, kernel="):
        cvgp.load(path)


@pytest.mark.parametrize(
    "kernel",
    [
        OwnKernel(),
        ScaleKernel(MaternKernel(0.5, ard_num_dims=2)),  # the tensors are the same
        ScaleKernel(MaternKernel(1.5)),
        ScaleKernel(MaternKernel(1.5, ard_num_dims=3)),
    ],
    ids=["class", "smoothness", "one lengthscale", "three lengthscales"],
)
def test_another_kernel_than_the_stored_one_is_refused(kernel: Kernel, path: Path) -> None:
    regressor(kernel=ScaleKernel(MaternKernel(1.5, ard_num_dims=2))).fit(X, Y).save(path)
    with pytest.raises(InvalidInputError, match="not built like"):
        cvgp.load(path, kernel=kernel)


def test_a_kernel_is_refused_where_it_is_no_kernel_or_the_file_has_one(model: Estimator, path: Path) -> None:
    model.save(path)
    with pytest.raises(InvalidTypeError, match="kernel must be a gpytorch kernel"):
        cvgp.load(path, kernel="rbf")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="without kernel="):
        cvgp.load(path, kernel=RBFKernel())


def test_a_model_whose_kernel_parameter_was_changed_after_the_fit_is_not_stored(model: Estimator, path: Path) -> None:
    with pytest.raises(InvalidInputError, match="could not be loaded again"):
        deepcopy(model).set_params(kernel=MaternKernel(0.5)).save(path)


# What is refused.


def test_an_estimator_that_is_not_fitted_or_of_another_class_is_refused(path: Path) -> None:
    with pytest.raises(NotFittedError):
        regressor().save(path)
    with pytest.raises(InvalidTypeError, match="can hold a CVGPRegressor or a CVGPClassifier; got a Own"):
        type("Own", (Estimator,), {})().save(path)


@pytest.mark.parametrize(("name", "value"), [("training__solver", print), ("max_time", float("inf")), ("verbose", [1])])
def test_a_parameter_that_a_file_cannot_hold_is_refused(model: Estimator, path: Path, name: str, value: object) -> None:
    with pytest.raises(InvalidTypeError, match=f"cannot hold the parameter {name}="):
        deepcopy(model).set_params(**{name: value}).save(path)


@pytest.mark.parametrize(
    ("name", "value"), [("elbo_", float("nan")), ("n_features_in_", 3), ("n_rows_", 0), ("merged_", [1])]
)
def test_an_estimator_that_could_not_be_loaded_is_refused(
    model: Estimator, path: Path, name: str, value: object
) -> None:
    odd = deepcopy(model)
    setattr(odd, name, value)
    with pytest.raises(InvalidInputError, match="could not be loaded again"):
        odd.save(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "checkpoint"}, "not a cvgp model"),
        ({"version": "1"}, "not a cvgp model"),
        ({"version": True}, "not a cvgp model"),
        ({"version": 2}, "is in version 2 of the format"),
    ],
)
def test_a_cvgp_file_of_another_kind_is_reported(
    model: Estimator, path: Path, change: dict[str, object], message: str
) -> None:
    model.save(path)
    write_state(path, read_state(path) | change)
    with pytest.raises(FileFormatError, match=message):
        cvgp.load(path)


FORGED: list[tuple[str, Any]] = [
    ("extra", 1),
    ("schema", [1]),
    ("merged", 1),
    ("baselines.slopes", np.zeros(3)),
    ("parameters.training__callbacks", None),
    ("parameters.kernel", {"class": "eval"}),
    ("fit.feature_names", ["depth"]),
    ("fit.feature_names", [1, 2]),
    ("fit.n_features", 3),
    ("fit.single_output", "no"),
    ("fit.dtype", "float16"),
    ("fit.n_rows", -1.0),
    ("fit.elbo", 10**400),
    ("history.phase", ["start"]),
    ("history.phase", GONE),
    ("history.bound", np.zeros(1)),
    ("scaling.x_scale", np.array([1.0, -1.0])),
    ("scaling.y_scale", np.array([-1.0])),
    ("scaling.x_mean", np.zeros(3)),
    ("scaling.warp.name", "eval"),
    ("statistics.Phi", np.zeros((3, 3))),
    ("target.name", "eval"),
    ("model.X_c", np.zeros((10, 3))),
    ("model.X_c", np.zeros((0, 10**15))),
    ("model.raw_beta", np.full(10, 1e4)),
    ("model.site_noise_offset", np.array(-1e9)),
    ("model.noise.tensors.noise_covar/raw_noise", np.full(1, 1e4)),
    ("model.kernel.name", "os.system"),
    ("model.kernel.name", "rbf"),
    ("model.mean.name", "eval"),
    ("model.ard", False),
    ("model.kernel.tensors.raw_outputscale", np.zeros(1)),
    ("model.kernel.tensors.raw_outputscale", np.array(0)),
    ("model.kernel.tensors.raw_outputscale", np.array(np.inf)),
    ("model.kernel.tensors.raw_outputscale", np.array(0.0, dtype=np.float16)),
    ("model.kernel.tensors.raw_outputscale", GONE),
    ("model.kernel.tensors.other", np.zeros(1)),
]


@pytest.mark.parametrize(("where", "value"), FORGED, ids=[f"{where} {i}" for i, (where, _) in enumerate(FORGED)])
def test_a_forged_field_is_reported(model: Estimator, path: Path, where: str, value: Any) -> None:
    model.save(path)
    forge(path, where, value)
    with pytest.raises(FileFormatError, match=r"model\.cvgp is damaged"):
        cvgp.load(path)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("rows.x", lambda x: x * np.nan),
        ("rows.y", lambda y: y[:-1]),
        ("rows.sample_weight", lambda weight: -weight),
        ("rows.n_neighbors", 0),
        ("scaling.warp.knots", lambda knots: knots[::-1].copy()),
        ("scaling.warp.values", lambda values: values[:-1]),
        ("scaling.warp.counts", lambda counts: -counts),
    ],
)
def test_forged_rows_and_warps_are_reported(
    fitted: Callable[[str], Estimator], path: Path, where: str, value: Any
) -> None:
    fitted("rows to consult").save(path)
    forge(path, where, value)
    with pytest.raises(FileFormatError, match=r"model\.cvgp is damaged"):
        cvgp.load(path)
