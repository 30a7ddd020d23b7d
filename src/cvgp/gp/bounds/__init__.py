"""Bounds and estimates of the log marginal likelihood, as functions of kernel matrices, with analytic gradients."""

from cvgp.gp.bounds.collapsed import CollapsedSolution, collapsed_bound, solve_collapsed
from cvgp.gp.bounds.elbo import elbo, elbo_with_gradient
from cvgp.gp.bounds.log_marginal import log_marginal
from cvgp.gp.bounds.power import gather_power, power_data_gradient, power_evidence
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
    TitsiasOptimum,
    TitsiasSolution,
    solve_titsias,
    tight_data_gradient,
    tight_gain,
    tightening,
    titsias_optimum,
)

__all__ = [
    "CollapsedSolution",
    "Statistics",
    "TitsiasOptimum",
    "TitsiasSolution",
    "collapsed_bound",
    "data_gradient",
    "elbo",
    "elbo_with_gradient",
    "gather",
    "gather_power",
    "gather_whitened",
    "log_marginal",
    "power_data_gradient",
    "power_evidence",
    "site_precision",
    "solve_collapsed",
    "solve_titsias",
    "tight_data_gradient",
    "tight_gain",
    "tightening",
    "titsias_optimum",
    "weigh",
    "whitener",
]
