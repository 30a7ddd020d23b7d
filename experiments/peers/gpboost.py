"""GPBoost's Vecchia approximation, alone or of what inducing points leave (VIF).

Its optimizer has no callback, so the fit goes on in parts: each starts from the covariance parameters of the one
before it and may take twice as many iterations, as far as the budget allows, until the likelihood stands still.

Two classes and counts have Laplace's approximation, and GPBoost's own search.
"""

import warnings
from collections.abc import Mapping
from importlib.metadata import version

import gpboost
import numpy as np

from experiments.peers.protocol import Array, Job, run

LEAST_GAIN = 0.01
"""Nats by which a part must raise the likelihood of all rows for another to follow."""
INDUCING_POINTS = 200
"""Of VIF for classes and counts, as many as SVGP has."""


def vecchia(job: Job) -> Mapping[str, float | str]:
    """A Matern kernel with one lengthscale per column, and GPBoost's default number of neighbors."""
    job.restart()
    rows = np.random.default_rng(0).permutation(len(job.x))[: job.settings.get("most_rows")]
    x, y = np.ascontiguousarray(job.x[rows]), np.ascontiguousarray(job.y[rows])  # or GPBoost may read them wrongly
    model = gpboost.GPModel(
        gp_coords=x,
        cov_function="matern_ard",
        cov_fct_shape={"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}[job.settings["kernel"]],
        gp_approx=job.settings.get("approximation", "vecchia"),
        num_ind_points=len(job.data["inducing"]),  # as many as the other sparse GPs have; Vecchia alone has none
        likelihood="gaussian",
        seed=0,
        num_parallel_threads=job.settings["threads"],
    )
    start = np.concatenate([np.atleast_1d(job.data[name]) for name in ("noise", "outputscale", "lengthscales")])
    done, allowed, last = 0, 1, np.inf
    while True:
        begin = job.seconds
        model.fit(y, params={"init_cov_pars": start, "maxit": allowed})
        done += allowed
        each = (job.seconds - begin) / allowed
        start = np.asarray(model.get_cov_pars(), dtype=np.float64).ravel()
        gain, last = last - model.get_current_neg_log_likelihood(), model.get_current_neg_log_likelihood()
        if gain < LEAST_GAIN or job.is_over:
            break
        allowed = max(1, min(2 * allowed, int((job.budget - job.seconds) / each)))
        job.check(lambda x: _predict(model, x))
    job.record(lambda x: _predict(model, x))
    return {"iterations": done, "rows": len(rows), "precision": "float64"}


def latent(job: Job) -> Mapping[str, float | str]:
    """Probabilities of two classes, or mean and variance of the logarithm of a Poisson rate."""
    job.restart()
    is_count = job.settings["kind"] == "counts"
    model = gpboost.GPModel(
        gp_coords=np.ascontiguousarray(job.x),
        cov_function="matern_ard",
        cov_fct_shape=1.5,
        gp_approx="vif" if job.settings["method"] == "latent_vif" else "vecchia",
        num_ind_points=min(INDUCING_POINTS, len(job.x) // 2),  # Vecchia alone has none
        likelihood="poisson" if is_count else "bernoulli_logit",
        seed=0,
        num_parallel_threads=job.settings["threads"],
    )
    model.fit(
        np.ascontiguousarray(job.y),
        X=np.ones((len(job.x), 1)),
        offset=job.data["log_exposure"] if is_count else None,
    )

    def predict(x: Array) -> dict[str, Array]:
        found = model.predict(
            gp_coords_pred=np.ascontiguousarray(x),
            X_pred=np.ones((len(x), 1)),
            offset_pred=job.data["log_exposure_test"] if is_count else None,
            predict_var=is_count,
            predict_response=not is_count,
        )
        if is_count:
            return {"f_mean": found["mu"], "f_var": np.maximum(found["var"], 0.0)}
        return {"probabilities": np.column_stack([1.0 - found["mu"], found["mu"]])}

    job.record_arrays(predict)
    return {"precision": "float64"}


def _predict(model: gpboost.GPModel, x: Array) -> tuple[Array, Array]:
    found = model.predict(gp_coords_pred=np.ascontiguousarray(x), predict_var=True, predict_response=True)
    return found["mu"], np.sqrt(found["var"])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"vecchia": vecchia, "latent": latent, "latent_vif": latent}, {"gpboost": version("gpboost")})
