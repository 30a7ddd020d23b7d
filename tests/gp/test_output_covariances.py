"""Covariances of outputs that are learned from rotated rows."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from cvgp.gp.outputs import covariance_density, learn_covariances, unmix

S_OF_ROWS = np.geomspace(1e-6, 100.0, 400)
B, S = np.array([[2.0, 0.9], [0.9, 0.5]]), np.array([[0.4, -0.1], [-0.1, 0.2]])
NORMAL = np.random.default_rng(0).normal(size=(400, 2))
Y = np.array([np.linalg.cholesky(s * B + S) @ e for s, e in zip(S_OF_ROWS, NORMAL, strict=True)])


def test_unmixed_outputs_have_diagonal_covariances() -> None:
    W, values = unmix(B, S)
    assert np.allclose(W.T @ B @ W, np.diag(values))
    assert np.allclose(W.T @ S @ W, np.eye(2))


def test_the_density_is_that_of_normal_rows() -> None:
    found = [multivariate_normal.logpdf(y, cov=s * B + S) for s, y in zip(S_OF_ROWS, Y, strict=True)]
    assert covariance_density(S_OF_ROWS, Y, B, S) == pytest.approx(np.mean(found))


def test_each_step_makes_the_rows_more_likely() -> None:
    densities = [covariance_density(S_OF_ROWS, Y, *learn_covariances(S_OF_ROWS, Y, steps=n)) for n in range(1, 25)]
    assert (np.diff(densities) > -1e-9).all()


def test_the_end_is_a_maximum_near_the_truth() -> None:
    found = learn_covariances(S_OF_ROWS, Y)
    best = covariance_density(S_OF_ROWS, Y, *found)
    assert best > covariance_density(S_OF_ROWS, Y, B, S)
    rng = np.random.default_rng(1)
    for _ in range(20):
        moves = (np.eye(2) + 0.05 * rng.normal(size=(2, 2)) for _ in range(2))
        moved = [A @ C @ A.T for A, C in zip(moves, found, strict=True)]
        assert covariance_density(S_OF_ROWS, Y, *moved) < best + 1e-5
    assert np.allclose(found[0], B, atol=0.3)
    assert np.allclose(found[1], S, atol=0.1)
