"""Pictures of a fitted model: each function takes axes, draws on them and returns them.

`model` is a fitted `CVGPRegressor`, of one output where predictions are drawn. Relevance and training can be drawn of a
`CVGPClassifier` too, and reliability of that alone. `ax` are Matplotlib axes, the current
ones by default. `column` is a name, or a position from 0 on; the most important column by default. `X` and `y` are rows
that the model has not seen. What cannot be drawn raises an `InvalidInputError`: a column that does not exist or was
constant in the fit, a model of several outputs, rows that the model cannot predict.

Examples
--------
>>> import numpy as np
>>> from cvgp import CVGPRegressor, plots
>>> from matplotlib.figure import Figure
>>> X = np.random.default_rng(0).normal(size=(40, 2))
>>> y = np.sin(3 * X[:, 1])
>>> model = CVGPRegressor(n_coreset=8, random_state=0).fit(X, y)
>>> plots.columns_by_importance(model)
['x1', 'x0']
>>> plots.plot_partial_dependence(model, "x1", ax=Figure().subplots()).get_xlabel()
'x1'
>>> plots.plot_calibration(model, X, y, ax=Figure().subplots()).get_title()
'Calibration'
"""

from cvgp.plots.drawing import columns_by_importance
from cvgp.plots.model import (
    plot_calibration,
    plot_coreset,
    plot_explanation,
    plot_noise,
    plot_partial_dependence,
    plot_posterior,
    plot_predicted,
    plot_quality_by_size,
    plot_relevance,
    plot_reliability,
    plot_training,
    plot_weights,
)

__all__ = [
    "columns_by_importance",
    "plot_calibration",
    "plot_coreset",
    "plot_explanation",
    "plot_noise",
    "plot_partial_dependence",
    "plot_posterior",
    "plot_predicted",
    "plot_quality_by_size",
    "plot_relevance",
    "plot_reliability",
    "plot_training",
    "plot_weights",
]
