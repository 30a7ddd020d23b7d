"""GPflow's SGPR by SciPy's L-BFGS, against the clock, in float64 as is GPflow's default."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # the optimizers of Keras 3 refuse GPflow's variables
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import SGPR, GPModel

from experiments.peers.protocol import Array, Job, run

CHUNK_ROWS = 2048
NOISE_FLOOR = 1e-6
Finding = Mapping[str, float | str]


def sgpr(job: Job) -> Finding:
    """Titsias' bound on all rows; the search is ended from its callback when the time is up."""
    _use(job)
    job.restart()
    data = (job.x, job.y[:, None])
    model = SGPR(data, kernel=_kernel(job), inducing_variable=job.data["inducing"], noise_variance=_noise(job))
    steps = 0

    def callback(step: int, variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]) -> None:
        nonlocal steps
        steps = step + 1
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        job.check(lambda x: _predict(model, x))
        if job.is_over:
            raise StopIteration

    gpflow.optimizers.Scipy().minimize(
        model.training_loss,
        model.trainable_variables,
        step_callback=callback,
        compile=True,
        options={"maxiter": 10**6, "maxfun": 10**6},
    )
    job.record(lambda x: _predict(model, x))
    return {"iterations": steps, "precision": "float64"}


def _use(job: Job) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(job.settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(job.settings["threads"])
    tf.random.set_seed(0)
    gpflow.config.set_default_positive_bijector("exp")  # logarithmic parameters, as ours are


def _kernel(job: Job) -> gpflow.kernels.Kernel:
    kinds = {"rbf": gpflow.kernels.SquaredExponential, "matern32": gpflow.kernels.Matern32}
    start: Mapping[str, Any] = job.data
    return kinds[job.settings["kernel"]](variance=float(start["outputscale"]), lengthscales=start["lengthscales"])


def _noise(job: Job) -> float:
    return max(float(job.data["noise"]), 2 * NOISE_FLOOR)


def _predict(model: GPModel, x: Array) -> tuple[Array, Array]:
    parts = [model.predict_y(x[i : i + CHUNK_ROWS]) for i in range(0, len(x), CHUNK_ROWS)]
    mean, variance = (np.concatenate([part[k].numpy()[:, 0] for part in parts]) for k in (0, 1))
    return mean, np.sqrt(variance)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"sgpr": sgpr}, {"gpflow": gpflow.__version__, "tensorflow": tf.__version__})
