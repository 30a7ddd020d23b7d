"""Gaussian process regression with a learnable coreset, for more data than an exact GP can hold.

Names load on first use, so that importing cvgp does not pay for what a program never touches.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cvgp.coreset import Coreset
    from cvgp.errors import CVGPError, CVGPWarning
    from cvgp.estimators.classifier import CVGPClassifier
    from cvgp.estimators.merging import merge
    from cvgp.estimators.persistence import load
    from cvgp.estimators.regressor import CVGPRegressor
    from cvgp.estimators.updating import quality_by_size
    from cvgp.fitting.heuristics import Heuristics
    from cvgp.fitting.maximize import maximize
    from cvgp.fitting.options import TrainingOptions
    from cvgp.gp.model import CVGP
    from cvgp.gp.process import CoresetProcess
    from cvgp.tables.table import read_table

__version__ = "0.1.0"

_HOME = {
    "CVGP": "cvgp.gp.model",
    "CVGPClassifier": "cvgp.estimators.classifier",
    "CVGPError": "cvgp.errors",
    "CVGPRegressor": "cvgp.estimators.regressor",
    "CVGPWarning": "cvgp.errors",
    "Coreset": "cvgp.coreset",
    "CoresetProcess": "cvgp.gp.process",
    "Heuristics": "cvgp.fitting.heuristics",
    "load": "cvgp.estimators.persistence",
    "maximize": "cvgp.fitting.maximize",
    "merge": "cvgp.estimators.merging",
    "quality_by_size": "cvgp.estimators.updating",
    "read_table": "cvgp.tables.table",
    "TrainingOptions": "cvgp.fitting.options",
}

__all__ = [
    "CVGP",
    "CVGPClassifier",
    "CVGPError",
    "CVGPRegressor",
    "CVGPWarning",
    "Coreset",
    "CoresetProcess",
    "Heuristics",
    "TrainingOptions",
    "__version__",
    "load",
    "maximize",
    "merge",
    "quality_by_size",
    "read_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cvgp' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
