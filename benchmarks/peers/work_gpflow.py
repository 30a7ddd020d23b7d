"""GPflow's SGPR by SciPy's L-BFGS and its SVGP by Adam, against the clock, in float64 as is GPflow's default."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # the optimisers of Keras 3 refuse GPflow's variables
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.models import SGPR, SVGP, GPModel

from benchmarks.peers.protocol import Array, Job, one_cycle, run

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


def svgp(job: Job) -> Finding:
    """Adam on minibatches in a compiled step, one cycle of the learning rate over the budget."""
    _use(job)
    job.restart()
    settings = job.settings
    likelihood = gpflow.likelihoods.Gaussian(_noise(job))
    model = SVGP(_kernel(job), likelihood, inducing_variable=job.data["inducing"], num_data=len(job.x))
    optimiser = tf.keras.optimizers.Adam(learning_rate=settings["learning_rate"], beta_2=0.99)
    x, y = tf.constant(job.x), tf.constant(job.y[:, None])
    batch_size = min(settings["batch_size"], len(job.x))

    @tf.function(reduce_retracing=True)
    def train(rows: tf.Tensor) -> None:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(model.trainable_variables)
            loss = model.training_loss((tf.gather(x, rows), tf.gather(y, rows)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimiser.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    rng = np.random.default_rng(0)
    order, position, step = rng.permutation(len(job.x)), 0, 0
    while not job.is_over:
        if position + batch_size > len(order):
            order, position = rng.permutation(len(job.x)), 0
        optimiser.learning_rate.assign(settings["learning_rate"] * one_cycle(job.progress))
        train(tf.constant(order[position : position + batch_size]))
        position += batch_size
        step += 1
        job.check(lambda x: _predict(model, x))
    job.record(lambda x: _predict(model, x))
    return {"iterations": step, "precision": "float64"}


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
    run({"sgpr": sgpr, "svgp": svgp}, {"gpflow": gpflow.__version__, "tensorflow": tf.__version__})
