"""Bounds on the log marginal likelihood, as functions of kernel matrices, with analytic gradients."""

from cvgp.gp.bounds.elbo import elbo, elbo_with_gradient
from cvgp.gp.bounds.statistics import (
    Statistics,
    data_gradient,
    gather,
    gather_whitened,
    site_precision,
    weigh,
    whitener,
)
from cvgp.gp.bounds.titsias import (
    TitsiasSolution,
    log_marginal,
    solve_titsias,
    tight_data_gradient,
    tight_gain,
    tightening,
)

__all__ = [
    "Statistics",
    "TitsiasSolution",
    "data_gradient",
    "elbo",
    "elbo_with_gradient",
    "gather",
    "gather_whitened",
    "log_marginal",
    "site_precision",
    "solve_titsias",
    "tight_data_gradient",
    "tight_gain",
    "tightening",
    "weigh",
    "whitener",
]
