"""scikit-learn's GPs and linear models, with their own ways to choose parameters.

The exact GP takes all rows or as many as it can in its time. Beside it are Bayesian ridge regression, the GP classifier
(Laplace's approximation, one class against the others), logistic regression and Poisson regression, whose penalties are
chosen by cross-validation.
"""

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import scipy.optimize
import sklearn
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel, Matern, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegressionCV, PoissonRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from experiments.peers.protocol import Array, Job, run

SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
TRIAL_ROWS = 500
"""So many can always be had: the search ends with the budget."""
EVALUATIONS = 40
"""Of the likelihood and its gradient, that a search should have time for."""
MOST_GRADIENT_BYTES = 2e9
"""scikit-learn holds the derivative of the matrix in every parameter at once."""


MOST_LENGTHSCALES = 30
"""Columns beyond which the GP classifier has one lengthscale: it holds a matrix for each at every step."""
PENALTIES = np.logspace(-6.0, 2.0, 17)
ITERATIONS = 2000
"""Of the solvers of linear models, enough for them to converge."""


class _TimeIsUp(Exception):  # noqa: N818 - a signal, not an error
    pass


def within_budget(job: Job) -> Mapping[str, float | str]:
    """A Matern kernel with one lengthscale per column and a learned noise, on as many rows as the budget allows."""
    job.restart()
    order = np.random.default_rng(0).permutation(len(job.x))
    rows = order[: _affordable_rows(job, order[:TRIAL_ROWS])]
    optimizer = _timed_search(job)
    model = GaussianProcessRegressor(_kernel(job), optimizer=optimizer, normalize_y=True, random_state=0)
    model.fit(job.x[rows], job.y[rows])
    job.record(lambda x: model.predict(x, return_std=True))
    return {"rows": len(rows), "precision": "float64"}


def exact(job: Job) -> Mapping[str, float | str]:
    """The same model on all rows, with scikit-learn's own search and one restart."""
    job.restart()
    model = GaussianProcessRegressor(_kernel(job), n_restarts_optimizer=1, normalize_y=True, random_state=0)
    model.fit(job.x, job.y)
    job.record(lambda x: model.predict(x, return_std=True))
    return {"rows": len(job.x), "precision": "float64"}


def line(job: Job) -> Mapping[str, float | str]:
    """Bayesian ridge regression on standardized columns."""
    job.restart()
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(job.x, job.y)
    job.record(lambda x: model.predict(x, return_std=True))
    return {"precision": "float64"}


def gpc(job: Job) -> Mapping[str, float | str]:
    """A Matern kernel with one lengthscale per column, or one for all of many columns."""
    job.restart()
    columns = job.x.shape[1]
    lengthscales = np.ones(columns) if columns <= MOST_LENGTHSCALES else 1.0
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * Matern(lengthscales, length_scale_bounds=(1e-3, 1e5), nu=1.5)
    model = GaussianProcessClassifier(kernel, random_state=0).fit(job.x, job.y)
    job.record_arrays(lambda x: {"probabilities": model.predict_proba(x)})
    return {"precision": "float64"}


def logistic(job: Job) -> Mapping[str, float | str]:
    """Logistic regression whose penalty is chosen by the log loss of five folds."""
    job.restart()
    model = LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss", max_iter=ITERATIONS).fit(job.x, job.y)
    job.record_arrays(lambda x: {"probabilities": model.predict_proba(x)})
    return {"precision": "float64"}


def poisson(job: Job) -> Mapping[str, float | str]:
    """Poisson regression of the rate, whose penalty is chosen by the deviance of five folds."""
    job.restart()
    exposure = np.exp(job.data["log_exposure"])
    model = GridSearchCV(PoissonRegressor(max_iter=ITERATIONS), {"alpha": PENALTIES}, cv=5)
    model.fit(job.x, job.y / exposure, sample_weight=exposure)

    def predict(x: Array) -> dict[str, Array]:
        return {"f_mean": np.log(model.predict(x)) + job.data["log_exposure_test"], "f_var": np.zeros(len(x))}

    job.record_arrays(predict)
    return {"precision": "float64"}


def _affordable_rows(job: Job, trial: Any) -> int:
    """By the time of one evaluation on a few rows, which grows with the cube of their number; never fewer."""
    model = GaussianProcessRegressor(_kernel(job), optimizer=None).fit(job.x[trial], job.y[trial])
    begin = job.now()
    model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    each = job.now() - begin
    by_time = len(trial) * ((job.budget - job.seconds) / (EVALUATIONS * each)) ** (1 / 3)
    by_memory = (MOST_GRADIENT_BYTES / (8 * len(model.kernel_.theta))) ** 0.5
    return min(len(job.x), max(TRIAL_ROWS, min(int(by_time), int(by_memory))))


def _timed_search(job: Job) -> Callable[..., tuple[Array, float]]:
    """L-BFGS as scikit-learn calls it, which ends with the budget and returns the best that it has seen."""

    def search(objective: Callable[..., Any], start: Array, bounds: Array) -> tuple[Array, float]:
        best, least = start, np.inf

        def watched(theta: Array) -> tuple[float, Array]:
            nonlocal best, least
            if job.is_over and np.isfinite(least):
                raise _TimeIsUp
            value, gradient = objective(theta)
            if value < least:
                best, least = theta.copy(), float(value)
            return float(value), gradient

        with suppress(_TimeIsUp):
            scipy.optimize.minimize(watched, start, method="L-BFGS-B", jac=True, bounds=bounds)
        return best, least

    return search


def _kernel(job: Job) -> Kernel:
    matern = Matern(np.ones(job.x.shape[1]), length_scale_bounds=(1e-3, 1e5), nu=SMOOTHNESS[job.settings["kernel"]])
    return ConstantKernel(1.0, (1e-3, 1e4)) * matern + WhiteKernel(0.1, noise_level_bounds=(1e-8, 1e1))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    regressions = {"within_budget": within_budget, "exact": exact, "line": line, "poisson": poisson}
    run(regressions | {"gpc": gpc, "logistic": logistic}, {"scikit-learn": sklearn.__version__})
