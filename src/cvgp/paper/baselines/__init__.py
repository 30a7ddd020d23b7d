"""The systems that the paper compares, behind one interface: fit, predict, bound, inducing."""

from cvgp.errors import InvalidInputError
from cvgp.paper.baselines.coreset_gp import CVGP, RandomCVGP
from cvgp.paper.baselines.exact_gp import EXACT_ROWS, ExactGP
from cvgp.paper.baselines.method import Baseline, Inducing, Prediction
from cvgp.paper.baselines.recipe import Recipe
from cvgp.paper.baselines.shared_start import Start, common_start
from cvgp.paper.baselines.sparse_gp import SparseGP
from cvgp.paper.baselines.svgp import PPGPR, SVGP, SVGPBatchKL

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
    "common_start",
    "method_class",
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
