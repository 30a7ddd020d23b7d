"""Pictures of a fitted model: each function takes axes, draws on them and returns them."""

from cvgp.plots.drawing import columns_by_importance
from cvgp.plots.model import (
    plot_coreset,
    plot_noise,
    plot_partial_dependence,
    plot_posterior,
    plot_relevance,
    plot_training,
    plot_weights,
)
from cvgp.plots.quality import plot_calibration, plot_predicted, plot_quality_by_size

__all__ = [
    "columns_by_importance",
    "plot_calibration",
    "plot_coreset",
    "plot_noise",
    "plot_partial_dependence",
    "plot_posterior",
    "plot_predicted",
    "plot_quality_by_size",
    "plot_relevance",
    "plot_training",
    "plot_weights",
]
