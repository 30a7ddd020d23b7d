"""Objectives of the optimizers: a bound on log p(y) plus the log density of the model's priors, with the gradient."""
