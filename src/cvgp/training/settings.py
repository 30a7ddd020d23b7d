"""What a fit is told: one frozen value, checked before any work is done."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cvgp.errors import InvalidInputError, InvalidTypeError

__all__ = ["Settings"]

SolverName = Literal["auto", "lbfgs", "adam", "paper"]
BoundName = Literal["auto", "elbo", "tight"]
Number = int | float | np.integer | np.floating


@dataclass(frozen=True)
class Settings:
    """Choices of a fit; None leaves one to the solver.

    ``solver="paper"`` is the paper's own recipe: Adam at a constant 1e-3, batches of 512, float32, early stopping on
    the best validation RMSE. The paper holds out 30 % of the data and waits for 3000 epochs; those two are set by
    `validation_fraction` and `n_iter_no_change`, as for the other solvers.
    """

    solver: SolverName = "auto"
    bound: BoundName = "auto"
    max_iter: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    tol: float = 1e-4
    max_time: float | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 20
    dtype: Literal["auto", "float32", "float64"] = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        _check_choice("solver", self.solver, ("auto", "lbfgs", "adam", "paper"))
        _check_choice("bound", self.bound, ("auto", "elbo", "tight"))
        _check_choice("dtype", self.dtype, ("auto", "float32", "float64"))
        _check_count("max_iter", self.max_iter)
        _check_count("batch_size", self.batch_size)
        _check_count("n_iter_no_change", self.n_iter_no_change)
        _check_positive("learning_rate", self.learning_rate)
        _check_positive("max_time", self.max_time)
        if not (isinstance(self.tol, Number) and self.tol >= 0):
            raise InvalidInputError(f"tol must be a number of at least 0; got {self.tol!r}.")
        if not (isinstance(self.validation_fraction, Number) and 0.0 < self.validation_fraction < 1.0):
            raise InvalidInputError(f"validation_fraction must be between 0 and 1; got {self.validation_fraction!r}.")
        if self.early_stopping and self.solver == "lbfgs":
            raise InvalidInputError(
                "early_stopping watches the epochs of Adam, and L-BFGS has none; use solver='adam' or 'auto' with it."
            )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInputError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")


def _check_count(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidTypeError(f"{name} must be a whole number or None; got {value!r}.")
    if value < 1:
        raise InvalidInputError(f"{name} must be at least 1; got {value}.")


def _check_positive(name: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Number):
        raise InvalidTypeError(f"{name} must be a number or None; got {value!r}.")
    if not value > 0:
        raise InvalidInputError(f"{name} must be positive; got {value}.")
