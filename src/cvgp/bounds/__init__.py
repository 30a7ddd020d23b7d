"""Lower bounds on the log marginal likelihood, as functions of kernel matrices, with analytic gradients."""

from cvgp.bounds.collapsed import (
    CollapsedSolution,
    DataGradient,
    FullSolution,
    Statistics,
    collapsed_bound,
    data_gradient,
    gather,
    gather_whitened,
    solve,
    solve_full,
    whitener,
)
from cvgp.bounds.elbo import ElboGradient, elbo, elbo_with_gradient
from cvgp.bounds.exact import log_marginal
from cvgp.bounds.optimum import BestCoreset, FullOptimum, best_coreset, full_matrix_optimum
from cvgp.bounds.tight import TightPart, tight_data_gradient, tightening
from cvgp.bounds.weighting import Weighting, site_precision, weigh

__all__ = [
    "BestCoreset",
    "CollapsedSolution",
    "DataGradient",
    "ElboGradient",
    "FullOptimum",
    "FullSolution",
    "Statistics",
    "TightPart",
    "Weighting",
    "best_coreset",
    "collapsed_bound",
    "data_gradient",
    "elbo",
    "elbo_with_gradient",
    "full_matrix_optimum",
    "gather",
    "gather_whitened",
    "log_marginal",
    "site_precision",
    "solve",
    "solve_full",
    "tight_data_gradient",
    "tightening",
    "weigh",
    "whitener",
]
