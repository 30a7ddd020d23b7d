"""Measurements of cvgp, alone and beside other libraries: ``python -m experiments --help``."""
