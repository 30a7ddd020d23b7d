"""Correlated outputs: fitted as independent ones, which are linear combinations of them (§17 of the mathematics)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from cvgp.data.rows import Array, Rows
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError
from cvgp.estimators.fitted import FittedGP, as_array
from cvgp.estimators.predictive import Predictive
from cvgp.estimators.training_summary import summarize_features
from cvgp.fitting.monitor import Run
from cvgp.fitting.options import TrainingOptions
from cvgp.fitting.outputs import learn_signals, make_outputs
from cvgp.fitting.sample import learn_sample
from cvgp.gp.bounds import Statistics
from cvgp.gp.calibration import Calibration
from cvgp.gp.kernels import square_matrix
from cvgp.gp.outputs import learn_covariances, unmix
from cvgp.parallel.group import Group

LARGEST_CONDITION = 1e10  # of the correlations of outputs


def check_correlated(estimator: Any, training: TrainingOptions, beside: dict[str, Any], group: Group) -> None:
    """Raise if a fit is asked for something that a learned covariance of outputs excludes."""
    refused = {name: value is not None for name, value in beside.items()}
    refused["likelihood"] = estimator.likelihood != "gaussian"
    refused["mean"] = estimator.mean != "zero"
    refused["noise"] = estimator.noise not in ("auto", "constant")
    refused["n_neighbors"] = estimator.n_neighbors not in ("auto", 0)
    refused["target_transform"] = estimator.target_transform not in ("auto", "identity")
    refused["private"] = bool(estimator.private)
    refused["training.solver='paper'"] = training.solver == "paper"
    refused["training.early_stopping"] = bool(training.early_stopping)
    refused["training.init"] = not isinstance(training.init, str)
    refused["several processes"] = group.world > 1
    refuse_beside(refused)


def refuse_beside(refused: dict[str, bool]) -> None:
    """Raise if any of these was found beside a learned covariance."""
    if asked := [name for name, is_asked in refused.items() if is_asked]:
        raise InvalidInputError(
            f"output_covariance='learned' cannot be used with {' and '.join(asked)}. Leave it at its default, or fit "
            "with output_covariance='independent'."
        )


def check_outputs(y: Array) -> None:
    """Raise for outputs whose covariance cannot be learned."""
    refuse_beside({"rows that lack some targets": bool(np.isnan(y).any()), "one output": y.shape[1] == 1})
    with np.errstate(divide="ignore", invalid="ignore"):
        condition = np.linalg.cond(np.nan_to_num(np.corrcoef(y.T)))
    refuse_beside({"outputs that are constant or combinations of others": not condition < LARGEST_CONDITION})


@dataclass(frozen=True)
class Unmixed:
    """Independent combinations z = y W of outputs, to which a fit is made; y = z W^-1."""

    rows: Rows[Array]  # of z
    mixing: Array  # [Q, Q], W^-1

    @classmethod
    def learn(cls, rows: Rows[Array], run: Run) -> Unmixed:
        """By the exact GP of a sample of rows of y."""
        drawn = run.rng("output covariance").permutation(len(rows.x))[: run.heuristics.sample_rows]
        gp = learn_sample(rows.take(drawn), None, run)
        if gp is None:
            raise InvalidInputError("No exact GP of a sample could be learned; use output_covariance='independent'.")
        with torch.no_grad():
            s, U = np.linalg.eigh(as_array(square_matrix(gp.start.kernel, gp.learning.x)))
        B, S = learn_covariances(np.maximum(s, 0.0), U.T @ as_array(gp.learning.y))
        W = unmix(B, S)[0] / gp.scaling.y_scale[:, None]
        W /= (rows.y @ W).std(axis=0)
        return cls(rows._replace(y=rows.y @ W), np.asarray(np.linalg.inv(W), np.float64))

    def take(self, rows: Rows[Array] | None) -> Rows[Array] | None:
        """Rows of z, of rows of y."""
        return rows and rows._replace(y=rows.y @ np.asarray(np.linalg.inv(self.mixing), np.float64))

    def mixed(self, gp: FittedGP, sums: Statistics, *sources: DataSource) -> tuple[FittedGP, Statistics, float]:
        """Predictions of y by a fit of z, the sums of its rows in other units, and its bound.

        Each z has a variance of f of its own, by its unit: in these all have the same kernel.
        """
        others = gp.target.name != "identity" or any(part is not None for part in (gp.noise, gp.outliers, gp.kept))
        refuse_beside({"these decisions of another fit": others})
        factor, signal, bounds = learn_signals(gp.model, sources, sums)
        model, sums = deepcopy(gp.model), sums._replace(b=sums.b / signal.sqrt())
        outputs = make_outputs(model, sums, factor, None)
        scaling = gp.scaling._replace(y_scale=gp.scaling.y_scale * np.sqrt(as_array(signal)))
        weight = sum(source.total_weight for source in sources)
        bound = (bounds + 0.5 * weight * signal.log()).sum().item()  # in the new units
        found = replace(gp, model=model, scaling=scaling, outputs=outputs, calibration=None, mixing=self.mixing)
        return found, sums, bound

    def calibration(self, gp: FittedGP, audited: Rows[Array]) -> Calibration:
        """That of intervals of y, by rows of z that the fit has not seen."""
        residuals = Predictive.at(gp, audited.x).residuals(audited.y @ self.mixing)
        return Calibration.of(residuals, audited.sample_weight)

    def finish(self, estimator: Any, calibration: Calibration | None, *sources: DataSource) -> None:
        """Turn an estimator of z into one of y, in place."""
        gp, estimator._statistics, bound = self.mixed(estimator._gp, estimator._statistics, *sources)
        estimator._gp = replace(gp, calibration=calibration)
        num_rows = sum(source.total_weight for source in sources)
        estimator._set_bound(bound, num_rows, -num_rows * float(np.linalg.slogdet(self.mixing)[1]))
        estimator.__dict__.pop("_baselines", None)  # of an earlier fit
        summarize_features(estimator, self.rows.x, self.rows.y @ self.mixing, self.rows.sample_weight)
