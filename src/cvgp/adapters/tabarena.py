"""Regressor and classifier behind the model interface of AutoGluon, by which TabArena runs models. Needs AutoGluon."""

from typing import Any, ClassVar

import numpy as np
from autogluon.core.models import AbstractModel

from cvgp.data.rows import Array
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.regressor import CVGPRegressor


class CVGPModel(AbstractModel):  # type: ignore[misc]
    """A model for TabArena: numbers, quantiles of numbers, and classes. Its hyperparameters are the estimator's own."""

    ag_key = "CVGP"
    ag_name = "CVGP"
    seed_name = "random_state"
    _supported_problem_types: ClassVar = ["binary", "multiclass", "regression", "quantile"]
    _default_auxiliary_params_extra: ClassVar = {"valid_raw_types": ["int", "float", "category"]}

    def _fit(
        self, X: Any, y: Any, time_limit: Any = None, num_cpus: int = 1, sample_weight: Any = None, **settings: Any
    ) -> None:
        kind = CVGPRegressor if self.problem_type in ("regression", "quantile") else CVGPClassifier
        limits = {"max_time": None if time_limit is None else 0.9 * time_limit, "n_jobs": num_cpus}
        weight = None if sample_weight is None else np.asarray(sample_weight)
        self.model = kind(**limits | self._get_model_params())
        self.model.fit(self.preprocess(X, y=y, is_train=True), np.asarray(y), sample_weight=weight)

    def _predict_proba(self, X: Any, **settings: Any) -> Array:
        if self.problem_type != "quantile":
            return np.asarray(super()._predict_proba(X, **settings))
        return np.asarray(self.model.predict_quantiles(self.preprocess(X, **settings), self.quantile_levels))
