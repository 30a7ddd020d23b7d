"""Data by name: synthetic1 to synthetic5 and ``waves-ROWSxINPUTS`` are generated, the others are UCI sets."""

from functools import lru_cache

from cvgp.errors import InvalidInputError
from cvgp.paper.datasets.synthetic import SYNTHETIC, Sample, generate
from cvgp.paper.datasets.uci import UCI, load_uci
from cvgp.paper.datasets.waves import waves, waves_size

__all__ = ["NAMES", "REAL", "SYNTHETIC_NAMES", "check_name", "load", "truth"]

SYNTHETIC_NAMES = tuple(SYNTHETIC)
REAL = tuple(name for name, known in UCI.items() if known.of_the_paper)
NAMES = (*SYNTHETIC_NAMES, *UCI)


def check_name(name: str) -> str:
    """The name, if there is such a data set."""
    if name not in NAMES and waves_size(name) is None:
        raise InvalidInputError(f"Unknown data set {name!r}. Choose from {', '.join(NAMES)}, or waves-ROWSxINPUTS.")
    return name


@lru_cache(maxsize=10)
def load(name: str) -> Sample:
    """Inputs [N, D] and targets [N]."""
    size = waves_size(check_name(name))
    if size is not None:
        return waves(*size)
    return generate(name) if name in SYNTHETIC else load_uci(name)


truth = {name: recipe.truth for name, recipe in SYNTHETIC.items()}
"""The noiseless functions of the synthetic sets: inputs [n, D] to values [n]."""
