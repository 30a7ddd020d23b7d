"""Functions whose Sobol indices are known, for independent columns, and columns to draw them over."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """A function of rows [n, D], its columns, and its indices [D]."""

    name: str
    function: Callable[[Array], Array]
    columns: Callable[[np.random.Generator, int], Array]
    first_order: Array
    total: Array

    def draw(self, rows: int, seed: int) -> tuple[Array, Array]:
        """Rows, and their outputs with noise of a twentieth of their deviation."""
        rng = np.random.default_rng(seed)
        x = self.columns(rng, rows)
        y = self.function(x)
        return x, y + 0.05 * y.std() * rng.standard_normal(rows)


def uniform(low: float, high: float, dims: int) -> Callable[[np.random.Generator, int], Array]:
    return lambda rng, rows: rng.uniform(low, high, (rows, dims))


def normal(dims: int) -> Callable[[np.random.Generator, int], Array]:
    return lambda rng, rows: rng.standard_normal((rows, dims))


def shares(variances: list[float], needed: list[float] | None = None) -> tuple[Array, Array]:
    """First-order and total indices of columns with variances of their own, and those that need them."""
    own = np.array(variances)
    with_others = own if needed is None else np.array(needed)
    whole = own.sum() if needed is None else own.sum() + (with_others - own).sum() / 2  # interactions of two columns
    return own / whole, with_others / whole


def _friedman() -> tuple[Array, Array]:
    # E[sin(pi u v) | u] = (1 - cos(pi u)) / (pi u); its moments, and those of the sine, by quadrature
    nodes, weights = np.polynomial.legendre.leggauss(60)
    u, w = 0.5 * (nodes + 1.0), 0.5 * weights
    sine = 10.0 * np.sin(np.pi * np.outer(u, u))
    mean = w @ sine @ w
    alone = float(w @ (sine @ w - mean) ** 2)
    both = float(w @ (sine - mean) ** 2 @ w)
    others = [400.0 / 180.0, 100.0 / 12.0, 25.0 / 12.0, 0.0, 0.0, 0.0, 0.0, 0.0]  # of (u - 1/2)^2: 1/180
    return shares([alone, alone, *others], [both - alone, both - alone, *others])


def _ishigami() -> tuple[Array, Array]:
    a, b, pi = 7.0, 0.1, np.pi
    first, second = 0.5 * (1.0 + b * pi**4 / 5.0) ** 2, a**2 / 8.0
    together = 8.0 * b**2 * pi**8 / 225.0
    return shares([first, second, 0.0], [first + together, second, together])


def _g_function(a: Array) -> tuple[Array, Array]:
    own = 1.0 / (3.0 * (1.0 + a) ** 2)
    whole = np.prod(1.0 + own) - 1.0
    others = np.array([np.prod(np.delete(1.0 + own, j)) for j in range(len(a))])
    return own / whole, own * others / whole


G = np.array([0.0, 1.0, 4.5, 9.0])
LINEAR = np.array([3.0, 2.0, 1.0, 0.0])

PROBLEMS = [
    Problem(
        "Friedman 1",
        lambda x: 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4],
        uniform(0, 1, 10),
        *_friedman(),
    ),
    Problem(
        "Ishigami",
        lambda x: np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0]),
        uniform(-np.pi, np.pi, 3),
        *_ishigami(),
    ),
    Problem(
        "Sobol's g", lambda x: np.prod((np.abs(4 * x - 2) + G) / (1 + G), axis=1), uniform(0, 1, 4), *_g_function(G)
    ),
    Problem("linear", lambda x: x @ LINEAR, normal(4), *shares([9.0, 4.0, 1.0, 0.0])),
    Problem(
        "linear with different scales",
        lambda x: x @ np.array([1e-3, 1.0, 1e3]),
        lambda rng, rows: rng.standard_normal((rows, 3)) * [2e3, 1.0, 1e-3],
        *shares([4.0, 1.0, 1.0]),
    ),
    Problem("product", lambda x: x[:, 0] * x[:, 1], normal(3), *shares([0.0, 0.0, 0.0], [1.0, 1.0, 0.0])),
    Problem(
        "product beside a line",
        lambda x: x[:, 0] * x[:, 1] + x[:, 1] + x[:, 2],
        normal(4),
        *shares([0.0, 1.0, 1.0, 0.0], [1.0, 2.0, 1.0, 0.0]),
    ),
    Problem(
        "sum of waves",
        lambda x: np.sin(x[:, 0]) + np.cos(2 * x[:, 1]) + 0.5 * np.sin(x[:, 2]),
        uniform(-np.pi, np.pi, 3),
        *shares([0.5, 0.5, 0.125]),
    ),
    Problem(
        "one of twelve columns",
        lambda x: np.sin(2 * np.pi * x[:, 7]),
        uniform(0, 1, 12),
        *shares([0.0] * 7 + [0.5] + [0.0] * 4),
    ),
    Problem(
        "squares",
        lambda x: x[:, 0] ** 2 + 2 * x[:, 1] ** 2 + x[:, 2],
        uniform(-1, 1, 4),
        *shares([4.0 / 45.0, 16.0 / 45.0, 1.0 / 3.0, 0.0]),
    ),
]
