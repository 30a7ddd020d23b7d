r"""Synthetic 1 to 5, as the paper's appendix defines them, with 1000 points each.

The appendix writes the noise as N(0, 0.3), N(0, 1) and N(0, 0.2) and does not say whether the second number is a
variance; it is used as a standard deviation. What else the appendix leaves open is chosen once: the seed, and
scikit-learn's defaults for the centres of the blobs.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_blobs, make_moons

Array = NDArray[np.float64]

NUM_POINTS = 1000
SEED = 0


class Sample(NamedTuple):
    """A data set."""

    x: Array  # [N, D]
    y: Array  # [N]


class Synthetic(NamedTuple):
    """How a set is made: inputs, the function, and the standard deviation of the noise at each point."""

    inputs: Callable[[int, np.random.RandomState], Array]  # (N, rng) -> [N, D]
    truth: Callable[[Array], Array]  # [N, D] -> [N]
    noise_sd: Callable[[Array, Array], Array]  # (x, f) -> [N]
    about: str


def generate(name: str, num_points: int = NUM_POINTS, seed: int = SEED) -> Sample:
    """Draw a synthetic set; the same seed gives the same set."""
    recipe = SYNTHETIC[name]
    rng = np.random.RandomState(seed)
    x = recipe.inputs(num_points, rng)
    f = recipe.truth(x)
    return Sample(x, f + recipe.noise_sd(x, f) * rng.standard_normal(num_points))


def _uniform(low: float, high: float) -> Callable[[int, np.random.RandomState], Array]:
    return lambda count, rng: rng.uniform(low, high, (count, 1))


def _synthetic1(x: Array) -> Array:
    t = x[:, 0]
    waves = np.sin(3 * t) * np.cos(2 * t) + np.sin(t / 2) + np.cos(2 * t)
    return np.asarray(0.4 * (waves + np.exp(-(t**2)) + np.abs(t)))


def _synthetic2(x: Array) -> Array:
    t = x[:, 0]
    return np.asarray(np.sin(t**2) + np.cos(t**2) + np.sin(3 * t) + np.cos(5 * t) + np.sqrt(np.abs(t)) / 2)


def _synthetic3(x: Array) -> Array:
    return np.asarray(np.cos(2 * np.pi * x[:, 0]))


def _synthetic4(x: Array) -> Array:
    a, b = x[:, 0], x[:, 1]
    first, second = 4 * np.sin(a) + 2 * np.sin(2 * a), 3 * np.cos(3 * b) + 4 * np.sin(5 * b)
    return np.asarray(first + second + np.exp(-((a + b) ** 2)))


def _synthetic5(x: Array) -> Array:
    a, b = x[:, 0], x[:, 1]
    return np.asarray(a / 2 + np.sin(2 * a) + b / 2 + np.cos(5 * b) + np.exp(-((a + b) ** 2)) / 2)


def _blobs(count: int, rng: np.random.RandomState) -> Array:
    return np.asarray(make_blobs(count, centers=3, cluster_std=0.4, random_state=rng)[0])


def _moons(count: int, rng: np.random.RandomState) -> Array:
    return np.asarray(make_moons(count, noise=0.05, random_state=rng)[0])


def _wavy(x: Array, f: Array) -> Array:
    return np.asarray(0.3 * np.sin(2 * np.pi * f))


def _constant(x: Array, f: Array) -> Array:
    return np.full(len(f), 0.2)


SYNTHETIC = {
    "synthetic1": Synthetic(_uniform(-4, 4), _synthetic1, _wavy, "1-d, noise 0.3 sin(2 pi f)"),
    "synthetic2": Synthetic(_uniform(-4, 4), _synthetic2, _wavy, "1-d, noise 0.3 sin(2 pi f)"),
    "synthetic3": Synthetic(_uniform(0, 2), _synthetic3, lambda x, f: x[:, 0] ** 3, "1-d, noise x^3"),
    "synthetic4": Synthetic(_blobs, _synthetic4, _constant, "2-d blobs, noise 0.2"),
    "synthetic5": Synthetic(_moons, _synthetic5, _constant, "2-d moons, noise 0.2"),
}
