"""How good predictions are, and how far apart two Gaussian posteriors lie: NumPy functions, in nats."""

from cvgp.metrics.divergences import jeffreys, jensen_shannon_marginals, kl_gaussian
from cvgp.metrics.predictions import coverage, crps, interval, joint_log_density, mean_log_density, r2, rmse

__all__ = [
    "coverage",
    "crps",
    "interval",
    "jeffreys",
    "jensen_shannon_marginals",
    "joint_log_density",
    "kl_gaussian",
    "mean_log_density",
    "r2",
    "rmse",
]
