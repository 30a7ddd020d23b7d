"""What a fit is told, and what it is going to do: the solver, its length, and their costs.

The costs are seconds by sizes, with constants that were measured on two cores (docs: speed, the cost model). Another
machine is faster or slower by a factor, which makes these choices smaller or larger, not wrong.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cvgp.errors import InvalidInputError, InvalidTypeError

SolverName = Literal["auto", "lbfgs", "adam", "paper"]
BoundName = Literal["auto", "elbo", "tight", "power"]
Number = int | float | np.integer | np.floating

LBFGS_ROWS = 3000
"""Up to this many rows a full pass costs about as much as a minibatch, and L-BFGS needs fewer of them."""

LBFGS_EVALUATIONS, FEWEST_LBFGS_EVALUATIONS = 200, 30
LBFGS_SECONDS = 8.0
"""The most that L-BFGS may take by itself without a time limit, on the machine of the cost model: a start that was
searched for needs few evaluations, and the last of them gain little."""
BRIEF_ROWS, BRIEF_SECONDS, BRIEF_EVALUATIONS = 50_000, 4.0, (12, 60)
"""Up to this many rows, and for this long, brief training takes L-BFGS where Adam would be taken; its evaluations, at
least and at most."""
FEWEST_POLISH_EVALUATIONS, POLISH_EVALUATIONS = 10, 60
POLISH_SECONDS, LONGEST_GROWTH = 5.0, 2.0
"""The most that L-BFGS may take after Adam on 20,000 rows, on the machine of the cost model, and how many times as long
it may take on more: passes over a million rows would take longer than the rest of the fit."""
LEARNING_RATE = 0.03
PAPER_LEARNING_RATE = 1e-3
PAPER_BATCH = 512
PAPER_EPOCHS = 100_000

ADAM_STEPS, MOST_ADAM_STEPS = 1000, 3000
"""Without a time limit, for up to 20,000 rows and for 180,000 and more. With L-BFGS after them these steps reach most
of what three times as many do (docs: defaults)."""
TIMED_ADAM_STEPS = 3000
"""The most within a time limit."""
USUAL_ROWS = 20_000

STEP = (1.8e-3, 3e-11, 2e-11)
"""Seconds of a step: a constant, for each M^2 B and for each M^3."""

EVALUATION = (2.5e-8, 6.4e-11, 1.2e-10)
"""Seconds of an evaluation of the tighter bound with its gradient: for each N M, for each N M^2 and for each N M D."""

EXACT = (4e-11, 5e-11)
"""Seconds of an evaluation of the exact marginal likelihood with its gradient: for each N^3 and for each N^2 D."""


@dataclass(frozen=True)
class Settings:
    """Choices of a fit; None leaves one to the solver.

    ``solver="paper"`` is the paper's own recipe: Adam at a constant 1e-3, batches of 512, float32, early stopping on
    the best validation RMSE. The paper holds out 30 % of the data and waits for 3000 epochs; those two are set by
    `validation_fraction` and `n_iter_no_change`, as for the other solvers.
    """

    solver: SolverName = "auto"
    bound: BoundName = "auto"
    power: float = 0.5
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
    is_brief: bool = False
    """Whether little is to be gained by long training: neighbours were tried, and the coreset at its start was as good.
    """

    def __post_init__(self) -> None:
        _check_choice("solver", self.solver, ("auto", "lbfgs", "adam", "paper"))
        _check_choice("bound", self.bound, ("auto", "elbo", "tight", "power"))
        _check_choice("dtype", self.dtype, ("auto", "float32", "float64"))
        _check_count("max_iter", self.max_iter)
        _check_count("batch_size", self.batch_size)
        _check_count("n_iter_no_change", self.n_iter_no_change)
        _check_positive("learning_rate", self.learning_rate)
        _check_positive("max_time", self.max_time)
        if isinstance(self.power, bool) or not isinstance(self.power, Number):
            raise InvalidTypeError(f"power must be a number above 0 and at most 1; got {self.power!r}.")
        if not 0.0 < self.power <= 1.0:
            raise InvalidInputError(f"power must be above 0 and at most 1; got {self.power}.")
        if not (isinstance(self.tol, Number) and self.tol >= 0):
            raise InvalidInputError(f"tol must be a number of at least 0; got {self.tol!r}.")
        if not (isinstance(self.validation_fraction, Number) and 0.0 < self.validation_fraction < 1.0):
            raise InvalidInputError(f"validation_fraction must be between 0 and 1; got {self.validation_fraction!r}.")
        if self.early_stopping and self.solver == "lbfgs":
            raise InvalidInputError(
                "early_stopping watches the epochs of Adam, and L-BFGS has none; use solver='adam' or 'auto' with it."
            )

    @property
    def leaves_training_open(self) -> bool:
        """Whether the user has not said how the coreset is to be trained."""
        is_chosen = self.solver != "auto" or self.bound != "auto" or self.max_iter is not None
        return not (is_chosen or self.early_stopping)


class Plan(NamedTuple):
    """A solver with everything decided."""

    solver: str
    tight: bool
    max_iter: int
    batch_size: int
    learning_rate: float
    schedule_is_constant: bool
    dtype: str
    solve_at_end: bool
    polish: int = 0
    """Evaluations of L-BFGS on all rows that follow Adam."""
    polish_tight: bool = False
    power: float | None = None
    """Of power EP; None where a bound is maximised."""


def choose_solver(settings: Settings, num_rows: int) -> str:
    """L-BFGS or Adam."""
    if settings.solver == "auto":
        most = BRIEF_ROWS if settings.is_brief and settings.max_time is None else LBFGS_ROWS
        return "lbfgs" if num_rows <= most and not settings.early_stopping else "adam"
    return "adam" if settings.solver == "paper" else settings.solver


def make_plan(settings: Settings, num_rows: int, size: int, num_dims: int) -> Plan:
    """Decide what the settings leave open, from the numbers of rows, of points and of columns."""
    paper = settings.solver == "paper"
    solver = choose_solver(settings, num_rows)
    batch_size = settings.batch_size or (PAPER_BATCH if paper else default_batch(size))
    batch_size = min(batch_size, num_rows)
    if settings.max_iter is not None:
        max_iter = settings.max_iter
    elif paper:
        max_iter = PAPER_EPOCHS * max(num_rows // batch_size, 1)
    else:
        steps = LBFGS_EVALUATIONS
        if settings.max_time is None:
            steps = lbfgs_evaluations(num_rows, size, num_dims, is_brief=settings.is_brief)
        max_iter = steps if solver == "lbfgs" else adam_steps(num_rows, settings.max_time)
    polish = 0
    if settings.solver == "auto" and solver == "adam":
        polish = polish_evaluations(num_rows, size, num_dims)
    if settings.early_stopping or settings.max_iter is not None:
        polish = 0  # the user has said what ends the fit
    dtype = settings.dtype
    if dtype == "auto" and (paper or solver == "lbfgs"):
        dtype = "float32" if paper else "float64"
    return Plan(
        solver=solver,
        # The tighter bound predicts better at equal time where L-BFGS is used, and slows Adam (docs: defaults).
        tight=settings.bound == "tight" or (settings.bound == "auto" and solver == "lbfgs"),
        max_iter=max_iter,
        batch_size=batch_size,
        learning_rate=settings.learning_rate or (PAPER_LEARNING_RATE if paper else LEARNING_RATE),
        schedule_is_constant=paper,
        dtype=dtype,
        solve_at_end=not (paper or settings.early_stopping),
        polish=polish,
        polish_tight=polish > 0 and settings.bound in ("auto", "tight"),
        power=float(settings.power) if settings.bound == "power" else None,
    )


def lbfgs_evaluations(num_rows: int, size: int, num_dims: int, *, is_brief: bool = False) -> int:
    """How many evaluations L-BFGS may take by itself: on all rows, or of the exact likelihood if all are points."""
    is_exact = size >= num_rows
    seconds = exact_seconds(num_rows, num_dims) if is_exact else evaluation_seconds(num_rows, size, num_dims)
    if is_brief and num_rows > LBFGS_ROWS:
        return int(np.clip(BRIEF_SECONDS / seconds, *BRIEF_EVALUATIONS))
    longest = BRIEF_SECONDS if is_brief else LBFGS_SECONDS
    return int(np.clip(longest / seconds, FEWEST_LBFGS_EVALUATIONS, LBFGS_EVALUATIONS))


def adam_steps(num_rows: int, max_time: float | None) -> int:
    """How many steps of Adam a fit may take; a time limit may end them sooner."""
    steps = min(int(ADAM_STEPS * _growth(num_rows)), MOST_ADAM_STEPS)
    return steps if max_time is None else max(steps, TIMED_ADAM_STEPS)


def polish_evaluations(num_rows: int, size: int, num_dims: int) -> int:
    """How many evaluations on all rows are worth their time after Adam; none where they would be too few to help."""
    affordable = int(
        POLISH_SECONDS * min(_growth(num_rows), LONGEST_GROWTH) / evaluation_seconds(num_rows, size, num_dims)
    )
    return min(affordable, POLISH_EVALUATIONS) if affordable >= FEWEST_POLISH_EVALUATIONS else 0


def step_seconds(size: int, batch: int) -> float:
    """One step of Adam."""
    constant, by_product, by_cube = STEP
    return constant + by_product * size**2 * batch + by_cube * size**3


def evaluation_seconds(num_rows: int, size: int, num_dims: int) -> float:
    """One evaluation on all rows, as L-BFGS makes them."""
    by_entry, by_product, by_column = EVALUATION
    return num_rows * size * (by_entry + by_product * size + by_column * num_dims)


def exact_seconds(num_rows: int, num_dims: int) -> float:
    """One evaluation of the exact marginal likelihood."""
    by_row, by_column = EXACT
    return num_rows**2 * (by_row * num_rows + by_column * num_dims)


def fit_seconds(size: int) -> float:
    """The default number of steps on the default batch."""
    return TIMED_ADAM_STEPS * step_seconds(size, default_batch(size))


def _growth(num_rows: int) -> float:
    """How much longer a fit may take than on the usual number of rows."""
    return float(np.sqrt(max(num_rows / USUAL_ROWS, 1.0)))


def default_batch(size: int) -> int:
    """The smallest power of two from 512 on that is at least twice the coreset."""
    batch = 512
    while batch < 2 * size:
        batch *= 2
    return batch


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
