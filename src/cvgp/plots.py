"""Pictures of a fitted model: each function takes axes and returns them, and draws nothing else.

Colours are told apart by people with any kind of colour vision (Okabe and Ito's set; viridis for weights).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from cvgp import metrics
from cvgp.data.schema import Schema
from cvgp.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cvgp.estimators.regressor import CVGPRegressor

__all__ = [
    "columns_by_importance",
    "plot_calibration",
    "plot_feature_importance",
    "plot_history",
    "plot_partial_dependence",
    "plot_posterior_1d",
    "plot_predicted",
]

Array = NDArray[np.float64]

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"
WEIGHTS = "viridis"
Z95 = float(ndtri(0.975))
GRID = 60
MOST_POINTS = 2000
"""A scatter plot of more points than this shows a random choice of them."""
