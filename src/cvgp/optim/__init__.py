"""Optimisers that know nothing of Gaussian processes: closures in, a Result out."""
