"""Estimators with the Tanimoto kernel: inputs as they are, the exact GP, files, and bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel, NormalizedKernelMixin

import cvgp
from cvgp import CVGPClassifier, CVGPRegressor, TrainingOptions
from cvgp.errors import InvalidInputError, NotSupportedError

RNG = np.random.default_rng(0)
EFFECTS = RNG.normal(size=64)


def molecules(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bits of variants of ten scaffolds, and an activity to which each bit adds; the first bit is always set."""
    rng = np.random.default_rng(seed)
    scaffolds = np.random.default_rng(1).random((10, 64)) < 0.25
    bits = scaffolds[rng.integers(10, size=count)] ^ (rng.random((count, 64)) < 0.08)
    bits[:, 0] = True
    return bits.astype(np.float64), bits @ EFFECTS + 0.1 * rng.normal(size=count)


X, Y = molecules(150)
X_NEW, Y_NEW = molecules(40, seed=2)
MIDDLE = float(np.median(Y))


class Tanimoto(NormalizedKernelMixin, Kernel):  # type: ignore[misc]
    """The same kernel for scikit-learn, with its outputscale."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def __call__(self, a: Any, b: Any = None, eval_gradient: bool = False) -> Any:
        b = a if b is None else b
        shared = a @ b.T
        return self.scale * shared / ((a * a).sum(1)[:, None] + (b * b).sum(1) - shared)

    def diag(self, a: Any) -> Any:
        return np.full(len(a), self.scale)

    def is_stationary(self) -> bool:
        return False


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return CVGPRegressor(kernel="tanimoto", noise="constant", random_state=0).fit(X, Y)


def test_predictions_are_those_of_an_exact_gp_with_this_kernel(model: CVGPRegressor) -> None:
    scale, noise = model.kernel_.outputscale.item(), model.noise_variance_
    exact = GaussianProcessRegressor(Tanimoto(scale), alpha=noise, optimizer=None).fit(X, Y - Y.mean())
    mean, sd = exact.predict(X_NEW, return_std=True)
    found, found_sd = model.predict(X_NEW, return_std=True, include_noise=False)
    np.testing.assert_allclose(found, mean + Y.mean(), atol=1e-5 * Y.std())
    np.testing.assert_allclose(found_sd, sd, rtol=1e-4)


def test_it_predicts_fingerprints_as_well_as_distances_do(model: CVGPRegressor) -> None:
    plain = CVGPRegressor(kernel="rbf", ard=False, noise="constant", random_state=0).fit(X[:, 1:], Y)
    assert model.score(X_NEW, Y_NEW) > max(plain.score(X_NEW[:, 1:], Y_NEW) - 0.05, 0.8)


def test_inputs_are_taken_as_they_are(model: CVGPRegressor) -> None:
    np.testing.assert_array_equal(np.unique(model.coreset_.X), [0.0, 1.0])
    assert model.input_warp_ == "identity"
    assert (model._gp.scaling.x_scale == 1.0).all()  # also of the bit that is always set


def test_a_file_brings_it_back(model: CVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "model.cvgp")
    again = cvgp.load(tmp_path / "model.cvgp")
    np.testing.assert_array_equal(again.predict(X_NEW), model.predict(X_NEW))
    assert again.kernel_name_ == "tanimoto"


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_small_coreset_can_be_trained(solver: str) -> None:
    training = TrainingOptions(solver=solver, max_iter=30)
    small = CVGPRegressor(20, kernel="tanimoto", noise="constant", random_state=0, training=training).fit(X, Y)
    assert len(small.coreset_.X) == 20
    assert small.score(X_NEW, Y_NEW) > 0.5


def test_neighbors_are_the_most_similar_molecules() -> None:
    near = CVGPRegressor(20, kernel="tanimoto", n_neighbors=10, noise="constant", random_state=0).fit(X, Y)
    assert near.n_neighbors_ == 10
    assert near.score(X_NEW, Y_NEW) > 0.7


def test_classes_can_be_predicted_from_fingerprints() -> None:
    classifier = CVGPClassifier(20, kernel="tanimoto", random_state=0).fit(X, Y > MIDDLE)
    assert classifier.score(X_NEW, Y_NEW > MIDDLE) > 0.8


@pytest.mark.parametrize("estimator", [CVGPRegressor(kernel="tanimoto"), CVGPClassifier(kernel="tanimoto")])
def test_negative_numbers_are_refused_in_a_fit(estimator: Any) -> None:
    standardized = (X - X.mean(0)) / (X.std(0) + 1e-9)
    with pytest.raises(InvalidInputError, match="at least 0; got -"):
        estimator.fit(standardized, (Y > 0).astype(int))


def test_negative_numbers_are_refused_in_predictions(model: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="at least 0; got -1"):
        model.predict(-X_NEW)


def test_a_warp_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="input_warp='rank' changes the units"):
        CVGPRegressor(kernel="tanimoto", input_warp="rank").fit(X, Y)


def test_an_export_without_torch_is_refused_by_name(model: CVGPRegressor, tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="Tanimoto"):
        model.export_numpy(tmp_path / "model.npz")
