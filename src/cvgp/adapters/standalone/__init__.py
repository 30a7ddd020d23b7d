"""What `export_numpy` copies beside a model: modules that import NumPy and nothing of cvgp."""
