"""A regressor from parameters and options of training side by side, for tests that vary both."""

from typing import Any

from cvgp import CVGPRegressor, TrainingOptions


def make_regressor(n_coreset: Any = "auto", **parameters: Any) -> CVGPRegressor:
    """`CVGPRegressor`, where names of `TrainingOptions` set those of its `training`."""
    names = TrainingOptions().get_params()
    flat = {f"training__{name}" if name in names else name: value for name, value in parameters.items()}
    return CVGPRegressor(n_coreset).set_params(**flat)
