"""What fits cost: seconds by sizes, with constants that were measured on two cores (docs: speed, the cost model).

They decide how large a coreset a time affords and how long L-BFGS may go on. Another machine is faster or slower by a
factor, which makes these choices smaller or larger, not wrong.
"""

__all__ = ["ADAM_STEPS", "default_batch", "evaluation_seconds", "exact_seconds", "fit_seconds", "step_seconds"]

ADAM_STEPS = 3000

STEP = (1.8e-3, 3e-11, 2e-11)
"""Seconds of a step: a constant, for each M^2 B and for each M^3."""

EVALUATION = (2.5e-8, 6.4e-11)
"""Seconds of an evaluation of the tighter collapsed bound with its gradient: for each N M and for each N M^2."""

EXACT = 4e-11
"""Seconds of an evaluation of the exact marginal likelihood with its gradient, for each N^3."""


def step_seconds(size: int, batch: int) -> float:
    """One step of Adam."""
    constant, by_product, by_cube = STEP
    return constant + by_product * size**2 * batch + by_cube * size**3


def evaluation_seconds(num_rows: int, size: int) -> float:
    """One evaluation on all rows, as L-BFGS makes them."""
    by_entry, by_product = EVALUATION
    return num_rows * (by_entry * size + by_product * size**2)


def exact_seconds(num_rows: int) -> float:
    """One evaluation with each row a point."""
    return EXACT * num_rows**3


def fit_seconds(size: int) -> float:
    """The default number of steps on the default batch."""
    return ADAM_STEPS * step_seconds(size, default_batch(size))


def default_batch(size: int) -> int:
    """The smallest power of two from 512 on that is at least twice the coreset."""
    batch = 512
    while batch < 2 * size:
        batch *= 2
    return batch
