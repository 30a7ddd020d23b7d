"""The paper's data by name: synthetic1 to synthetic5 are generated, the others are UCI sets."""

from functools import lru_cache

from cvgp.errors import InvalidInputError
from cvgp.paper.datasets.synthetic import SYNTHETIC, Sample, generate
from cvgp.paper.datasets.uci import UCI, load_uci

__all__ = ["NAMES", "REAL", "SYNTHETIC_NAMES", "check_name", "load", "truth"]

SYNTHETIC_NAMES = tuple(SYNTHETIC)
REAL = tuple(UCI)
NAMES = (*SYNTHETIC_NAMES, *REAL)


def check_name(name: str) -> str:
    """The name, if there is such a data set."""
    if name not in NAMES:
        raise InvalidInputError(f"Unknown data set {name!r}. Choose from {', '.join(NAMES)}.")
    return name


@lru_cache(maxsize=4)
def load(name: str) -> Sample:
    """Inputs [N, D] and targets [N]."""
    check_name(name)
    return generate(name) if name in SYNTHETIC else load_uci(name)


truth = {name: recipe.truth for name, recipe in SYNTHETIC.items()}
"""The noiseless functions of the synthetic sets: inputs [n, D] to values [n]."""
