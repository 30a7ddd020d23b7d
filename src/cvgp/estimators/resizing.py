"""A fitted model with another coreset, which is solved for together with the neighbours that the model consults."""

import warnings
from typing import NamedTuple

from cvgp.data.arrays import MemorySource
from cvgp.data.source import DataSource
from cvgp.errors import CVGPWarning
from cvgp.estimators.units import ScaledGP
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.training.neighbour_rows import adopt_neighbours, in_random_order
from cvgp.training.neighbours import reason_against

__all__ = ["Resized", "resize"]


class Resized(NamedTuple):
    """What an estimator is to hold from now on."""

    gp: ScaledGP
    statistics: Statistics
    bound: float | None
    """That of the model with neighbours, in nats and in the model's units; None without neighbours."""


def resize(
    gp: ScaledGP, model: CVGP, statistics: Statistics, source: DataSource | None = None, seed: int = 0
) -> Resized:
    """Put a model with other points, and the same kernel and noise, in the place of one that may consult neighbours.

    Parameters
    ----------
    gp
        The present one.
    model, statistics
        The new model, which is the result where no neighbours are consulted.
    source, seed
        Rows to consult from now on, and their order; those of the present one by default. Rows that cannot be consulted
        leave the coreset alone, with a warning.
    """
    rows, num_neighbours = None, 0
    if gp.local is not None:
        rows, num_neighbours = gp.local.kept.rows, gp.local.kept.num_neighbours
        if isinstance(source, MemorySource) and not reason_against(source):
            rows = in_random_order(source.data, seed)
        elif source is not None:
            warnings.warn(
                f"The model has consulted neighbours, and no longer does: {reason_against(source)}.",
                CVGPWarning,
                stacklevel=3,
            )
            rows = None
    if rows is None:
        return Resized(gp.with_model(model), statistics, None)
    kept, bound = adopt_neighbours(model, rows, num_neighbours)
    return Resized(gp.with_model(model, kept), kept.statistics, bound)
