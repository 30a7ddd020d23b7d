"""Fitting a model to a data source: solvers, starting points, checkpoints; data and optimisers, no formulas."""
