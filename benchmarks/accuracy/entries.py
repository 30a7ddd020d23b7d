"""Who takes part in the race of accuracy, and how each is run."""

from collections.abc import Sequence
from dataclasses import dataclass

from cvgp.errors import InvalidInputError
from cvgp.paper.protocol import PRESETS
from cvgp.paper.store import Value

__all__ = ["CORESET", "ENTRIES", "LIGHTGBM", "OURS", "RATES", "Entry", "choose"]

RATES = PRESETS["fair"].learning_rates
"""Of peers that are trained by steps of Adam."""
PLAIN, OURS_TOO = ("plain",), ("plain", "ours")


@dataclass(frozen=True)
class Entry:
    """A method and how it is run."""

    name: str
    """As the command line has it."""
    title: str
    """As the tables have it."""
    worker: str
    method: str
    options: tuple[tuple[str, Value], ...] = ()
    ours: bool = False
    starts: tuple[str, ...] = ()
    """Where it begins, free of charge: plainly, or where our own search for a start ends. Of two the better counts."""
    tuned: bool = False
    """Whether the first split chooses its learning rate."""


OURS = Entry("cvgp", "cvgp", "cvgp", "accuracy", ours=True)
CORESET = Entry("cvgp-coreset", "cvgp, neighbors=0", "cvgp", "accuracy", (("neighbors", 0),), ours=True)
LIGHTGBM = Entry("lightgbm", "LightGBM", "lightgbm_density", "density")

ENTRIES = (
    OURS,
    CORESET,
    LIGHTGBM,
    Entry("lightgbm-quantiles", "LightGBM quantiles", "lightgbm_density", "quantiles"),
    Entry("catboost", "CatBoost", "catboost", "uncertain"),
    Entry("sgpr", "SGPR", "gpflow", "sgpr", starts=PLAIN),
    Entry("gpboost-vecchia", "GPBoost Vecchia", "gpboost", "vecchia", (("most_rows", 50_000),), starts=OURS_TOO),
    Entry(
        "gpboost-vif",
        "GPBoost VIF",
        "gpboost",
        "vecchia",
        (("approximation", "full_scale_vecchia"), ("most_rows", 50_000)),
        starts=OURS_TOO,
    ),
    Entry("ngboost", "NGBoost", "ngboost", "normal"),
    Entry("sklearn-exact", "exact GP on a sample", "sklearn", "within_budget"),
    Entry("svgp", "SVGP", "gpytorch", "svgp", starts=PLAIN, tuned=True),
    Entry("ppgpr", "PPGPR", "gpytorch", "ppgpr", starts=PLAIN, tuned=True),
)
"""Ours first, then roughly from fast to slow, so that a run that is cut short has most of them."""


def choose(names: Sequence[str]) -> tuple[Entry, ...]:
    """The entries of these names, in the order in which they run."""
    known = {entry.name: entry for entry in ENTRIES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidInputError(f"Unknown peers {', '.join(unknown)}. Choose from {', '.join(known)}.")
    return tuple(entry for entry in ENTRIES if entry.name in names)
