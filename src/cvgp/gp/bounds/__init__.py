"""Lower bounds on the log marginal likelihood, as functions of kernel matrices, with analytic gradients."""

from cvgp.gp.bounds.collapsed import (
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
from cvgp.gp.bounds.elbo import ElboGradient, elbo, elbo_with_gradient
from cvgp.gp.bounds.log_marginal import log_marginal
from cvgp.gp.bounds.tight import TightPart, tight_data_gradient, tightening
from cvgp.gp.bounds.weighting import Weighting, site_precision, weigh

__all__ = [
    "CollapsedSolution",
    "DataGradient",
    "ElboGradient",
    "FullSolution",
    "Statistics",
    "TightPart",
    "Weighting",
    "collapsed_bound",
    "data_gradient",
    "elbo",
    "elbo_with_gradient",
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
