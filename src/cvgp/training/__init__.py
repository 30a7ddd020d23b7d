"""Fitting a model to a data source: the start, the plan, the solvers and their checkpoints."""
