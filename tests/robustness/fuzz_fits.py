"""Small fits to odd numbers: extreme magnitudes, few rows, equal columns, odd types and weights.

A case is a dictionary of plain values, so that it can be stored and repeated.
"""

import warnings
from random import Random
from typing import Any

import numpy as np

from cvgp.errors import CVGPError, CVGPWarning
from cvgp.fitting.heuristics import Heuristics
from tests.flat_options import make_regressor

Case = dict[str, Any]

PLAIN: Case = {
    "rows": 12,
    "columns": ["normal", "normal"],
    "x_scale": 1.0,
    "x_shift": 0.0,
    "x_type": "float64",
    "y": "wave",
    "y_scale": 1.0,
    "y_shift": 0.0,
    "outputs": 1,
    "weight": None,
    "noise": None,
    "at": 1.0,
    "settings": {},
}
"""What is odd about a case is what differs from this one."""
MAGNITUDES = (1.0, 1.0, 1.0, 1e-3, 1e5, 1e20, 1e-20, 1e59, 1e-59, 1e100, 1e-100, 1e154, 1e-158, 1e184, 1e-200, 1e300)
SETTINGS: dict[str, tuple[Any, ...]] = {
    "solver": ("lbfgs", "adam", "paper"),
    "init": ("kmeans", "greedy", "random"),
    "kernel": ("rbf", "matern12", "rq", "linear", "periodic", "rbf+linear", "rbf*periodic"),
    "standardize": (False,),
    "dtype": ("float32", "float64"),
    "n_coreset": (1, 2, 5, "auto"),
    "n_neighbors": (0, 1, 3),
    "noise": ("constant", "input-dependent", "auto"),
    "target_transform": ("log", "yeo-johnson"),
    "input_warp": ("rank", "identity", "mixed"),
    "bound": ("elbo", "tight"),
    "ard": (False,),
}


HASTY = Heuristics(start_factors=(1.0,), kernel_evaluations=2, alternative_evaluations=2, race_evaluations=2)
"""A search for a start that only passes through every line, for most cases: it takes most of the time of a fit."""


def odd_fit(random: Random) -> Case:
    """A case at random, with one to five odd things."""
    case = {**PLAIN, "seed": random.randrange(1000), "hasty": random.random() < 0.95, "settings": {}}
    kinds = ("normal", "constant", "zero", "copy", "steps", "outlier", "binary")
    changes = {
        "rows": lambda: random.choice((1, 2, 3, 5, 25)),
        "columns": lambda: [random.choice(kinds) for _ in range(random.choice((1, 2, 3)))],
        "x_scale": lambda: random.choice(MAGNITUDES),
        "x_shift": lambda: random.choice((1e8, -1e15, 1e300, -1e-300)),
        "x_type": lambda: random.choice(("float32", "float16", "int64", "uint8", "bool", "object", "longdouble")),
        "y": lambda: random.choice(("constant", "zero", "binary", "outlier", "nan", "infinite")),
        "y_scale": lambda: random.choice(MAGNITUDES),
        "y_shift": lambda: random.choice((1e8, -1e15, 1e300)),
        "outputs": lambda: 2,
        "weight": lambda: random.choice(("zero", "one", "some", 1e308, 1e-308, 1e90, 1e-90, "mixed", "negative")),
        "noise": lambda: random.choice((0.0, 1.0, 1e300, 1e-300, 5e-324, "mixed", "nan")),
        "at": lambda: random.choice((0.0, 1e10, -1e200, 1e308)),
    }
    for _ in range(random.randint(1, 5)):
        if random.random() < 0.5:
            name = random.choice(list(SETTINGS))
            case["settings"][name] = random.choice(SETTINGS[name])
        else:
            name = random.choice(list(changes))
            case[name] = changes[name]()
    return case


def run_fit(case: Case) -> None:
    """Fit, predict and draw: numbers that are finite, or an error of cvgp. Whatever else happens is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", CVGPWarning)
        x, y, options = _data(case)
        settings = {"n_coreset": 4, "kernel": "matern32", "max_iter": 3, "random_state": 0, "n_neighbors": 0}
        settings |= {"noise": "constant", "input_warp": "identity"} | case["settings"]
        settings |= {"heuristics": HASTY} if case.get("hasty") else {}
        model = make_regressor(**settings).fit(x, y, **options)
        for points in (x, np.full((2, x.shape[1]), case["at"])):
            mean, sd = model.predict(points, return_std=True)
            draws = model.sample_y(points[:2], 2)
            for name, values in {"mean": mean, "sd": sd, "draws": draws, "bound": model.elbo_}.items():
                assert np.isfinite(values).all(), f"{name} is not finite: {values}"
            assert (sd >= 0).all(), f"negative deviations: {sd}"


def fails(case: Case) -> str | None:
    """What goes wrong in a case, in a few words."""
    try:
        run_fit(case)
    except CVGPError as error:
        str(error)
    except Exception as error:
        return type(error).__name__
    return None


def _data(case: Case) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    rng, n = np.random.default_rng(case.get("seed", 0)), case["rows"]
    base = rng.normal(size=n)
    columns = [_column(kind, rng, base) for kind in case["columns"]]
    with np.errstate(all="ignore"):
        x = np.stack(columns, axis=1) * case["x_scale"] + case["x_shift"]
        y = {"wave": np.sin(base) + 0.1 * rng.normal(size=n), "constant": np.ones(n), "zero": np.zeros(n)}.get(
            case["y"]
        )
        if y is None:
            y = _column(case["y"], rng, base)
        if case["outputs"] == 2:
            y = np.stack([y, y[::-1] ** 2], axis=1)
        y = y * case["y_scale"] + case["y_shift"]
        x = x.astype(case["x_type"])
    options = {"sample_weight": _weights(case["weight"], n), "noise_variance": _noise(case["noise"], n)}
    return x, y, {name: values for name, values in options.items() if values is not None}


def _column(kind: str, rng: np.random.Generator, base: np.ndarray) -> np.ndarray:
    n = len(base)
    values = {"constant": np.full(n, 3.0), "zero": np.zeros(n), "copy": base.copy(), "steps": np.round(base)}
    column = values.get(kind, rng.normal(size=n))
    if kind == "binary":
        return (column > 0).astype(float)
    if kind in ("outlier", "nan", "infinite"):
        column[n // 2] = {"outlier": 1e12, "nan": np.nan, "infinite": np.inf}[kind]
    return column


def _weights(kind: Any, n: int) -> np.ndarray | None:
    spread = np.geomspace(1e-300, 1e300, n)
    named = {
        "zero": np.zeros(n),
        "one": np.eye(n)[0],
        "some": np.arange(n) % 2.0,
        "mixed": spread,
        "negative": -np.ones(n),
    }
    return None if kind is None else named[kind] if isinstance(kind, str) else np.full(n, kind)


def _noise(kind: Any, n: int) -> np.ndarray | None:
    named = {"mixed": np.geomspace(1e-300, 1e300, n), "nan": np.full(n, np.nan)}
    return None if kind is None else named[kind] if isinstance(kind, str) else np.full(n, kind)
