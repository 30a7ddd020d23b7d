"""Pictures of a fitted model: each function takes axes, draws on them and returns them."""

from cvgp.plots.columns import columns_by_importance
from cvgp.plots.dependence import plot_partial_dependence
from cvgp.plots.fitted import plot_feature_importance, plot_history, plot_posterior_1d
from cvgp.plots.noise import plot_noise
from cvgp.plots.quality import plot_calibration, plot_predicted, plot_quality_by_size

__all__ = [
    "columns_by_importance",
    "plot_calibration",
    "plot_feature_importance",
    "plot_history",
    "plot_noise",
    "plot_partial_dependence",
    "plot_posterior_1d",
    "plot_predicted",
    "plot_quality_by_size",
]
