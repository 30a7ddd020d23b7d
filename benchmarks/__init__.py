"""Measurements of cvgp, alone and beside other libraries: ``python -m benchmarks --help``."""
