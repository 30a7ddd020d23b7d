"""The systems that the paper compares, behind one interface: fit, predict, bound, inducing."""

from cvgp.errors import InvalidInputError
from experiments.paper.methods.base import Baseline, Inducing, Recipe, Start, plain_start
from experiments.paper.methods.coreset import CVGP, RandomCVGP
from experiments.paper.methods.full_batch import EXACT_ROWS, ExactGP, SparseGP
from experiments.paper.methods.svgp import PPGPR, SVGP, SVGPBatchKL
from experiments.scores import Prediction

__all__ = [
    "CVGP",
    "EXACT_ROWS",
    "METHODS",
    "PPGPR",
    "SVGP",
    "Baseline",
    "ExactGP",
    "Inducing",
    "Prediction",
    "RandomCVGP",
    "Recipe",
    "SVGPBatchKL",
    "SparseGP",
    "Start",
    "method_class",
    "plain_start",
]

METHODS: dict[str, type[Baseline]] = {
    cls.name: cls for cls in (ExactGP, SparseGP, SVGP, SVGPBatchKL, PPGPR, CVGP, RandomCVGP)
}
"""By the names of tables and figures."""


def method_class(name: str) -> type[Baseline]:
    """The class of a system by its name, in any case."""
    for known, cls in METHODS.items():
        if known.lower() == name.lower():
            return cls
    raise InvalidInputError(f"Unknown method {name!r}. Choose from {', '.join(METHODS)}.")
