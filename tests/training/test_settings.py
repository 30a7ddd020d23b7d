from typing import Any

import numpy as np
import pytest

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.training.plan import Settings

WRONG_VALUES: list[dict[str, Any]] = [
    {"solver": "newton"},
    {"bound": "upper"},
    {"dtype": "float16"},
    {"max_iter": 0},
    {"batch_size": -1},
    {"n_iter_no_change": 0},
    {"learning_rate": 0.0},
    {"learning_rate": float("nan")},
    {"max_time": -1.0},
    {"tol": -1e-3},
    {"tol": None},
    {"tol": float("nan")},
    {"validation_fraction": 0.0},
    {"validation_fraction": 1},
    {"validation_fraction": "half"},
    {"power": 0},
    {"power": -0.5},
    {"power": 1.5},
    {"power": float("nan")},
    {"power": 0.0, "bound": "power"},
]
WRONG_TYPES: list[dict[str, Any]] = [
    {"max_iter": 2.5},
    {"max_iter": True},
    {"batch_size": "64"},
    {"n_iter_no_change": 1.0},
    {"learning_rate": "fast"},
    {"max_time": "60"},
    {"max_time": True},
    {"power": "x"},
    {"power": None},
    {"power": True},
]


@pytest.mark.parametrize("wrong", WRONG_VALUES, ids=str)
def test_wrong_value_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Settings(**wrong)


@pytest.mark.parametrize("wrong", WRONG_TYPES, ids=str)
def test_wrong_type_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidTypeError, match=next(iter(wrong))):
        Settings(**wrong)


@pytest.mark.parametrize("name", ["solver", "bound", "dtype"])
def test_refused_name_is_answered_with_the_choices(name: str) -> None:
    with pytest.raises(InvalidInputError, match="must be one of auto, "):
        Settings(**{name: "nonsense"})


@pytest.mark.parametrize(
    "right",
    [
        {"max_iter": np.int64(5)},
        {"batch_size": np.int32(5)},
        {"learning_rate": np.float32(0.1)},
        {"tol": np.float64(0)},
        {"power": np.float32(0.25)},
    ],
    ids=str,
)
def test_numbers_of_numpy_are_numbers(right: dict[str, Any]) -> None:
    name, value = next(iter(right.items()))
    assert getattr(Settings(**right), name) == value


def test_early_stopping_of_lbfgs_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="solver='adam'"):
        Settings(solver="lbfgs", early_stopping=True)
