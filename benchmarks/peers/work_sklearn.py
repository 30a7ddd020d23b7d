"""scikit-learn's exact GP, on all rows or on as many as it can take."""

import warnings
from collections.abc import Mapping

import numpy as np
import sklearn
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from benchmarks.peers.protocol import Job, run

SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


def exact(job: Job) -> Mapping[str, float | str]:
    """A Matern kernel with one lengthscale per column and a learned noise; the optimiser is scikit-learn's own."""
    job.restart()
    rows = np.random.default_rng(0).permutation(len(job.x))[: job.settings["rows"]]
    matern = Matern(np.ones(job.x.shape[1]), length_scale_bounds=(1e-3, 1e5), nu=SMOOTHNESS[job.settings["kernel"]])
    kernel = ConstantKernel(1.0, (1e-3, 1e4)) * matern + WhiteKernel(0.1, noise_level_bounds=(1e-8, 1e1))
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(job.x[rows], job.y[rows])
    job.record(lambda x: model.predict(x, return_std=True))
    return {"rows": len(rows), "precision": "float64"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run({"exact": exact}, {"scikit-learn": sklearn.__version__})
