"""Saved estimators: everything that was learned comes back, and a file can do nothing but fail to load."""

import json
import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean
from gpytorch.priors import GammaPrior
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import nn

import cvgp
from cvgp.errors import CVGPWarning, FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError
from cvgp.estimators import persistence
from cvgp.files import Fields, join_state, read_state, split_state, write_state
from cvgp.gp.kernels import KERNEL_NAMES
from tests.flat_options import make_regressor
from tests.forging import GONE, changed, forge

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
    after = reloaded(before, path)
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


def test_a_clone_of_a_loaded_estimator_fits_as_the_original_did(fitted: Callable[[str], Estimator], path: Path) -> None:
    before = fitted("user kernel")
    again = clone(reloaded(before, path)).fit(X, Y)
    # Not to the bit: where arrays lie in memory may change how a BLAS rounds.
    np.testing.assert_allclose(again.predict(X), before.predict(X), rtol=1e-5, atol=1e-5)


def test_a_loaded_estimator_can_be_pruned_copied_and_pickled(model: Estimator, path: Path) -> None:
    before = deepcopy(model)
    after = reloaded(pickle.loads(pickle.dumps(before)), path)
    assert np.array_equal(pickle.loads(pickle.dumps(after)).predict(FRAME), model.predict(FRAME))
    assert (after.prune(5.0), after.elbo_) == (before.prune(5.0), before.elbo_)


def test_the_global_random_state_is_left_alone(fitted: Callable[[str], Estimator], path: Path) -> None:
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    reloaded(fitted("user kernel"), path)
    assert torch.equal(torch.rand(1), expected)


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


def test_decisions_are_stored(tmp_path: Path) -> None:
    model = make_regressor(5, random_state=0, max_iter=5).fit(X, Y)
    model.save(tmp_path / "model.cvgp")
    assert cvgp.load(tmp_path / "model.cvgp").decisions_ == model.decisions_


def test_without_neighbors_the_file_holds_no_row_of_the_training_data(model: Estimator, path: Path) -> None:
    model.save(path)
    arrays, text = split_state(read_state(path))
    stored = np.concatenate([np.ravel(array) for array in arrays.values()])
    scaling = model._gp.scaling
    secret = [X, Y, scaling.scale_x(X), scaling.scale_y(Y[:, None])]
    assert not any(np.isin(values, stored).any() for values in secret)
    assert not any(repr(float(value)) in text for values in secret for value in np.ravel(values))


# ---------------------------------------------------------------------------------------------------- GPyTorch modules

KERNELS: dict[str, Callable[[], str | Kernel]] = {
    **{name: (lambda name=name: name) for name in KERNEL_NAMES},  # type: ignore[misc]
    "rational quadratic": lambda: RQKernel(ard_num_dims=3),
    "periodic": lambda: PeriodicKernel(ard_num_dims=3),
    "linear with ARD": lambda: LinearKernel(ard_num_dims=3),
    "polynomial": lambda: PolynomialKernel(power=2),
    "cosine of one column": lambda: CosineKernel(active_dims=[1]),
    "constant": lambda: ConstantKernel(),
    "two columns": lambda: ScaleKernel(MaternKernel(1.5, ard_num_dims=2, active_dims=[0, 2])),
    "scale of two columns": lambda: ScaleKernel(RBFKernel(ard_num_dims=2), active_dims=[2, 1]),
    "sum of products": lambda: ScaleKernel(RBFKernel() * LinearKernel()) + RQKernel() * ConstantKernel(),
    "double precision": lambda: ScaleKernel(RBFKernel(ard_num_dims=3)).double(),
    "below a bound": lambda: RBFKernel(lengthscale_constraint=LessThan(3.0)),
    "between bounds for each": lambda: RBFKernel(
        ard_num_dims=3, lengthscale_constraint=Interval(torch.tensor([0.1, 0.2, 0.3]), torch.tensor([1.0, 3.0, 4.0]))
    ),
    "above a bound, exp": lambda: RBFKernel(
        lengthscale_constraint=GreaterThan(1e-3, transform=torch.exp, inv_transform=torch.log)
    ),
    "softplus function": lambda: RBFKernel(lengthscale_constraint=Positive(transform=torch.nn.functional.softplus)),
}
MEANS: dict[str, Callable[[], Mean]] = {
    "zero": lambda: ZeroMean(),
    "constant": lambda: ConstantMean(constant_constraint=Interval(-1.0, 1.0)),
    "linear": lambda: LinearMean(3),
    "linear without bias": lambda: LinearMean(3, bias=False),
}
POINTS = torch.tensor(RNG.normal(size=(6, 3)))


def make_model(kernel: str | Kernel = "rbf", num_outputs: int = 0, **options: Any) -> cvgp.CVGP:
    """A model whose parameters all differ from their defaults."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=(5, num_outputs) if num_outputs else 5)
    model = cvgp.CVGP(cvgp.Coreset(rng.normal(size=(5, 3)), y, rng.uniform(1, 2, 5)), kernel, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += torch.tensor(rng.uniform(0.0, 0.1, tuple(parameter.shape)))
    return model


def through_file(model: cvgp.CVGP, kernel: Kernel | None = None) -> cvgp.CVGP:
    fields = Fields(join_state(*split_state({"model": persistence._model_state(model)})), "file")
    return fields.part("model", persistence._model_from_state, kernel)


def bits(module: nn.Module) -> dict[str, Any]:
    """Every parameter and buffer, to the bit."""
    state = module.state_dict(keep_vars=True)
    return {n: (v.dtype, v.requires_grad, v.shape, v.detach().numpy().tobytes()) for n, v in state.items()}


def assert_same(model: cvgp.CVGP, **options: Any) -> None:
    after = through_file(model, **options)
    assert bits(after) == bits(model)
    assert repr(after.kernel) == repr(model.kernel)
    assert torch.equal(model.posterior(POINTS).mean, after.posterior(POINTS).mean)
    assert torch.equal(model.posterior(POINTS).variance, after.posterior(POINTS).variance)


@pytest.mark.parametrize("name", KERNELS)
def test_a_model_of_any_kernel_comes_back_to_the_bit(name: str) -> None:
    assert_same(make_model(KERNELS[name]()))


@pytest.mark.parametrize("name", MEANS)
def test_a_model_of_any_mean_comes_back_to_the_bit(name: str) -> None:
    assert_same(make_model(mean=MEANS[name]()))


@pytest.mark.parametrize(
    "options",
    [{"num_outputs": 2}, {"num_outputs": 1}, {"beta_transform": "softplus"}, {"likelihood": GaussianLikelihood()}],
    ids=str,
)
def test_options_of_a_model_come_back(options: dict[str, Any]) -> None:
    model = make_model(**options)
    model.set_site_noise_offset(0.3)
    model.X_c.requires_grad_(False)
    model.kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    assert_same(model)
    assert through_file(model).beta_transform == model.beta_transform


def test_a_loaded_model_can_be_trained_further() -> None:
    model = through_file(make_model(KERNELS["between bounds for each"]()))
    model.kernel.lengthscale = torch.tensor([[0.5, 0.6, 0.7]])
    torch.testing.assert_close(model.kernel.lengthscale.detach(), torch.tensor([[0.5, 0.6, 0.7]]))
    model.elbo(POINTS, POINTS[:, 0]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_prior_is_left_out_with_a_warning() -> None:
    model = make_model(ScaleKernel(RBFKernel(lengthscale_prior=GammaPrior(3.0, 6.0))))
    with pytest.warns(CVGPWarning, match="priors of the kernel are not stored"):
        assert not list(through_file(model).kernel.named_priors())


class OwnKernel(RBFKernel):  # type: ignore[misc]
    pass


class OwnConstraint(Positive):  # type: ignore[misc]
    pass


Imitation = type("RBFKernel", (Kernel,), {"has_lengthscale": True})
OWN: dict[str, Callable[[], Kernel]] = {
    "of a class of one's own": lambda: ScaleKernel(OwnKernel(ard_num_dims=2)),
    "in a sum": lambda: RBFKernel() + ScaleKernel(OwnKernel(active_dims=[1])),
    "that draws when it is first used": lambda: RFFKernel(num_samples=5),
    "with a constraint of one's own": lambda: RBFKernel(lengthscale_constraint=OwnConstraint()),
}


@pytest.mark.parametrize("name", OWN)
def test_a_model_with_a_kernel_of_ones_own_is_loaded_with_that_kernel(name: str, path: Path) -> None:
    before = regressor(kernel=OWN[name]()).fit(X, Y)
    given = OWN[name]()
    unchanged = bits(given)
    after = reloaded(before, path, kernel=given)
    np.testing.assert_array_equal(after.predict(X, return_std=True), before.predict(X, return_std=True))
    assert bits(given) == unchanged
    with pytest.raises(InvalidInputError, match=r"cannot build from a file: .*load\(path, kernel="):
        cvgp.load(path)


@pytest.mark.parametrize(
    ("kernel", "error", "message"),
    [
        (OwnKernel(), InvalidInputError, "got OwnKernel"),
        (ScaleKernel(RBFKernel(ard_num_dims=2)), InvalidInputError, "got ScaleKernel, RBFKernel"),
        (ScaleKernel(OwnKernel()), InvalidInputError, "not built like"),
        (ScaleKernel(OwnKernel(ard_num_dims=3)), InvalidInputError, "not built like"),
        ("rbf", InvalidTypeError, "kernel must be a gpytorch"),
    ],
)
def test_another_kernel_than_the_stored_one_is_refused(
    kernel: Any, error: type[Exception], message: str, path: Path
) -> None:
    regressor(kernel=ScaleKernel(OwnKernel(ard_num_dims=2))).fit(X, Y).save(path)
    with pytest.raises(error, match=message):
        cvgp.load(path, kernel=kernel)


def test_a_class_that_only_has_a_known_name_counts_as_ones_own() -> None:
    assert persistence._module_state(ScaleKernel(Imitation()), "kernel")["build"] is None


def shared() -> Kernel:
    kernel = RBFKernel()
    return ScaleKernel(kernel) + ScaleKernel(kernel)


def nested(depth: int) -> Kernel:
    return ScaleKernel(nested(depth - 1)) if depth > 1 else RBFKernel()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_model(shared()), "share a parameter"),
        (lambda: make_model(mean=MultitaskMean(ZeroMean(), num_tasks=2)), "MultitaskMean; it can hold"),
        (lambda: make_model(likelihood=type("Own", (GaussianLikelihood,), {})()), "GPyTorch's GaussianLikelihood"),
        (lambda: make_model(PolynomialKernel(power=0.5)), "whole number"),
        (lambda: make_model(nested(9)), "depth"),
        (lambda: make_model(RBFKernel(ard_num_dims=4)), "ard_num_dims"),
        (lambda: make_model(mean=LinearMean(4)), "weights"),
        (lambda: make_model(RBFKernel(batch_shape=torch.Size([2]))), "shape"),
    ],
    ids=["shared", "mean", "likelihood", "power", "deep", "lengthscales", "slopes", "batch"],
)
def test_a_model_that_a_file_cannot_hold_is_refused(make: Callable[[], cvgp.CVGP], message: str) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError, FileFormatError), match=message):
        through_file(make())


# ------------------------------------------------------------------------------------------------------ what is refused


def test_an_estimator_that_is_not_fitted_or_of_another_class_is_refused(path: Path) -> None:
    with pytest.raises(NotFittedError):
        regressor().save(path)
    with pytest.raises(InvalidTypeError, match="can hold a CVGPRegressor; got a Own"):
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


@pytest.mark.parametrize("name", ["X_c", "kernel.raw_outputscale"])
def test_a_model_with_nan_is_refused(model: Estimator, path: Path, name: str) -> None:
    odd = deepcopy(model)
    with torch.no_grad():
        dict(odd.model_.named_parameters())[name].fill_(torch.nan)
    with pytest.raises(InvalidInputError, match="could not be loaded again"):
        odd.save(path)


def test_a_place_that_cannot_be_written_or_read_is_reported(model: Estimator, tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="folder does not exist"):
        model.save(tmp_path / "no" / "model.cvgp")
    with pytest.raises(MissingFileError, match=r"There is no file .*model\.cvgp"):
        cvgp.load(tmp_path / "model.cvgp")


class Bomb:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('executed')",)


def test_a_pickle_is_not_executed(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(FileFormatError, match="not a cvgp file"):
        cvgp.load(path)


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
    ("class", "os.system"),
    ("extra", 1),
    ("extra", np.zeros(1)),
    ("attached.schema", [1]),
    ("attached.more", {}),
    ("parameters.n_neighbours", 3),
    ("parameters.training__callbacks", None),
    ("parameters.tol", [1e-4]),
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
    ("history.bound", ["high"]),
    ("history.bound", np.zeros(1)),
    ("history.bound", np.zeros(0)),
    ("scaling.x_scale", np.array([1.0, -1.0])),
    ("scaling.x_limit", np.array(np.nan)),
    ("scaling.y_scale", np.array([-1.0])),
    ("scaling.x_mean", np.zeros(3)),
    ("scaling.warp.name", "eval"),
    ("statistics.Phi", np.zeros((3, 3))),
    ("statistics.yy", np.zeros(1)),
    ("target.name", "eval"),
    ("model.X_c", np.zeros((10, 3))),
    ("model.X_c", np.zeros((0, 10**15))),
    ("model.frozen", ["kernel"]),
    ("model.raw_beta", np.full(10, 1e4)),
    ("model.site_noise_offset", np.array(-1e9)),
    ("model.noise.tensors.raw_noise", np.full(1, 1e4)),
    ("model.kernel.classes", None),
    ("model.kernel.build.class", "Kernel"),
    ("model.kernel.build.class", "ZeroMean"),
    ("model.kernel.build.ard_num_dims", 10**18),
    ("model.kernel.build.kernels", []),
    ("model.kernel.build.constraints", {"raw_outputscale_constraint": ["eval", "exp"]}),
    ("model.kernel.build.constraints", {"base_kernel.raw_lengthscale_constraint": ["Positive", "exp"]}),
    ("model.kernel.build.kernels.0.ard_num_dims", 3),
    ("model.kernel.tensors.raw_outputscale", np.zeros(1)),
    ("model.kernel.tensors.raw_outputscale", np.array(0)),
    ("model.kernel.tensors.raw_outputscale", np.array(np.inf)),
    ("model.kernel.tensors.raw_outputscale", GONE),
    ("model.kernel.tensors.other", np.zeros(1)),
    ("model.kernel.tensors.active_dims", np.array([0, 5])),
    ("model.kernel.tensors.base_kernel.raw_lengthscale_constraint.lower_bound", np.zeros((2, 1, 2))),
    ("model.kernel.tensors.base_kernel.raw_lengthscale_constraint.lower_bound", np.array(np.inf)),
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


def test_a_state_is_json_and_arrays(model: Estimator) -> None:
    arrays, text = split_state(persistence._state(model))
    assert json.loads(text)["format"] == "cvgp model"
    assert changed(join_state(arrays, text), "version", 2)["version"] == 2
